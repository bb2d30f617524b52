//! What samples of memory accesses say: how many accesses there were, where they were served, and
//! how long they took, each with its 95% interval.

use std::collections::BTreeMap;

use probe_common::spe::{Class, LATENCY_BUCKETS, PageKey, PageRow, Source};

use super::{
    Attributes, Cell, Counter, Estimate, Histogram, Kind, Metric, Reason, Report, Table, Value,
    statistics::{self, Interval},
};
use crate::{
    formula::NoValue,
    join::Gained,
    snapshot::SpeCounts,
    window::{Served, SpeUsage},
};

/// The metrics of sampled accesses: their indices in a report.
pub(super) struct Accesses {
    operations: u32,
    latency: [u32; 4],
    issue: u32,
    translation: u32,
    walks: u32,
    remote: u32,
    share: u32,
    histogram: u32,
}

impl Accesses {
    pub(super) fn new(report: &mut Report) -> Self {
        let mut metric = |name: &str, unit: &str, kind, help: &str| {
            report.add_metric(Metric {
                name: name.to_owned(),
                help: help.to_owned(),
                unit: unit.to_owned(),
                kind,
                event: false,
            })
        };
        let cycles = "cycles";
        Self {
            operations: metric(
                "spe_operations",
                "",
                Kind::Counter,
                "Operations that the samples stand for",
            ),
            latency: [
                (
                    "spe_latency_mean_cycles",
                    "Mean cycles from dispatch to completion",
                ),
                (
                    "spe_latency_p50_cycles",
                    "Median of the cycles from dispatch to completion",
                ),
                (
                    "spe_latency_p90_cycles",
                    "90th percentile of the cycles from dispatch to completion",
                ),
                (
                    "spe_latency_p99_cycles",
                    "99th percentile of the cycles from dispatch to completion",
                ),
            ]
            .map(|(name, help)| metric(name, cycles, Kind::Gauge, help)),
            issue: metric(
                "spe_issue_latency_mean_cycles",
                cycles,
                Kind::Gauge,
                "Mean cycles from dispatch to issue",
            ),
            translation: metric(
                "spe_translation_latency_mean_cycles",
                cycles,
                Kind::Gauge,
                "Mean cycles of address translation",
            ),
            walks: metric(
                "spe_tlb_walk_share",
                "1",
                Kind::Gauge,
                "Share that needed a translation table walk",
            ),
            remote: metric(
                "spe_remote_share",
                "1",
                Kind::Gauge,
                "Share served by another socket, of those whose source is known",
            ),
            share: metric(
                "spe_source_share",
                "1",
                Kind::Gauge,
                "Share of the operations of the class that were served there",
            ),
            histogram: metric(
                "spe_latency_cycles",
                cycles,
                Kind::Histogram,
                "Samples by their cycles from dispatch to completion",
            ),
        }
    }

    /// The accesses of one row: by what they did, and then by where they were served.
    pub(super) fn add_row(&self, report: &mut Report, subject: u32, row: &Gained<SpeUsage>) {
        let none = SpeCounts::default();
        for class in Class::ALL {
            let of_class = row
                .total
                .iter()
                .filter(|((of, _), total)| *of == class && total.row.samples > 0);
            let parts: Vec<(Served, &SpeCounts, &SpeCounts)> = of_class
                .map(|(kind, total)| (kind.1, row.delta.get(kind).unwrap_or(&none), total))
                .collect();
            if parts.is_empty() {
                continue;
            }
            let deltas = || parts.iter().map(|(served, delta, _)| (*served, *delta));
            let all = sum(deltas(), |_| true);
            let total = sum(
                parts.iter().map(|(served, _, total)| (*served, *total)),
                |_| true,
            );
            let mut add = Adding {
                report,
                subject,
                attributes: Attributes {
                    operation: Some(class),
                    ..Attributes::default()
                },
            };
            self.add_counts(&mut add, &all, &total);
            let timed = timed(&all);
            add.gauge(self.issue, statistics::mean(all.row.issue, timed));
            if matches!(class, Class::Load | Class::Store) {
                let translation = statistics::mean(all.row.translation, timed);
                add.gauge(self.translation, translation);
                add.gauge(self.walks, walks(&all));
            }
            if let Some(remote) = share(&sum(deltas(), by(REMOTE)), &sum(deltas(), known)) {
                add.gauge(self.remote, Some(remote));
            }
            for (served, delta, total) in &parts {
                add.attributes.source = Some(*served);
                self.add_counts(&mut add, delta, total);
                add.gauge(self.share, share(delta, &all));
            }
        }
    }

    fn add_counts(&self, add: &mut Adding<'_>, delta: &SpeCounts, total: &SpeCounts) {
        let counter = Counter {
            raw: delta.row.samples,
            estimate: of_samples(statistics::count(delta.operations, delta.variance)),
        };
        let value = Value::Counter(counter);
        add.push(self.operations, Ok(value), Some(total.operations));
        let buckets = &delta.row.histogram;
        let quantile = |q| statistics::quantile(buckets, q);
        let latency = [
            mean_latency(delta),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
        ];
        for (metric, value) in self.latency.into_iter().zip(latency) {
            add.gauge(metric, value);
        }
        let histogram = Value::Histogram(Box::new(histogram(total)));
        add.push(self.histogram, Ok(histogram), None);
    }
}

/// Series of one subject that are being added.
struct Adding<'a> {
    report: &'a mut Report,
    subject: u32,
    attributes: Attributes,
}

impl Adding<'_> {
    fn push(&mut self, metric: u32, value: Result<Value, Reason>, total: Option<f64>) {
        let attributes = self.report.add_attributes(self.attributes.clone());
        self.report
            .push([self.subject, metric, attributes], value, total);
    }

    /// Of too few samples there is none.
    fn gauge(&mut self, metric: u32, value: Option<Interval>) {
        let value = value.map(|value| Value::Gauge(of_samples(value)));
        self.push(
            metric,
            value.ok_or(Reason::NoValue(NoValue::TooFewSamples)),
            None,
        );
    }
}

fn of_samples(Interval { value, low, high }: Interval) -> Estimate {
    Estimate {
        interval: Some((low, high)),
        ..Estimate::exact(value)
    }
}

/// The total latencies of samples.
#[expect(clippy::cast_precision_loss, reason = "cycles of samples, below 2^53")]
fn histogram(counts: &SpeCounts) -> Histogram {
    let bounds = (0..LATENCY_BUCKETS - 1).map(|bucket| statistics::ends(bucket).1);
    Histogram {
        bounds: bounds.collect(),
        counts: counts.row.histogram.to_vec(),
        sum: counts.row.total.cycles as f64,
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
fn timed(counts: &SpeCounts) -> u64 {
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

/// The most accessed pages of each process.
pub(super) fn hot_pages(pages: &[(PageKey, PageRow)], shown: usize) -> Table {
    let row = |page: Page| {
        vec![
            Cell::Number(page.tgid.into()),
            Cell::Address(page.address),
            Cell::Number(page.samples),
            Cell::Estimate(page.mean.map(of_samples)),
        ]
    };
    Table {
        name: "pages",
        columns: vec!["pid", "address", "spe_samples", "spe_latency_mean_cycles"],
        rows: hottest(pages, shown).into_iter().map(row).collect(),
    }
}

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Page {
    tgid: u32,
    /// Of its first byte.
    address: u64,
    samples: u64,
    /// Total latency, in cycles; none of fewer than two samples.
    mean: Option<Interval>,
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
    use std::time::Duration;

    use super::*;
    use crate::derive::Subject;

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
        let mut report = Report::empty(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let accesses = Accesses::new(&mut report);
        let subject = report.subject(Subject::Machine);
        let row = Gained {
            delta: usage(),
            total: usage(),
        };
        accesses.add_row(&mut report, subject, &row);
        let value = |metric: &str, operation, source| {
            let mut series = report.of(&Subject::Machine, metric);
            let found = series.find(|series| {
                let attributes = report.attributes(series);
                (attributes.operation, attributes.source) == (Some(operation), source)
            });
            found.cloned()
        };
        let number = |metric, source| {
            let series = value(metric, Class::Load, source).unwrap();
            series.estimate().unwrap().value
        };
        let operations = value("spe_operations", Class::Load, None).unwrap();
        assert_eq!(operations.total, Some(1e5));
        let operations = *operations.counter().unwrap();
        assert_eq!(operations.raw, 100);
        assert!((operations.estimate.value - 1e5).abs() < 1e-6);
        let (low, high) = operations.estimate.interval.unwrap();
        assert!(low < 1e5 && high > 1e5);
        assert!((number("spe_latency_mean_cycles", None) - 63.6).abs() < 1e-9);
        assert!((number("spe_tlb_walk_share", None) - 0.05).abs() < 1e-12);
        assert!((number("spe_remote_share", None) - 0.1).abs() < 1e-12);
        let l1d = Some(Served::By(Source::L1d));
        assert!((number("spe_source_share", l1d) - 0.9).abs() < 1e-12);
        // Of stores nobody says where they were served.
        assert_eq!(value("spe_remote_share", Class::Store, None), None);
        let not_said = Some(Served::NotSaid);
        assert!(value("spe_operations", Class::Store, not_said).is_some());
        assert_eq!(served_name(Served::NotSaid), "not_said");
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
