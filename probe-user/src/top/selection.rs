//! The selection in a sheet: a row, a column, the sort order and the visible columns. Rows and
//! columns are identified by name, since each window may have other ones.

use std::{cmp::Ordering, collections::BTreeMap};

use crate::emit::Sheet;

/// The columns that come first, if the sheet has them. Rows are sorted by `cpus_used` until the
/// user sorts by another column.
const FIRST_COLUMNS: [&str; 2] = ["cpus_used", "memory_used"];

/// The selection in a sheet.
#[derive(Clone, Debug, Default)]
pub(super) struct SheetSelection {
    /// None: the first row.
    row: Option<Vec<String>>,
    /// None: the first column.
    column: Option<String>,
    /// Sort column and order; None: by `cpus_used`, or as in the report if the sheet lacks it.
    sorted: Option<(String, SortOrder)>,
    /// Columns that are visible or hidden by the user's choice.
    visible: BTreeMap<String, bool>,
    /// Number of rows scrolled out above.
    pub(super) above: usize,
    /// Number of columns scrolled out on the left.
    pub(super) left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortOrder {
    LargestFirst,
    SmallestFirst,
}

/// Rows in display order.
pub(super) struct OrderedRows {
    /// Rows that scroll.
    pub(super) many: Vec<usize>,
    /// Rows that stay in view, below those that scroll.
    pub(super) pinned: Vec<usize>,
}

impl OrderedRows {
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.many.iter().chain(&self.pinned).copied()
    }
}

impl SheetSelection {
    /// The rows with `filter` in a label, sorted. Pinned rows are neither filtered nor sorted. If
    /// all rows are pinned, they scroll instead.
    pub(super) fn rows(&self, sheet: &Sheet, filter: &str) -> OrderedRows {
        let filter = filter.to_lowercase();
        let matches_filter = |row: &usize| {
            let mut labels = sheet.labels(*row).iter();
            filter.is_empty() || labels.any(|label| label.to_lowercase().contains(&filter))
        };
        let (mut many, mut pinned): (Vec<usize>, Vec<usize>) =
            (0..sheet.rows()).partition(|row| sheet.is_one_of_many(*row));
        if many.is_empty() {
            std::mem::swap(&mut many, &mut pinned);
        }
        many.retain(matches_filter);
        if let Some((column, order)) = self.sorted(sheet) {
            let value = |row: usize| sheet.value(row, column);
            many.sort_by(|a, b| match (value(*a), value(*b)) {
                (Some(a), Some(b)) if order == SortOrder::LargestFirst => b.total_cmp(&a),
                (Some(a), Some(b)) => a.total_cmp(&b),
                // Rows without a value come last in either order.
                (a, b) => match (a.is_some(), b.is_some()) {
                    (true, false) => Ordering::Less,
                    (false, true) => Ordering::Greater,
                    _ => Ordering::Equal,
                },
            });
        }
        OrderedRows { many, pinned }
    }

    /// Sort column and order. None if the rows are in the order of the report.
    pub(super) fn sorted(&self, sheet: &Sheet) -> Option<(usize, SortOrder)> {
        let chosen = self.sorted.as_ref();
        let chosen = chosen.and_then(|(name, order)| Some((sheet.column_index(name)?, *order)));
        let first = || sheet.column_index(FIRST_COLUMNS[0]);
        chosen.or_else(|| Some((first()?, SortOrder::LargestFirst)))
    }

    /// The columns with a value to show, visible or not, in display order.
    pub(super) fn all_columns(sheet: &Sheet) -> Vec<usize> {
        let rank = |column: &usize| {
            let name = sheet.column(*column);
            let mut first = FIRST_COLUMNS.iter();
            first
                .position(|it| *it == name)
                .unwrap_or(FIRST_COLUMNS.len())
        };
        let mut columns = sheet.used();
        columns.sort_by_key(rank);
        columns
    }

    /// Whether a column is visible. `hidden`: the columns hidden until the user shows them.
    pub(super) fn is_visible(&self, name: &str, hidden: &[&str]) -> bool {
        let chosen = self.visible.get(name).copied();
        chosen.unwrap_or_else(|| !hidden.contains(&name))
    }

    /// The visible columns, in display order.
    pub(super) fn columns(&self, sheet: &Sheet, hidden: &[&str]) -> Vec<usize> {
        let mut columns = Self::all_columns(sheet);
        columns.retain(|column| self.is_visible(sheet.column(*column), hidden));
        columns
    }

    /// Shows a hidden column, or hides a visible one.
    pub(super) fn toggle_column(&mut self, name: &str, hidden: &[&str]) {
        let is_visible = self.is_visible(name, hidden);
        self.visible.insert(name.to_owned(), !is_visible);
    }

    /// The selected row.
    pub(super) fn row(&self, sheet: &Sheet, rows: &OrderedRows) -> Option<usize> {
        let chosen = self.row.as_ref();
        let known = chosen.and_then(|labels| rows.all().find(|row| sheet.labels(*row) == labels));
        known.or_else(|| rows.all().next())
    }

    /// The selected column, of those that are visible.
    pub(super) fn column(&self, sheet: &Sheet, columns: &[usize]) -> Option<usize> {
        let chosen = self.column.as_deref();
        let mut all = columns.iter().copied();
        let known = all.find(|column| Some(sheet.column(*column)) == chosen);
        known.or_else(|| columns.first().copied())
    }

    /// Moves the selection down by `by` rows; up if negative.
    pub(super) fn move_row(&mut self, sheet: &Sheet, rows: &OrderedRows, by: isize) {
        let all: Vec<usize> = rows.all().collect();
        let row = self.row(sheet, rows);
        let at = all.iter().position(|it| Some(*it) == row).unwrap_or(0);
        let to = at
            .saturating_add_signed(by)
            .min(all.len().saturating_sub(1));
        self.row = all.get(to).map(|row| sheet.labels(*row).to_vec());
    }

    /// Moves the selection right by `by` of the visible columns; left if negative.
    pub(super) fn move_column(&mut self, sheet: &Sheet, columns: &[usize], by: isize) {
        let column = self.column(sheet, columns);
        let mut all = columns.iter();
        let at = all.position(|it| Some(*it) == column).unwrap_or(0);
        let last = columns.len().saturating_sub(1);
        let to = at.saturating_add_signed(by).min(last);
        self.column = columns
            .get(to)
            .map(|column| sheet.column(*column).to_owned());
    }

    /// Sorts by the selected column: largest first, or smallest first if it was largest first.
    pub(super) fn sort(&mut self, sheet: &Sheet, columns: &[usize]) {
        let Some(column) = self.column(sheet, columns) else {
            return;
        };
        let order = match self.sorted(sheet) {
            Some((by, SortOrder::LargestFirst)) if by == column => SortOrder::SmallestFirst,
            _ => SortOrder::LargestFirst,
        };
        self.sorted = Some((sheet.column(column).to_owned(), order));
        self.above = 0;
    }
}
