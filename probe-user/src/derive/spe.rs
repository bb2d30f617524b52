//! Sums of samples of memory accesses, and what they say, each with its 95% interval.

use probe_common::spe::{Class, Source};

use super::{
    Estimate, Spread,
    statistics::{self, Interval},
};
use crate::{
    snapshot::SpeCounts,
    window::{Served, SpeUsage},
};

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
    statistics::share(counts.walks, counts.operations, effective(counts))
}

/// A quantile of the total latency.
pub(super) fn quantile(counts: &SpeCounts, q: f64) -> Option<Interval> {
    let n = counts.effective(counts.timed());
    statistics::quantile(&counts.histogram, n, q)
}

/// The mean of the squares of total latencies; 0 of none.
pub(super) fn mean_square(counts: &SpeCounts) -> f64 {
    let timed = counts.timed();
    if timed > 0.0 {
        counts.squares / timed
    } else {
        0.0
    }
}

/// The mean of another latency: its sum over the operations whose total latency is known. Its
/// distribution is not kept, so its error is not known.
pub(super) fn other_latency(cycles: f64, counts: &SpeCounts) -> Option<Estimate> {
    let timed = counts.timed();
    (timed > 0.0).then(|| Estimate::exact(cycles / timed))
}

/// The number of equal samples that have the same error as these weighted ones.
fn effective(counts: &SpeCounts) -> f64 {
    counts.effective(counts.operations)
}

/// The samples of one class, by where they were served.
pub(super) fn parts(
    usage: &SpeUsage,
    class: Class,
) -> impl Iterator<Item = (Served, &SpeCounts)> + Clone {
    let of_class = usage.iter().filter(move |((of, _), _)| *of == class);
    of_class.map(|((_, served), counts)| (*served, counts))
}

/// Of an estimate from samples.
pub(super) fn of_samples(Interval { value, low, high }: Interval) -> Estimate {
    Estimate {
        spread: Spread::Sampled(low, high),
        ..Estimate::exact(value)
    }
}
