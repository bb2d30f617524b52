//! The selection in a sheet: a row, a column and the sort order. Rows and columns are known by
//! name, since each window may have others.

use std::cmp::Ordering;

use crate::emit::Sheet;

/// The selection in a sheet.
#[derive(Clone, Debug, Default)]
pub(super) struct SheetSelection {
    /// None: the first row.
    row: Option<Vec<String>>,
    /// None: the first column.
    column: Option<String>,
    /// Sort column and order; None: the order of the report.
    sorted: Option<(String, SortOrder)>,
    /// Rows scrolled out above.
    pub(super) above: usize,
    /// Columns scrolled out on the left.
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
    /// Rows that stay in view, below the others.
    pub(super) pinned: Vec<usize>,
}

impl OrderedRows {
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.many.iter().chain(&self.pinned).copied()
    }
}

impl SheetSelection {
    /// The rows with `filter` in a label, sorted.
    pub(super) fn rows(&self, sheet: &Sheet, filter: &str) -> OrderedRows {
        let filter = filter.to_lowercase();
        let has = |row: &usize| {
            let mut labels = sheet.labels(*row).iter();
            filter.is_empty() || labels.any(|label| label.to_lowercase().contains(&filter))
        };
        let (mut many, mut pinned): (Vec<usize>, Vec<usize>) =
            (0..sheet.rows()).partition(|row| sheet.is_one_of_many(*row));
        if many.is_empty() {
            std::mem::swap(&mut many, &mut pinned);
        }
        many.retain(has);
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

    /// Sort column and order, if the sheet has that column.
    pub(super) fn sorted(&self, sheet: &Sheet) -> Option<(usize, SortOrder)> {
        let (name, order) = self.sorted.as_ref()?;
        Some((sheet.column_index(name)?, *order))
    }

    /// The selected row.
    pub(super) fn row(&self, sheet: &Sheet, rows: &OrderedRows) -> Option<usize> {
        let chosen = self.row.as_ref();
        let known = chosen.and_then(|labels| rows.all().find(|row| sheet.labels(*row) == labels));
        known.or_else(|| rows.all().next())
    }

    /// The selected column.
    pub(super) fn column(&self, sheet: &Sheet) -> Option<usize> {
        let known = self
            .column
            .as_ref()
            .and_then(|name| sheet.column_index(name));
        known.or_else(|| sheet.used().first().copied())
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

    /// Moves the selection right by `by` columns; left if negative.
    pub(super) fn move_column(&mut self, sheet: &Sheet, by: isize) {
        let used = sheet.used();
        let column = self.column(sheet);
        let at = used.iter().position(|it| Some(*it) == column).unwrap_or(0);
        let to = at
            .saturating_add_signed(by)
            .min(used.len().saturating_sub(1));
        self.column = used.get(to).map(|column| sheet.column(*column).to_owned());
    }

    /// Sorts by the selected column: largest first, then smallest first, then unsorted.
    pub(super) fn sort(&mut self, sheet: &Sheet) {
        let Some(column) = self.column(sheet) else {
            return;
        };
        let next = match self.sorted(sheet) {
            Some((by, SortOrder::LargestFirst)) if by == column => Some(SortOrder::SmallestFirst),
            Some((by, SortOrder::SmallestFirst)) if by == column => None,
            _ => Some(SortOrder::LargestFirst),
        };
        self.sorted = next.map(|order| (sheet.column(column).to_owned(), order));
        self.above = 0;
    }
}
