//! Sums of samples of memory accesses, and estimates from them, each with its 95% interval.

use std::collections::BTreeMap;

use probe_common::spe::{Class, Source};

use super::{
    Estimate, Spread,
    statistics::{self, ConfidenceInterval},
};
use crate::{
    snapshot::SampleCounts,
    window::{MemLevel, SampleUsage},
};

/// Sources on another socket.
pub(super) const REMOTE: &[Source] = &[Source::Remote, Source::RemoteDram];

/// The sum of the samples with a wanted memory level.
pub(super) fn sum<'a>(
    parts: impl IntoIterator<Item = (MemLevel, &'a SampleCounts)>,
    wanted: impl Fn(MemLevel) -> bool,
) -> SampleCounts {
    let mut sum = SampleCounts::default();
    for (served, counts) in parts {
        if wanted(served) {
            sum.add(counts);
        }
    }
    sum
}

/// Whether the core's table of data sources names the memory level.
pub(super) fn is_source_known(served: MemLevel) -> bool {
    matches!(served, MemLevel::By(_))
}

/// The condition that one of these sources served the access.
pub(super) fn served_by(sources: &'static [Source]) -> impl Fn(MemLevel) -> bool {
    move |served| matches!(served, MemLevel::By(source) if sources.contains(&source))
}

/// The share of the operations of `whole` that `part` represents.
pub(super) fn share(part: &SampleCounts, whole: &SampleCounts) -> Option<ConfidenceInterval> {
    statistics::share(part.operations, whole.operations, effective(whole))
}

/// The share of operations with a page-table walk.
pub(super) fn walk_share(counts: &SampleCounts) -> Option<ConfidenceInterval> {
    statistics::share(counts.walks, counts.operations, effective(counts))
}

/// A quantile of total latency.
pub(super) fn quantile(counts: &SampleCounts, q: f64) -> Option<ConfidenceInterval> {
    let n = counts.effective(counts.timed());
    statistics::quantile(&counts.histogram, statistics::bucket_ends, n, q)
}

/// The mean square of total latency; 0 without samples.
pub(super) fn mean_square(counts: &SampleCounts) -> f64 {
    let timed = counts.timed();
    if timed > 0.0 {
        counts.squares / timed
    } else {
        0.0
    }
}

/// The mean of a latency other than the total one, whose sum is `cycles`. It is over the operations
/// with a total latency. The distribution is not kept, so the error is unknown.
pub(super) fn other_latency(cycles: f64, counts: &SampleCounts) -> Option<Estimate> {
    let timed = counts.timed();
    (timed > 0.0).then(|| Estimate::exact(cycles / timed))
}

/// Effective sample size of the operations (Kish).
fn effective(counts: &SampleCounts) -> f64 {
    counts.effective(counts.operations)
}

/// The samples of one class: an item for each sampler and memory level.
pub(super) fn samples_of_class(
    usage: &SampleUsage,
    class: Class,
) -> impl Iterator<Item = (MemLevel, &SampleCounts)> + Clone {
    usage.iter().filter_map(move |(kind, counts)| {
        let (own_class, served) = kind.access?;
        (own_class == class).then_some((served, counts))
    })
}

/// The sums of the samples of one class by memory level.
pub(super) fn by_level(usage: &SampleUsage, class: Class) -> BTreeMap<MemLevel, SampleCounts> {
    let mut sums: BTreeMap<MemLevel, SampleCounts> = BTreeMap::new();
    for (served, counts) in samples_of_class(usage, class) {
        sums.entry(served).or_default().add(counts);
    }
    sums
}

/// The estimate whose error is this interval.
pub(super) fn sampled_estimate(
    ConfidenceInterval { value, low, high }: ConfidenceInterval,
) -> Estimate {
    Estimate {
        spread: Spread::Sampled(low, high),
        ..Estimate::exact(value)
    }
}
