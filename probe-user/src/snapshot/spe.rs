//! What SPE sampled, and what became of everything that it wrote.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use probe_common::{
    CgroupId, Field as _,
    spe::{PageKey, PageRow, SourceTable, SpeCpu, SpeKey, SpeRow},
};
use serde::{Deserialize, Serialize};

use super::pairs;

/// Rows of owners that are none of the machine's cgroups.
pub const UNATTRIBUTED: CgroupId = SpeKey::UNATTRIBUTED;

/// How the program is attached to the end of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpeHook {
    /// fentry.
    Fentry,
    /// A kprobe: it is left out while its CPU is in a bpf(2) call that reads or changes a map. What
    /// it missed is read later (`spe_late_bytes`), or counted as lost (`spe_missed_bytes`).
    Kprobe,
}

/// Samples of one row, and what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpeCounts {
    /// As counted.
    pub row: SpeRow,
    /// Operations that the samples stand for: each counts as the period that was in force, times
    /// the cells that its CPU wrote for each that was decoded.
    pub operations: f64,
    /// Sum of the squares of those weights: the variance of `operations`.
    pub variance: f64,
    /// Number of the reading that found the row first: tells it from one of the same key that was
    /// freed before. 0 for sums.
    pub made: u64,
}

impl SpeCounts {
    /// Adds those of another row. Counts wrap at 2^64.
    pub(crate) fn add(&mut self, other: &Self) {
        self.row.add(&other.row);
        self.operations += other.operations;
        self.variance += other.variance;
    }
}

/// Everything that SPE sampled since the session began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeReading {
    /// By owner, CPU and data source. Rows of owners that ended are freed one pull later.
    #[serde(with = "pairs")]
    pub rows: HashMap<SpeKey, SpeCounts>,
    /// Rows that were freed since the last snapshot, as they were at their end. A key may be there
    /// more than once, and in `rows` too: [`SpeCounts::made`] tells rows apart.
    pub freed: Vec<(SpeKey, SpeCounts)>,
    /// Pages by process; empty where none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Data-source tables by CPU.
    pub tables: Arc<BTreeMap<u32, SourceTable>>,
    /// What the programs say of themselves.
    pub health: SpeHealth,
}

/// The programs' account of themselves since the session began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeHealth {
    /// The hook in use.
    pub hook: SpeHook,
    /// Period in force, in operations.
    pub period: u64,
    /// What became of everything that was written, all CPUs; `event`, `next`, `longest` and
    /// `switches` mean nothing.
    pub sum: SpeCpu,
    /// Longest time that a chunk took, in ns.
    pub longest: u64,
    /// Rows in the map.
    pub rows: usize,
    /// What the cores count of their sampling, where they do: operations, samples taken, kept, and
    /// dropped because one was in flight; since the CPUs' events were opened.
    pub sampler: BTreeMap<String, u64>,
    /// Bytes of each CPU's AUX buffer.
    pub aux_size: usize,
    /// Chunks of a size that nobody knows: the kernel's log had no room for them, which can be only
    /// where the hook is a kprobe.
    pub unlogged: u64,
    /// Nanoseconds in the program at the end of chunks as the kernel itself measured; None where
    /// `kernel.bpf_stats_enabled` is or was off.
    pub bpf_stats: Option<u64>,
}

impl SpeHealth {
    /// What each decoded record took, of the nanoseconds for all of them.
    pub(crate) fn per_record(&self, nanos: u64) -> Option<u64> {
        nanos.checked_div(self.sum.cells.saturating_sub(self.sum.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_every_field() {
        let counts = |n: u16| {
            let mut row = SpeRow {
                samples: n.into(),
                ..SpeRow::ZERO
            };
            row.walks = u64::from(n);
            for sum in [&mut row.total, &mut row.issue, &mut row.translation] {
                (sum.cycles, sum.squares) = (n.into(), n.into());
            }
            row.histogram = [n.into(); _];
            SpeCounts {
                row,
                operations: n.into(),
                variance: n.into(),
                made: 0,
            }
        };
        let mut sum = counts(1);
        sum.add(&counts(2));
        assert_eq!(sum, counts(3));
    }
}
