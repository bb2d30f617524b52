//! Level 1 of top-down as one stacked bar per row, before the columns of its shares.

use ratatui::style::Color;

use crate::emit::{Sheet, SheetColumn};

/// The shares in the order of the bar and of `-M group:topdown`, each with its letter and colour.
/// Only some cores have the last share.
const SHARES: [(&str, char, Color); 5] = [
    ("retiring", 'R', Color::Green),
    ("frontend_bound", 'F', Color::Yellow),
    ("backend_bound", 'B', Color::Red),
    ("bad_speculation", 'S', Color::Magenta),
    ("smt_contention", 'T', Color::Blue),
];
/// The number of shares, from the first one on, that a bar needs.
const REQUIRED: usize = 4;

/// Cells of the whole bar: one for each 5%.
const CELLS: usize = 20;
const PERCENT_OF_CELL: f64 = 5.0;

const NAME: &str = "topdown";

/// These columns as drawn, with the bar if its first [`REQUIRED`] shares are among them.
pub(super) fn with_bar(sheet: &Sheet, columns: &[usize]) -> Vec<SheetColumn> {
    let mut drawn = sheet.drawn(columns);
    let index = |(name, ..): &(&str, char, Color)| {
        let index = sheet.column_index(name);
        index.filter(|index| columns.contains(index))
    };
    let shares = SHARES.each_ref().map(index);
    if shares[..REQUIRED].contains(&None) {
        return drawn;
    }
    let is_share = |column: &SheetColumn| column.index.is_some() && shares.contains(&column.index);
    let first = drawn.iter().position(is_share).unwrap_or(0);
    let bar = SheetColumn {
        index: None,
        name: vec![NAME.to_owned()],
        under: Vec::new(),
        texts: (0..sheet.rows())
            .map(|row| bar(sheet, row, &shares).unwrap_or_default())
            .collect(),
        width: CELLS,
    };
    drawn.insert(first, bar);
    drawn
}

/// Whether a column is the bar.
pub(super) fn is_bar(column: &SheetColumn) -> bool {
    column.index.is_none() && column.name == [NAME]
}

/// The colour of a cell of the bar.
pub(super) fn colour(cell: &str) -> Option<Color> {
    let mut shares = SHARES.iter();
    let share = shares.find(|(_, letter, _)| cell.starts_with(*letter));
    share.map(|(.., colour)| *colour)
}

/// The bar of a row; `None` if one of the first [`REQUIRED`] shares has no value.
fn bar(sheet: &Sheet, row: usize, shares: &[Option<usize>]) -> Option<String> {
    let (mut bar, mut end) = (String::new(), 0.0);
    for (at, ((_, letter, _), column)) in SHARES.iter().zip(shares).enumerate() {
        let value = column.and_then(|column| sheet.value(row, column));
        if at < REQUIRED {
            value?;
        }
        // Rounding the ends and not the shares keeps the bar's length.
        end += value.unwrap_or(0.0).max(0.0) / PERCENT_OF_CELL;
        while bar.len() < CELLS && has_cell(bar.len(), end) {
            bar.push(*letter);
        }
    }
    Some(format!("{bar:<CELLS$}"))
}

/// Whether at least half of a cell is before the end.
#[expect(clippy::cast_precision_loss, reason = "a bar has few cells")]
fn has_cell(cell: usize, end: f64) -> bool {
    end >= cell as f64 + 0.5
}
