//! Samples of SPE, and the accounting of everything that it wrote.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use probe_common::{
    CgroupId,
    spe::{
        LATENCY_BUCKETS, LineKey, LineRow, PageKey, PageRow, SourceTable, SpeCpu, SpeKey, SpeRow,
    },
};
use serde::{Deserialize, Serialize};

use super::{GrowingRow, MapMemory, pairs};

/// Owner of samples without a known cgroup.
pub const UNATTRIBUTED: CgroupId = SpeKey::UNATTRIBUTED;

/// The hook of the program at the end of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpeHook {
    /// fentry.
    Fentry,
    /// A kprobe: the kernel skips it while its CPU is in a bpf(2) call that reads or changes a map.
    /// Missed chunks are read later (`spe_late_bytes`), or counted as lost (`spe_missed_bytes`).
    Kprobe,
}

/// Samples of one row, and the number of operations that they stand for. The weight of a sample of
/// SPE is the current period, times the ratio of written to decoded bytes of its CPU; that of a
/// sample of an event is what the event counted since the last sample, scaled if the event was
/// multiplexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// Raw number of samples.
    pub samples: u64,
    /// Operations that they stand for: the sum of the weights.
    pub operations: f64,
    /// Sum of the squared weights: the variance of `operations`.
    pub variance: f64,
    /// Operations that needed a translation table walk.
    pub walks: f64,
    /// Cycles of all operations from dispatch to completion.
    pub cycles: f64,
    /// Sum of the squares of these latencies.
    pub squares: f64,
    /// Cycles from dispatch to issue; only SPE has them.
    pub issue: f64,
    /// Cycles of address translation; only SPE has them.
    pub translation: f64,
    /// Operations by total latency; operations without it are in no bucket.
    pub histogram: [f64; LATENCY_BUCKETS],
    /// Generation: number of the reading that first found the row. It distinguishes the row from a
    /// freed row of the same key. 0 for sums.
    pub made: u64,
}

impl SampleCounts {
    /// The samples of a row since its value was `before`, each with this weight.
    #[expect(clippy::cast_precision_loss, reason = "samples between two readings")]
    pub(crate) fn between(before: &SpeRow, now: &SpeRow, weight: f64) -> Self {
        let samples = now.samples.saturating_sub(before.samples);
        if samples == 0 {
            return Self::default();
        }
        let gained = |now: u64, before: u64| now.saturating_sub(before) as f64 * weight;
        let buckets = |at: usize| {
            let count = now.histogram[at].wrapping_sub(before.histogram[at]);
            f64::from(count) * weight
        };
        Self {
            samples,
            operations: samples as f64 * weight,
            variance: samples as f64 * weight * weight,
            walks: gained(now.walks, before.walks),
            cycles: gained(now.total.cycles, before.total.cycles),
            squares: gained(now.total.squares, before.total.squares),
            issue: gained(now.issue, before.issue),
            translation: gained(now.translation, before.translation),
            histogram: std::array::from_fn(buckets),
            made: 0,
        }
    }

    /// Adds the counts of another row.
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples = self.samples.wrapping_add(other.samples);
        self.operations += other.operations;
        self.variance += other.variance;
        self.walks += other.walks;
        self.cycles += other.cycles;
        self.squares += other.squares;
        self.issue += other.issue;
        self.translation += other.translation;
        for (sum, more) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += more;
        }
    }

    /// Number of operations with a known total latency.
    pub(crate) fn timed(&self) -> f64 {
        self.histogram.iter().sum()
    }

    /// Effective sample size of `operations` (Kish).
    pub(crate) fn effective(&self, operations: f64) -> f64 {
        if self.variance > 0.0 {
            operations * self.operations / self.variance
        } else {
            0.0
        }
    }
}

impl GrowingRow for SampleCounts {
    fn generation(&self) -> u64 {
        self.made
    }

    fn growth(&self, earlier: &Self) -> Self {
        let gained = |now: f64, before: f64| (now - before).max(0.0);
        Self {
            samples: self.samples.saturating_sub(earlier.samples),
            operations: gained(self.operations, earlier.operations),
            variance: gained(self.variance, earlier.variance),
            walks: gained(self.walks, earlier.walks),
            cycles: gained(self.cycles, earlier.cycles),
            squares: gained(self.squares, earlier.squares),
            issue: gained(self.issue, earlier.issue),
            translation: gained(self.translation, earlier.translation),
            histogram: std::array::from_fn(|at| gained(self.histogram[at], earlier.histogram[at])),
            made: 0,
        }
    }
}

/// All samples of SPE since the session began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeReading {
    /// By owner, CPU and data source. Rows of ended owners are freed one pull later.
    #[serde(with = "pairs")]
    pub rows: HashMap<SpeKey, SampleCounts>,
    /// Rows freed since the last snapshot, with their last values. A key may occur more than once,
    /// and in `rows` too: [`SampleCounts::made`] distinguishes the rows.
    pub freed: Vec<(SpeKey, SampleCounts)>,
    /// Pages by process; empty if none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Cache lines by owner and CPU; empty if none are kept.
    #[serde(default)]
    pub lines: Vec<(LineKey, LineRow)>,
    /// Data-source tables by CPU.
    pub tables: Arc<BTreeMap<u32, SourceTable>>,
    /// The programs' accounting.
    pub health: SpeHealth,
}

/// The programs' accounting since the session began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeHealth {
    /// The hook in use.
    pub hook: SpeHook,
    /// Current sampling period, in operations.
    pub period: u64,
    /// Maximum latency of a record, in cycles: longer latencies saturate at it.
    #[serde(default = "sixteen_bits")]
    pub max_latency: u16,
    /// Accounting of everything that was written, on all CPUs; `event`, `next`, `longest` and
    /// `switches` have no meaning here.
    pub sum: SpeCpu,
    /// Longest time that a chunk took, in ns.
    pub longest: u64,
    /// Rows in the map.
    pub rows: usize,
    /// Rows freed because they had no new samples and the map was nearly full; their counts are
    /// kept.
    #[serde(default)]
    pub freed_idle: u64,
    /// Kernel memory of the maps of samples, without threads: a thread takes 128 bytes.
    #[serde(default)]
    pub memory: MapMemory,
    /// The cores' own counts of their sampling, if they have them: operations, samples taken, kept,
    /// and dropped because of a collision; since the CPUs' events were opened.
    pub sampler: BTreeMap<String, u64>,
    /// Bytes of each CPU's AUX buffer.
    pub aux_size: usize,
    /// Chunks of unknown size: the kernel's log was full, which can happen only with the kprobe
    /// hook.
    pub unlogged: u64,
    /// Nanoseconds in the program at the end of chunks as measured by the kernel; None if
    /// `kernel.bpf_stats_enabled` is or was off.
    pub bpf_stats: Option<u64>,
}

/// Default for recordings without the field.
const fn sixteen_bits() -> u16 {
    u16::MAX
}

impl SpeHealth {
    /// Nanoseconds per decoded record, given the nanoseconds for all of them.
    pub(crate) fn per_record(&self, nanos: u64) -> Option<u64> {
        nanos.checked_div(self.sum.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u16) -> SpeRow {
        let mut row = SpeRow {
            samples: n.into(),
            walks: n.into(),
            issue: n.into(),
            translation: n.into(),
            ..SpeRow::ZERO
        };
        (row.total.cycles, row.total.squares) = (n.into(), n.into());
        row.histogram = [n.into(); _];
        row
    }

    #[test]
    fn sums_keep_every_field() {
        let counts = |n| SampleCounts::between(&SpeRow::ZERO, &row(n), 1.0);
        let mut sum = counts(1);
        sum.add(&counts(2));
        assert_eq!(sum, counts(3));
        assert_eq!(sum.growth(&counts(1)), counts(2));
    }

    /// The weight of a sample applies to all of its numbers: a mean of weighted counts and
    /// unweighted latencies would be wrong for both.
    #[test]
    fn every_number_of_a_sample_has_its_weight() {
        let mut all = SampleCounts::between(&SpeRow::ZERO, &row(1), 1000.0);
        all.add(&SampleCounts::between(&row(1), &row(2), 3000.0));
        let expected = 4000.0;
        let weighted = [
            all.operations,
            all.walks,
            all.cycles,
            all.squares,
            all.issue,
            all.translation,
        ];
        assert_eq!(weighted, [expected; 6]);
        assert_eq!(all.histogram, [expected; _]);
        assert_eq!((all.samples, all.variance), (2, 1e6 + 9e6));
    }

    /// The kernel's histogram wraps; a row that went back adds nothing.
    #[test]
    fn a_histogram_that_wrapped_is_read_on() {
        let mut before = row(5);
        before.histogram[3] = u32::MAX;
        let mut now = row(7);
        now.histogram[3] = 1;
        assert_eq!(SampleCounts::between(&before, &now, 1.0).histogram[3], 2.0);
        assert_eq!(
            SampleCounts::between(&now, &before, 1.0),
            SampleCounts::default()
        );
    }
}
