//! The rows of a sheet: those of many scroll, the others stay below them; labels stay on the left
//! while columns scroll.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::choice::{Choice, Rows};
use crate::emit::{Sheet, SheetColumn, fitted, width as width_of};

/// Between two columns.
const GAP: u16 = 2;

/// What is drawn, and where it begins.
pub(super) struct Table<'a> {
    pub(super) sheet: &'a Sheet,
    /// All of them, with the texts of all rows.
    pub(super) columns: &'a [SheetColumn],
    pub(super) rows: &'a Rows,
    pub(super) row: Option<usize>,
    pub(super) column: Option<usize>,
}

impl Table<'_> {
    /// Draws it, scrolled so that the choice is in view. Returns for how many of many rows there is
    /// room.
    pub(super) fn draw(&self, area: Rect, buffer: &mut Buffer, choice: &mut Choice) -> usize {
        let columns = self.columns;
        let lines = |of: fn(&SheetColumn) -> usize| columns.iter().map(of).max().unwrap_or(0);
        let names = lines(|column| column.name.len()).max(1);
        let heads = names + lines(|column| column.under.len());
        let room = usize::from(area.height).saturating_sub(heads);
        let pinned = self.rows.pinned.len().min(room / 2);
        let room = room - pinned;
        choice.above = scrolled(self.place(), choice.above, room, self.rows.many.len());
        let in_view = self.rows.many.iter().skip(choice.above).take(room);
        let in_view: Vec<usize> = in_view
            .chain(&self.rows.pinned[..pinned])
            .copied()
            .collect();
        let labels = self.labels(&in_view, usize::from(area.width));
        let beside = area.width.saturating_sub(labels.width + 1);
        choice.left = first_column(columns, self.column, choice.left, beside);
        // The line of the labels' heads is that in which names of columns end.
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let y = area.y + to_u16(names - 1);
        put(buffer, area, (area.x + 1, y), &labels.head, bold);
        let lines = || (area.y + to_u16(heads)..area.bottom()).zip(&in_view);
        for ((y, row), label) in lines().zip(&labels.texts) {
            if Some(*row) == self.row {
                let line = Rect::new(area.x, y, area.width, 1);
                buffer.set_style(line, Style::new().add_modifier(Modifier::REVERSED));
            }
            put(buffer, area, (area.x + 1, y), label, Style::new());
        }
        let mut x = area.x + 1 + labels.width;
        for column in columns.iter().skip(choice.left) {
            let place = Rect::new(x + GAP, area.y, to_u16(column.width), area.height);
            if place.right() > area.right() {
                break;
            }
            x = place.right();
            let is_chosen = column.of.is_some() && column.of == self.column;
            let style = if is_chosen {
                bold.add_modifier(Modifier::REVERSED)
            } else {
                bold
            };
            let first = area.y + to_u16(names - column.name.len());
            for (y, text) in (first..).zip(column.name.iter().chain(&column.under)) {
                right(buffer, place, y, text, style);
            }
            for (y, row) in lines() {
                right(buffer, place, y, &column.texts[*row], Style::new());
            }
        }
        room
    }

    /// The place of the chosen row among the many; None for a pinned one.
    fn place(&self) -> Option<usize> {
        let mut many = self.rows.many.iter();
        many.position(|row| Some(*row) == self.row)
    }

    /// Labels of these rows, side by side, in at most two fifths of the width.
    fn labels(&self, rows: &[usize], width: usize) -> Labels {
        let heads = self.sheet.heads();
        let widest = |at: usize| {
            let labels = rows.iter().map(|row| self.sheet.labels(*row)[at].as_str());
            labels.chain([heads[at].as_str()]).map(width_of).max()
        };
        let widths: Vec<usize> = (0..heads.len()).filter_map(widest).collect();
        let joined = |labels: &[String]| {
            let filled = labels.iter().zip(&widths);
            let filled = filled
                .map(|(label, width)| format!("{label}{}", " ".repeat(width - width_of(label))));
            filled.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let texts: Vec<String> = rows
            .iter()
            .map(|row| joined(self.sheet.labels(*row)))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let all = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
        let room = all.min((width * 2 / 5).max(8));
        Labels {
            head: fitted(&[&joined(heads)], room).concat(),
            texts: fitted(&texts, room),
            width: to_u16(room),
        }
    }
}

struct Labels {
    head: String,
    texts: Vec<String>,
    width: u16,
}

/// The first row in view, so that the chosen one is in view and no room stays empty.
fn scrolled(chosen: Option<usize>, above: usize, room: usize, many: usize) -> usize {
    let above = match chosen {
        Some(at) if at < above => at,
        Some(at) if at >= above + room => (at + 1).saturating_sub(room),
        _ => above,
    };
    above.min(many.saturating_sub(room))
}

/// The first column in view, so that the chosen one is in view.
fn first_column(columns: &[SheetColumn], chosen: Option<usize>, left: usize, room: u16) -> usize {
    let Some(at) = columns
        .iter()
        .position(|it| it.of.is_some() && it.of == chosen)
    else {
        return 0;
    };
    let width = |from: usize| -> usize {
        let columns = columns[from..=at].iter();
        columns.map(|column| usize::from(GAP) + column.width).sum()
    };
    let left = left.min(at);
    let fits = (left..at).find(|from| width(*from) <= usize::from(room));
    fits.unwrap_or(at)
}

/// Writes a text as far as it is in the area.
fn put(buffer: &mut Buffer, area: Rect, (x, y): (u16, u16), text: &str, style: Style) {
    if area.contains((x, y).into()) {
        buffer.set_stringn(x, y, text, usize::from(area.right() - x), style);
    }
}

/// The same at the right end of a column.
fn right(buffer: &mut Buffer, column: Rect, y: u16, text: &str, style: Style) {
    let x = column.right().saturating_sub(to_u16(width_of(text)));
    put(buffer, column, (x.max(column.x), y), text, style);
}

/// Of a terminal, whose sizes are numbers of 16 bits.
pub(super) fn to_u16(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
