//! Sums of samples of memory accesses, and what they say, each with its 95% interval.

use probe_common::spe::Source;

use super::{
    Estimate,
    statistics::{self, Interval},
};
use crate::{snapshot::SpeCounts, window::Served};

/// What another socket served.
pub(super) const REMOTE: &[Source] = &[Source::Remote, Source::RemoteDram];

/// The samples of those places that are wanted.
pub(super) fn sum<'a>(
    parts: impl IntoIterator<Item = (Served, &'a SpeCounts)>,
    wanted: impl Fn(Served) -> bool,
) -> SpeCounts {
    let mut sum = SpeCounts::default();
    for (served, counts) in parts {
        if wanted(served) {
            sum.add(counts);
        }
    }
    sum
}

/// Whether the core's table says where it was served.
pub(super) fn known(served: Served) -> bool {
    matches!(served, Served::By(_))
}

/// Whether it was served by one of these.
pub(super) fn by(sources: &'static [Source]) -> impl Fn(Served) -> bool {
    move |served| matches!(served, Served::By(source) if sources.contains(&source))
}

/// The share of the operations of `whole` that `part` of its samples stands for.
pub(super) fn share(part: &SpeCounts, whole: &SpeCounts) -> Option<Interval> {
    statistics::share(part.operations, whole.operations, effective(whole))
}

/// The share of operations with a translation table walk.
pub(super) fn walks(counts: &SpeCounts) -> Option<Interval> {
    ratio(counts.row.walks, counts.row.samples)
}

/// The mean total latency.
pub(super) fn mean_latency(counts: &SpeCounts) -> Option<Interval> {
    statistics::mean(counts.row.total, timed(counts))
}

/// The mean of the squares of total latencies; 0 of none.
#[expect(clippy::cast_precision_loss, reason = "sums of a window, below 2^53")]
pub(super) fn mean_square(counts: &SpeCounts) -> f64 {
    counts.row.total.squares as f64 / timed(counts).max(1) as f64
}

/// The samples with a total latency.
pub(super) fn timed(counts: &SpeCounts) -> u64 {
    counts.row.histogram.iter().sum()
}

/// The number of equal samples that have the same error as these weighted ones.
fn effective(counts: &SpeCounts) -> f64 {
    if counts.variance > 0.0 {
        counts.operations * counts.operations / counts.variance
    } else {
        0.0
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "samples of a window, below 2^53"
)]
fn ratio(part: u64, whole: u64) -> Option<Interval> {
    statistics::share(part as f64, whole as f64, whole as f64)
}

/// Of an estimate from samples.
pub(super) fn of_samples(Interval { value, low, high }: Interval) -> Estimate {
    Estimate {
        interval: Some((low, high)),
        ..Estimate::exact(value)
    }
}
