//! The growth of rows between two readings ([`GrowingRow`]).

use probe_common::{
    Field as _, UsageRow,
    spe::{LineRow, PageRow},
};

/// A row whose numbers only grow until it is freed.
pub(crate) trait GrowingRow: Copy + Default {
    /// Distinguishes rows of one key: a row that was created later has a larger number.
    fn generation(&self) -> u64;

    /// Each number minus its value in an earlier reading of the same row; 0 if it shrank.
    fn growth(&self, earlier: &Self) -> Self;

    /// The growth since an earlier reading of the key. A row that was freed and created again
    /// counts as a whole.
    fn since(&self, earlier: Option<&Self>) -> Self {
        let same = earlier.filter(|earlier| earlier.generation() == self.generation());
        self.growth(&same.copied().unwrap_or_default())
    }
}

/// Implements [`GrowingRow`] for rows that consist of numbers only.
macro_rules! growing_rows {
    ($($row:ty),*) => {$(
        impl GrowingRow for $row {
            fn generation(&self) -> u64 {
                self.made
            }

            fn growth(&self, earlier: &Self) -> Self {
                Self {
                    made: 0,
                    ..self.minus(earlier)
                }
            }
        }
    )*};
}

growing_rows!(UsageRow, PageRow);

/// The masks `read` and `written` are not subtracted: they cover the time since the row was added
/// to the table.
impl GrowingRow for LineRow {
    fn generation(&self) -> u64 {
        self.made
    }

    fn growth(&self, earlier: &Self) -> Self {
        Self {
            read: self.read,
            written: self.written,
            made: 0,
            ..self.minus(earlier)
        }
    }
}
