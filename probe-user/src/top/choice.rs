//! What is chosen in a sheet: a row, a column, and the order of rows. Rows and columns are known by
//! their names, since every window may have others.

use std::cmp::Ordering;

use crate::emit::Sheet;

/// What is chosen in a sheet.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// None: the first one in view.
    row: Option<Vec<String>>,
    /// None: the first one.
    column: Option<String>,
    /// By which column rows are sorted; None: as the report has them.
    sorted: Option<(String, Order)>,
    /// How many rows are above the view.
    pub(super) above: usize,
    /// How many columns are left of the view.
    pub(super) left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    LargestFirst,
    SmallestFirst,
}

/// Rows in their order.
pub(super) struct Rows {
    /// One of many each.
    pub(super) many: Vec<usize>,
    /// Always in view, below the others.
    pub(super) pinned: Vec<usize>,
}

impl Rows {
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.many.iter().chain(&self.pinned).copied()
    }
}

impl Choice {
    /// The rows with `filter` in a label, sorted.
    pub(super) fn rows(&self, sheet: &Sheet, filter: &str) -> Rows {
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
                (Some(a), Some(b)) if order == Order::LargestFirst => b.total_cmp(&a),
                (Some(a), Some(b)) => a.total_cmp(&b),
                // Those without a value are the last in any order.
                (a, b) => match (a.is_some(), b.is_some()) {
                    (true, false) => Ordering::Less,
                    (false, true) => Ordering::Greater,
                    _ => Ordering::Equal,
                },
            });
        }
        Rows { many, pinned }
    }

    /// By which column rows are sorted, where the sheet has it.
    pub(super) fn sorted(&self, sheet: &Sheet) -> Option<(usize, Order)> {
        let (name, order) = self.sorted.as_ref()?;
        Some((sheet.column_of(name)?, *order))
    }

    /// The chosen row.
    pub(super) fn row(&self, sheet: &Sheet, rows: &Rows) -> Option<usize> {
        let chosen = self.row.as_ref();
        let known = chosen.and_then(|labels| rows.all().find(|row| sheet.labels(*row) == labels));
        known.or_else(|| rows.all().next())
    }

    /// The chosen column.
    pub(super) fn column(&self, sheet: &Sheet) -> Option<usize> {
        let known = self.column.as_ref().and_then(|name| sheet.column_of(name));
        known.or_else(|| sheet.used().first().copied())
    }

    /// Moves to a row so many below, or above.
    pub(super) fn move_row(&mut self, sheet: &Sheet, rows: &Rows, by: isize) {
        let all: Vec<usize> = rows.all().collect();
        let row = self.row(sheet, rows);
        let at = all.iter().position(|it| Some(*it) == row).unwrap_or(0);
        let to = at
            .saturating_add_signed(by)
            .min(all.len().saturating_sub(1));
        self.row = all.get(to).map(|row| sheet.labels(*row).to_vec());
    }

    /// Moves to a column so many to the right, or to the left.
    pub(super) fn move_column(&mut self, sheet: &Sheet, by: isize) {
        let used = sheet.used();
        let column = self.column(sheet);
        let at = used.iter().position(|it| Some(*it) == column).unwrap_or(0);
        let to = at
            .saturating_add_signed(by)
            .min(used.len().saturating_sub(1));
        self.column = used.get(to).map(|column| sheet.column(*column).to_owned());
    }

    /// Sorts by the chosen column; in the other order where that is so already, and then no more.
    pub(super) fn sort(&mut self, sheet: &Sheet) {
        let Some(column) = self.column(sheet) else {
            return;
        };
        let next = match self.sorted(sheet) {
            Some((by, Order::LargestFirst)) if by == column => Some(Order::SmallestFirst),
            Some((by, Order::SmallestFirst)) if by == column => None,
            _ => Some(Order::LargestFirst),
        };
        self.sorted = next.map(|order| (sheet.column(column).to_owned(), order));
        self.above = 0;
    }
}
