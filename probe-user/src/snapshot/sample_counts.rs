//! Counts of samples, and the number of operations that they stand for.

use probe_common::{
    sample::SampleRow,
    spe::{LATENCY_BUCKETS, SpeRow},
};
use serde::{Deserialize, Serialize};

use super::GrowingRow;

/// Samples of one row, and the number of operations that they stand for: each sample counts by its
/// weight. The weight of an SPE sample is the current period plus the mean of its jitter, times the
/// ratio of written to decoded bytes of its CPU. The weight of an event's sample is the event's
/// count since the last sample, scaled if the event was multiplexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// Raw number of samples.
    pub samples: u64,
    /// Number of operations that the samples stand for: the sum of the weights.
    pub operations: f64,
    /// Sum of the squared weights: the variance of `operations`.
    pub variance: f64,
    /// Operations that needed a translation table walk.
    pub walks: f64,
    /// Cycles of all operations from dispatch to completion.
    pub cycles: f64,
    /// Sum of the squares of the operations' latencies in cycles.
    pub squares: f64,
    /// Cycles from dispatch to issue; only SPE has them.
    pub issue: f64,
    /// Cycles of address translation; only SPE has them.
    pub translation: f64,
    /// Operations by total latency; operations of unknown latency are in no bucket.
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

    /// The samples of an event's row since its value was `before`. They stand for the sum of their
    /// periods times `factor`. Their latencies are the kernel's sample weights.
    #[expect(clippy::cast_precision_loss, reason = "samples between two readings")]
    pub(crate) fn from_periods(before: &SampleRow, now: &SampleRow, factor: f64) -> Self {
        let samples = now.samples.saturating_sub(before.samples);
        if samples == 0 {
            return Self::default();
        }
        let periods = now.periods.wrapping_sub(before.periods);
        let events = periods as f64 * factor;
        let weight = events / samples as f64;
        let high = now.squares_high.wrapping_sub(before.squares_high);
        let squares = (u128::from(high) << 64)
            .wrapping_add(u128::from(now.squares))
            .wrapping_sub(u128::from(before.squares));
        let gained = |now: u64, before: u64| now.wrapping_sub(before) as f64 * weight;
        let buckets =
            |at: usize| f64::from(now.histogram[at].wrapping_sub(before.histogram[at])) * weight;
        Self {
            samples,
            operations: events,
            // Equal periods have the least variance. The sum of the squares may be less, since
            // periods are clamped before they are squared.
            variance: (squares as f64 * factor * factor).max(events * weight),
            walks: gained(now.walks, before.walks),
            cycles: gained(now.weight.cycles, before.weight.cycles),
            squares: gained(now.weight.squares, before.weight.squares),
            histogram: std::array::from_fn(buckets),
            ..Self::default()
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
        for (sum, count) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += count;
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

    /// The program's histogram wraps. A row that went back adds nothing.
    #[test]
    fn a_histogram_may_wrap_and_a_row_may_go_back() {
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

    #[test]
    fn samples_stand_for_their_periods_times_the_factor() {
        let mut before = SampleRow::ZERO;
        before.add(1000);
        let mut now = before;
        now.add(1000);
        now.add(3000);
        now.weight.add(20);
        now.histogram[9] += 1;
        let counts = SampleCounts::from_periods(&before, &now, 2.0);
        assert_eq!(counts.samples, 2);
        assert_eq!((counts.operations, counts.variance), (8000.0, 4e7));
        // Two samples stand for 8000 operations: each latency counts 4000 times.
        assert_eq!((counts.cycles, counts.histogram[9]), (80_000.0, 4000.0));
        assert_eq!(
            SampleCounts::from_periods(&now, &now, 2.0),
            SampleCounts::default()
        );
    }
}
