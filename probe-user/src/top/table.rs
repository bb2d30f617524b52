//! The rows of a sheet: most scroll, pinned rows stay below them. Labels stay on the left while
//! columns scroll.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};

use super::{
    colour::{Colours, ColumnColours},
    selection::{OrderedRows, SheetSelection, SortOrder},
    topdown,
};
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
    pub(super) colours: Colours,
}

/// What was in view when a sheet was drawn last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InView {
    /// Number of lines for scrolling rows.
    pub(super) rows: usize,
    /// Number of scrolling rows above.
    above: usize,
    /// Number of all scrolling rows.
    all_rows: usize,
    /// Numbers of columns in view, of columns on the left of them, and of all columns; without
    /// running ratios and bars.
    columns: usize,
    left: usize,
    all_columns: usize,
}

impl InView {
    /// `1-10 of 1003`, and which columns if not all are in view.
    pub(super) fn text(&self) -> String {
        let last = (self.above + self.rows).min(self.all_rows);
        let mut text = match last {
            0 => String::new(),
            _ => format!("{}-{last} of {}", self.above + 1, self.all_rows),
        };
        if self.columns > 0 && self.columns < self.all_columns {
            let (first, last) = (self.left + 1, self.left + self.columns);
            let left = if self.left > 0 { LEFT } else { "" };
            let right = if last < self.all_columns { RIGHT } else { "" };
            text += &format!(
                "  {left}columns {first}-{last} of {}{right}",
                self.all_columns
            );
        }
        text
    }
}

/// Marks of more columns.
const LEFT: &str = "◂";
const RIGHT: &str = "▸";

impl SheetTable<'_> {
    /// Draws the rows, scrolled to the selection. Returns what is in view.
    pub(super) fn draw(
        &self,
        area: Rect,
        buffer: &mut Buffer,
        selection: &mut SheetSelection,
    ) -> InView {
        let columns = self.columns;
        let most = |lines: fn(&SheetColumn) -> usize| columns.iter().map(lines).max().unwrap_or(0);
        let names = most(|column| column.name.len()).max(1);
        let heads = names + most(|column| column.under.len());
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
        // The last column of the screen is for the mark of more columns.
        let width_left = area.width.saturating_sub(labels.width + 2);
        selection.left = first_column(columns, self.column, selection.left, width_left);
        // The headings of labels and the last lines of column names share a line.
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let head = area.y + to_u16(names - 1);
        put(buffer, area, (area.x + 1, head), &labels.head, bold);
        let rows: Vec<(u16, usize)> = (area.y + to_u16(heads)..area.bottom())
            .zip(in_view)
            .collect();
        for ((y, row), label) in rows.iter().zip(&labels.texts) {
            if Some(*row) == self.row {
                let line = Rect::new(area.x, *y, area.width, 1);
                buffer.set_style(line, Style::new().add_modifier(Modifier::REVERSED));
            }
            put(buffer, area, (area.x + 1, *y), label, Style::new());
        }
        let mut x = area.x + 1 + labels.width;
        if selection.left > 0 {
            put(buffer, area, (x, head), LEFT, bold);
        }
        let count_values = |columns: &[SheetColumn]| {
            let columns = columns.iter();
            columns.filter(|column| column.index.is_some()).count()
        };
        let mut end = selection.left;
        for column in &columns[selection.left..] {
            let column_area = Rect::new(x + GAP, area.y, to_u16(column.width), area.height);
            if column_area.right() >= area.right() {
                put(buffer, area, (area.right() - 1, head), RIGHT, bold);
                break;
            }
            (x, end) = (column_area.right(), end + 1);
            self.draw_column(column, column_area, (names, &rows), buffer, selection);
        }
        InView {
            rows: visible,
            above: selection.above,
            all_rows: self.rows.many.len(),
            columns: count_values(&columns[selection.left..end]),
            left: count_values(&columns[..selection.left]),
            all_columns: count_values(columns),
        }
    }

    /// Draws a column with its head, in which the names of all columns end at line `names`.
    fn draw_column(
        &self,
        column: &SheetColumn,
        area: Rect,
        (names, rows): (usize, &[(u16, usize)]),
        buffer: &mut Buffer,
        selection: &SheetSelection,
    ) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let is_chosen = column.index.is_some() && column.index == self.column;
        let style = match is_chosen {
            true => bold.add_modifier(Modifier::REVERSED),
            false => bold,
        };
        let first = area.y + to_u16(names - column.name.len());
        for (y, text) in (first..).zip(column.name.iter().chain(&column.under)) {
            put_right(buffer, area, y, text, style);
        }
        let sorted = selection.sorted(self.sheet);
        if let Some((_, order)) = sorted.filter(|(by, _)| Some(*by) == column.index) {
            let mark = match order {
                SortOrder::LargestFirst => "▼",
                SortOrder::SmallestFirst => "▲",
            };
            let name = column.name.last().map_or(0, |name| width_of(name));
            // The mark stands in the gap before the column.
            let x = area.right().saturating_sub(to_u16(name) + 1);
            put(
                buffer,
                buffer.area,
                (x, area.y + to_u16(names - 1)),
                mark,
                bold,
            );
        }
        let colours = column.index.map_or(ColumnColours::None, |column| {
            self.colours.of_column(self.sheet, column, self.rows)
        });
        for (y, row) in rows {
            let value = column
                .index
                .and_then(|column| self.sheet.value(*row, column));
            let style = match value {
                Some(0.0) | None => self.colours.nothing(),
                Some(value) if self.sheet.is_one_of_many(*row) => colours.style(value),
                Some(_) => Style::new(),
            };
            put_right(buffer, area, *y, &column.texts[*row], style);
            if topdown::is_bar(column) {
                self.colour_bar(Rect::new(area.x, *y, area.width, 1), buffer);
            }
        }
    }

    fn colour_bar(&self, area: Rect, buffer: &mut Buffer) {
        for position in area.positions() {
            let cell = &mut buffer[position];
            if let Some(colour) = topdown::colour(cell.symbol()) {
                cell.set_style(self.colours.bar(colour));
            }
        }
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

/// The number of rows scrolled out above, so that the selected row is visible and no line stays
/// empty.
fn scrolled(chosen: Option<usize>, above: usize, visible: usize, many: usize) -> usize {
    let above = match chosen {
        Some(at) if at < above => at,
        Some(at) if at >= above + visible => (at + 1).saturating_sub(visible),
        _ => above,
    };
    above.min(many.saturating_sub(visible))
}

/// The index of the first visible column: the selected column is visible, and every column on the
/// left that fits is in view.
fn first_column(
    columns: &[SheetColumn],
    chosen: Option<usize>,
    left: usize,
    max_width: u16,
) -> usize {
    let width = |columns: &[SheetColumn]| -> usize {
        let columns = columns.iter();
        columns.map(|column| usize::from(GAP) + column.width).sum()
    };
    let fits = |columns: &[SheetColumn]| width(columns) <= usize::from(max_width);
    let mut places = columns.iter();
    let at = places
        .position(|it| it.index.is_some() && it.index == chosen)
        .unwrap_or(0);
    let least = (0..at)
        .find(|from| fits(&columns[*from..=at]))
        .unwrap_or(at);
    let most = (0..at).find(|from| fits(&columns[*from..])).unwrap_or(at);
    left.clamp(least, most.max(least))
}

/// Writes a text, clipped to the area.
fn put(buffer: &mut Buffer, area: Rect, (x, y): (u16, u16), text: &str, style: Style) {
    if area.contains((x, y).into()) {
        buffer.set_stringn(x, y, text, usize::from(area.right() - x), style);
    }
}

/// Writes a text right-aligned in a column.
fn put_right(buffer: &mut Buffer, column: Rect, y: u16, text: &str, style: Style) {
    let x = column.right().saturating_sub(to_u16(width_of(text)));
    put(buffer, column, (x.max(column.x), y), text, style);
}

/// A coordinate of a terminal, which has 16 bits.
pub(super) fn to_u16(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
