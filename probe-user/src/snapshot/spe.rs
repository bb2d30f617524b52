//! What SPE sampled, and what became of everything that it wrote.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use probe_common::{
    CgroupId, Field as _,
    spe::{BadKind, PageKey, PageRow, SourceTable, SpeCpu, SpeKey, SpeRow, Unattributed},
};

/// Rows of owners that are none of the machine's cgroups.
pub const UNATTRIBUTED: CgroupId = SpeKey::UNATTRIBUTED;

/// How the program is attached to the end of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeHook {
    /// fentry.
    Fentry,
    /// A kprobe: it is left out while its CPU is in a bpf(2) call that reads or changes a map. What
    /// it missed is read later (`spe_late_bytes`), or counted as lost (`spe_missed_bytes`).
    Kprobe,
}

/// Samples of one row, and what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
#[derive(Clone, Debug)]
pub struct SpeReading {
    /// By owner, CPU and data source. Rows of owners that ended are freed one pull later.
    pub rows: HashMap<SpeKey, SpeCounts>,
    /// Rows that were freed since the last snapshot, as they were at their end. A key may be there
    /// more than once, and in `rows` too: [`SpeCounts::made`] tells rows apart.
    pub freed: Vec<(SpeKey, SpeCounts)>,
    /// Pages by process; empty where none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Data-source tables by CPU.
    pub tables: Arc<HashMap<u32, SourceTable>>,
    /// What the programs say of themselves.
    pub health: SpeHealth,
}

/// The programs' account of themselves since the session began.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub sampler: BTreeMap<&'static str, u64>,
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
    /// Names and values of all counts, as metrics.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, u64)> {
        let sum = &self.sum;
        let mut counts: Vec<(String, u64)> = [
            ("period", self.period),
            ("aux_bytes", self.aux_size as u64),
            ("rows", self.rows as u64),
            ("chunks", sum.chunks),
            ("cells", sum.cells),
            ("records", sum.records),
            ("padding", sum.padding),
            ("skipped_records", sum.skipped),
            ("invalid_records", sum.invalid),
            ("overflowed_records", sum.overflowed),
            ("missed_bytes", sum.missed_bytes),
            ("late_bytes", sum.late_bytes),
            ("unlogged_chunks", self.unlogged),
            ("aux_buffers_truncated", sum.truncated),
            ("aux_buffers_partial", sum.partial),
            ("aux_buffers_with_collision", sum.collided),
            ("unreadable_chunks", sum.unreadable),
            ("decode_ns", sum.nanos),
            ("irq_off_ns_max", self.longest),
            ("unknown_threads", sum.unknown_threads),
            ("lost_exits", sum.lost_exits),
            ("unpaged_records", sum.unpaged),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
        let decoded = sum.cells.saturating_sub(sum.skipped);
        let per_record = |nanos: u64| nanos.checked_div(decoded);
        let costs = [
            ("ns_per_record", per_record(sum.nanos)),
            (
                "ns_per_record_by_bpf_stats",
                self.bpf_stats.and_then(per_record),
            ),
        ];
        let costs = costs.into_iter();
        counts.extend(costs.filter_map(|(name, nanos)| Some((name.to_owned(), nanos?))));
        let sampler = self.sampler.iter();
        counts.extend(sampler.map(|(name, count)| ((*name).to_owned(), *count)));
        counts.extend(
            BadKind::ALL
                .iter()
                .zip(sum.bad)
                .map(|(kind, n)| (format!("bad_records_{}", kind.name()), n)),
        );
        counts.extend(
            Unattributed::ALL
                .iter()
                .zip(sum.unattributed)
                .map(|(reason, n)| (format!("unattributed_{}", reason.name()), n)),
        );
        counts
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
