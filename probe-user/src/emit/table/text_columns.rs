//! Texts in columns: the lines of every table.

use std::iter;

use super::{columns::GAP, text::width};

/// The lines of a table: its heading, if it has one, and its rows. `is_right` chooses the columns
/// to align right, such as numbers.
#[must_use]
pub fn table_lines(
    heads: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    is_right: impl Fn(usize) -> bool,
) -> Vec<String> {
    let heads: Vec<String> = heads.iter().copied().map(str::to_owned).collect();
    let all = iter::once(heads).chain(rows);
    let rows: Vec<Vec<String>> = all.filter(|row| !row.is_empty()).collect();
    let mut columns = TextColumns::new(is_right);
    for row in &rows {
        columns.measure(row);
    }
    rows.iter()
        .map(|row| columns.line(row.iter().map(String::as_str)))
        .collect()
}

/// Alignment and widths of columns.
pub(crate) struct TextColumns<F> {
    pub(super) is_right: F,
    pub(super) widths: Vec<usize>,
}

impl<F: Fn(usize) -> bool> TextColumns<F> {
    pub(crate) fn new(is_right: F) -> Self {
        Self {
            is_right,
            widths: Vec::new(),
        }
    }

    /// Widens each column to its text in a row, and to at least one character.
    pub(crate) fn measure(&mut self, row: &[String]) {
        self.widths.resize(row.len(), 1);
        for (widest, text) in self.widths.iter_mut().zip(row) {
            *widest = width(text).max(*widest);
        }
    }

    pub(super) fn line<'a>(&self, row: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        self.draw(&mut line, row);
        line
    }

    /// Replaces `line` by the line of a row, which starts with a space and does not end with one.
    pub(crate) fn draw<'a>(&self, line: &mut String, row: impl Iterator<Item = &'a str>) {
        line.clear();
        let mut before = 1;
        for (at, (text, column)) in row.zip(&self.widths).enumerate() {
            let rest = column.saturating_sub(width(text));
            let padding = if (self.is_right)(at) { rest } else { 0 };
            pad(line, before + padding);
            line.push_str(text);
            before = GAP + rest - padding;
        }
        line.truncate(line.trim_end().len());
    }
}

/// Adds spaces, many at a time.
fn pad(line: &mut String, count: usize) {
    const SPACES: &str = "                                ";
    line.push_str(&SPACES.repeat(count / SPACES.len()));
    line.push_str(&SPACES[..count % SPACES.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_texts() {
        let row = ["", "a", "10", ""].map(str::to_owned).to_vec();
        let lines = table_lines(&["", "名", "n", "note"], iter::once(row), |at| at == 2);
        assert_eq!(lines, ["    名   n  note", "    a   10"]);
    }
}
