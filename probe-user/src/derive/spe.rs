//! What samples of memory accesses say: how many accesses there were, where they were served, and how
//! long they took, each with its 95% interval.

use std::{collections::BTreeMap, time::Duration};

use probe_common::spe::{Class, PageKey, PageRow, Source};

use super::statistics::{self, Estimate};
use crate::{
    join::{Entity, SpeJoined},
    snapshot::{SpeCounts, SpeHealth},
    window::{Served, SpeUsage, SpeWindow},
};

/// Everything that is shown of a window of samples.
#[derive(Clone, Debug)]
pub struct SpeReport {
    /// Time since the session began, at the window's end.
    pub elapsed: Duration,
    /// Length of the window.
    pub length: Duration,
    /// By entity, who accessed most first.
    pub rows: Vec<SpeReportRow<Entity>>,
    /// The whole machine.
    pub total: SpeReportRow<()>,
    /// The most accessed pages of each process.
    pub pages: Vec<Page>,
    /// The programs' account of themselves.
    pub health: SpeHealth,
}

/// What is known of one entity.
#[derive(Clone, Debug)]
pub struct SpeReportRow<L> {
    /// Whom it is about.
    pub label: L,
    /// Loads, stores and what else was sampled.
    pub classes: Vec<Accesses>,
}

/// Operations of one class.
#[derive(Clone, Debug)]
pub struct Accesses {
    /// What they did.
    pub class: Class,
    /// Samples.
    pub samples: u64,
    /// Operations, estimated.
    pub operations: Estimate,
    /// Cycles from dispatch to completion: mean, median, 90th and 99th percentile.
    pub latency: Latency,
    /// Mean cycles from dispatch to issue.
    pub issue: Option<Estimate>,
    /// Mean cycles of address translation; loads and stores only.
    pub translation: Option<Estimate>,
    /// Share that needed a translation table walk; loads and stores only.
    pub walks: Option<Estimate>,
    /// Share served by another socket, of those whose source is known; loads only.
    pub remote: Option<Estimate>,
    /// By where they were served.
    pub sources: Vec<ServedBy>,
}

/// Total latencies, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Mean.
    pub mean: Option<Estimate>,
    /// Median.
    pub p50: Option<Estimate>,
    /// 90th percentile.
    pub p90: Option<Estimate>,
    /// 99th percentile.
    pub p99: Option<Estimate>,
}

/// Operations served by one place.
#[derive(Clone, Debug)]
pub struct ServedBy {
    /// The place.
    pub served: Served,
    /// Samples.
    pub samples: u64,
    /// Operations, estimated.
    pub operations: Estimate,
    /// Their share of the class.
    pub share: Option<Estimate>,
    /// How long they took.
    pub latency: Latency,
}

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Page {
    /// Process id.
    pub tgid: u32,
    /// Address of its first byte.
    pub address: u64,
    /// Samples.
    pub samples: u64,
    /// Mean total latency, in cycles; none of fewer than two samples.
    pub mean: Option<Estimate>,
}

impl SpeReport {
    /// Estimates of a joined window. `began` is the time of the session's first snapshot; of each process
    /// the `pages` most accessed pages are shown.
    #[must_use]
    pub fn new(window: &SpeWindow, joined: &SpeJoined, began: Duration, pages: usize) -> Self {
        let mut rows: Vec<_> = joined
            .rows
            .iter()
            .map(|(entity, usage)| row(entity.clone(), usage))
            .collect();
        rows.sort_by(|a, b| {
            let rank = |row: &SpeReportRow<Entity>| super::rank(&row.label);
            rank(a).cmp(&rank(b)).then(all(b).total_cmp(&all(a)))
        });
        Self {
            elapsed: (window.start + window.length).saturating_sub(began),
            length: window.length,
            rows,
            total: row((), &joined.total),
            pages: hottest(&window.pages, pages),
            health: window.health.clone(),
        }
    }
}

fn all(row: &SpeReportRow<Entity>) -> f64 {
    row.classes.iter().map(|class| class.operations.value).sum()
}

pub(super) fn row<L>(label: L, usage: &SpeUsage) -> SpeReportRow<L> {
    let classes = Class::ALL.iter().filter_map(|&class| {
        let of_class: Vec<(Served, &SpeCounts)> = usage
            .iter()
            .filter(|((of, _), counts)| *of == class && counts.row.samples > 0)
            .map(|((_, served), counts)| (*served, counts))
            .collect();
        (!of_class.is_empty()).then(|| accesses(class, &of_class))
    });
    SpeReportRow {
        label,
        classes: classes.collect(),
    }
}

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
pub(super) fn share(part: &SpeCounts, whole: &SpeCounts) -> Option<Estimate> {
    statistics::share(part.operations, whole.operations, effective(whole))
}

/// The share of operations with a translation table walk.
pub(super) fn walks(counts: &SpeCounts) -> Option<Estimate> {
    ratio(counts.row.walks, counts.row.samples)
}

/// The mean total latency.
pub(super) fn mean_latency(counts: &SpeCounts) -> Option<Estimate> {
    statistics::mean(counts.row.total, timed(counts))
}

/// The mean of the squares of total latencies; 0 of none.
#[expect(clippy::cast_precision_loss, reason = "sums of a window, below 2^53")]
pub(super) fn mean_square(counts: &SpeCounts) -> f64 {
    counts.row.total.squares as f64 / timed(counts).max(1) as f64
}

/// The samples with a total latency.
fn timed(counts: &SpeCounts) -> u64 {
    counts.row.histogram.iter().sum()
}

fn accesses(class: Class, parts: &[(Served, &SpeCounts)]) -> Accesses {
    let of = |wanted: &dyn Fn(Served) -> bool| sum(parts.iter().copied(), wanted);
    let sum = of(&|_| true);
    let memory = matches!(class, Class::Load | Class::Store);
    let timed = timed(&sum);
    Accesses {
        class,
        samples: sum.row.samples,
        operations: statistics::count(sum.operations, sum.variance),
        latency: latency(&sum),
        issue: statistics::mean(sum.row.issue, timed),
        translation: statistics::mean(sum.row.translation, timed).filter(|_| memory),
        walks: walks(&sum).filter(|_| memory),
        remote: share(&of(&by(REMOTE)), &of(&known)),
        sources: parts
            .iter()
            .map(|(served, counts)| ServedBy {
                served: *served,
                samples: counts.row.samples,
                operations: statistics::count(counts.operations, counts.variance),
                share: share(counts, &sum),
                latency: latency(counts),
            })
            .collect(),
    }
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
fn ratio(part: u64, whole: u64) -> Option<Estimate> {
    statistics::share(part as f64, whole as f64, whole as f64)
}

fn latency(counts: &SpeCounts) -> Latency {
    let histogram = &counts.row.histogram;
    Latency {
        mean: mean_latency(counts),
        p50: statistics::quantile(histogram, 0.5),
        p90: statistics::quantile(histogram, 0.9),
        p99: statistics::quantile(histogram, 0.99),
    }
}

fn hottest(pages: &[(PageKey, PageRow)], shown: usize) -> Vec<Page> {
    let mut processes: BTreeMap<u64, Vec<&(PageKey, PageRow)>> = BTreeMap::new();
    for page in pages {
        processes.entry(page.0.tgid).or_default().push(page);
    }
    let size = rustix::param::page_size() as u64;
    let of_process = processes.into_values().flat_map(|mut pages| {
        pages.sort_by_key(|(key, row)| (std::cmp::Reverse(row.samples), key.page));
        pages.into_iter().take(shown).map(|(key, row)| Page {
            tgid: u32::try_from(key.tgid).unwrap_or_default(),
            address: key.page.wrapping_mul(size),
            samples: row.samples,
            mean: statistics::mean(row.total, row.timed),
        })
    });
    of_process.collect()
}

/// The place as a metric label.
#[must_use]
pub fn served_name(served: Served) -> String {
    match served {
        Served::Number(number) => format!("source_{number:#x}"),
        Served::NotSaid => "not_said".to_owned(),
        Served::By(source) => source.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(samples: u32, cycles: u64, walks: u64) -> SpeCounts {
        let mut counts = SpeCounts::default();
        counts.row.samples = u64::from(samples);
        counts.row.walks = walks;
        counts.row.total.cycles = cycles * u64::from(samples);
        counts.row.total.squares = cycles * cycles * u64::from(samples);
        let bucket = usize::try_from(cycles.ilog2()).unwrap();
        counts.row.histogram[bucket] = u64::from(samples);
        counts.operations = 1000.0 * f64::from(samples);
        counts.variance = 1e6 * f64::from(samples);
        counts
    }

    fn usage() -> SpeUsage {
        [
            ((Class::Load, Served::By(Source::L1d)), counts(90, 4, 0)),
            (
                (Class::Load, Served::By(Source::Remote)),
                counts(10, 600, 5),
            ),
            ((Class::Store, Served::NotSaid), counts(20, 8, 2)),
        ]
        .into()
    }

    #[test]
    fn loads_and_stores_are_estimated_apart() {
        let row = row((), &usage());
        let [load, store] = row.classes.as_slice() else {
            panic!("{row:?}")
        };
        assert_eq!((load.class, load.samples), (Class::Load, 100));
        assert!((load.operations.value - 1e5).abs() < 1e-6);
        assert!(load.operations.low < 1e5 && load.operations.high > 1e5);
        assert!((load.latency.mean.unwrap().value - 63.6).abs() < 1e-9);
        assert!((load.walks.unwrap().value - 0.05).abs() < 1e-12);
        assert!((load.remote.unwrap().value - 0.1).abs() < 1e-12);
        assert!((load.sources[0].share.unwrap().value - 0.9).abs() < 1e-12);
        // Of stores nobody says where they were served.
        assert_eq!(store.remote, None);
        assert_eq!(served_name(store.sources[0].served), "not_said");
    }

    #[test]
    fn of_each_process_the_hottest_pages() {
        let page = |tgid, page, samples| {
            // Latencies of 9 and 11 in turn; of the last sample it is not known.
            let words = [
                samples,
                samples - 1,
                10 * (samples - 1),
                101 * (samples - 1),
                1,
            ];
            (PageKey { page, tgid }, PageRow::from_words(&words))
        };
        let pages = [page(1, 5, 3), page(1, 6, 9), page(1, 7, 4), page(2, 5, 1)];
        let hot = hottest(&pages, 2);
        let shown: Vec<_> = hot.iter().map(|page| (page.tgid, page.samples)).collect();
        assert_eq!(shown, [(1, 9), (1, 4), (2, 1)]);
        // Eight of them: t(7) = 2.365, standard deviation 1.069.
        let mean = hot[0].mean.unwrap();
        assert!((mean.value - 10.0).abs() < 1e-12, "{mean:?}");
        assert!((mean.high - 10.894).abs() < 0.01, "{mean:?}");
        assert_eq!(hot[2].mean, None);
        assert_eq!(hottest(&pages, 0), []);
    }
}
