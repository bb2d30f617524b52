//! The rows of a sheet: most scroll, pinned rows stay below them. Labels stay on the left while
//! columns scroll.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::selection::{OrderedRows, SheetSelection};
use crate::emit::{Sheet, SheetColumn, fitted, width as width_of};

/// Spaces between two columns.
const GAP: u16 = 2;

/// A sheet with its selection, ready to draw.
pub(super) struct SheetTable<'a> {
    pub(super) sheet: &'a Sheet,
    /// All columns, with the texts of all rows.
    pub(super) columns: &'a [SheetColumn],
    pub(super) rows: &'a OrderedRows,
    pub(super) row: Option<usize>,
    pub(super) column: Option<usize>,
}

impl SheetTable<'_> {
    /// Draws the rows, scrolled to the selection. Returns how many scrolling rows fit.
    pub(super) fn draw(
        &self,
        area: Rect,
        buffer: &mut Buffer,
        selection: &mut SheetSelection,
    ) -> usize {
        let columns = self.columns;
        let lines = |of: fn(&SheetColumn) -> usize| columns.iter().map(of).max().unwrap_or(0);
        let names = lines(|column| column.name.len()).max(1);
        let heads = names + lines(|column| column.under.len());
        let row_lines = usize::from(area.height).saturating_sub(heads);
        let pinned = self.rows.pinned.len().min(row_lines / 2);
        let visible = row_lines - pinned;
        selection.above = scrolled(
            self.scrolling_index(),
            selection.above,
            visible,
            self.rows.many.len(),
        );
        let in_view: Vec<usize> = self
            .rows
            .many
            .iter()
            .skip(selection.above)
            .take(visible)
            .chain(&self.rows.pinned[..pinned])
            .copied()
            .collect();
        let labels = self.labels(&in_view, usize::from(area.width));
        let width_left = area.width.saturating_sub(labels.width + 1);
        selection.left = first_column(columns, self.column, selection.left, width_left);
        // The headings of labels and the last lines of column names share a line.
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
        for column in columns.iter().skip(selection.left) {
            let column_area = Rect::new(x + GAP, area.y, to_u16(column.width), area.height);
            if column_area.right() > area.right() {
                break;
            }
            x = column_area.right();
            let is_chosen = column.index.is_some() && column.index == self.column;
            let style = if is_chosen {
                bold.add_modifier(Modifier::REVERSED)
            } else {
                bold
            };
            let first = area.y + to_u16(names - column.name.len());
            for (y, text) in (first..).zip(column.name.iter().chain(&column.under)) {
                right(buffer, column_area, y, text, style);
            }
            for (y, row) in lines() {
                right(buffer, column_area, y, &column.texts[*row], Style::new());
            }
        }
        visible
    }

    /// Index of the selected row among the scrolling rows; None for a pinned row.
    fn scrolling_index(&self) -> Option<usize> {
        let mut many = self.rows.many.iter();
        many.position(|row| Some(*row) == self.row)
    }

    /// Labels of these rows, side by side, in at most two fifths of the width.
    fn labels(&self, rows: &[usize], width: usize) -> RowLabels {
        let heads = self.sheet.heads();
        let widest = |at: usize| {
            let labels = rows.iter().map(|row| self.sheet.labels(*row)[at].as_str());
            labels.chain([heads[at].as_str()]).map(width_of).max()
        };
        let widths: Vec<usize> = (0..heads.len()).filter_map(widest).collect();
        let joined = |labels: &[String]| {
            let filled = labels
                .iter()
                .zip(&widths)
                .map(|(label, width)| format!("{label}{}", " ".repeat(width - width_of(label))));
            filled.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let full: Vec<String> = rows
            .iter()
            .map(|row| joined(self.sheet.labels(*row)))
            .collect();
        let texts: Vec<&str> = full.iter().map(String::as_str).collect();
        let all = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
        let width = all.min((width * 2 / 5).max(8));
        RowLabels {
            head: fitted(&[&joined(heads)], width).concat(),
            texts: fitted(&texts, width),
            width: to_u16(width),
        }
    }
}

struct RowLabels {
    head: String,
    texts: Vec<String>,
    width: u16,
}

/// The first visible row: the selected row is visible and no line stays empty.
fn scrolled(chosen: Option<usize>, above: usize, visible: usize, many: usize) -> usize {
    let above = match chosen {
        Some(at) if at < above => at,
        Some(at) if at >= above + visible => (at + 1).saturating_sub(visible),
        _ => above,
    };
    above.min(many.saturating_sub(visible))
}

/// The first visible column: the selected column is visible.
fn first_column(
    columns: &[SheetColumn],
    chosen: Option<usize>,
    left: usize,
    max_width: u16,
) -> usize {
    let Some(at) = columns
        .iter()
        .position(|it| it.index.is_some() && it.index == chosen)
    else {
        return 0;
    };
    let width = |from: usize| -> usize {
        let columns = columns[from..=at].iter();
        columns.map(|column| usize::from(GAP) + column.width).sum()
    };
    let left = left.min(at);
    let fits = (left..at).find(|from| width(*from) <= usize::from(max_width));
    fits.unwrap_or(at)
}

/// Writes a text, clipped to the area.
fn put(buffer: &mut Buffer, area: Rect, (x, y): (u16, u16), text: &str, style: Style) {
    if area.contains((x, y).into()) {
        buffer.set_stringn(x, y, text, usize::from(area.right() - x), style);
    }
}

/// Writes a text right-aligned in a column.
fn right(buffer: &mut Buffer, column: Rect, y: u16, text: &str, style: Style) {
    let x = column.right().saturating_sub(to_u16(width_of(text)));
    put(buffer, column, (x.max(column.x), y), text, style);
}

/// A coordinate of a terminal, which has 16 bits.
pub(super) fn to_u16(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
