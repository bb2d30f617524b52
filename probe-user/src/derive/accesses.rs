//! Values from samples of memory accesses: number, data sources and latencies, each with its 95%
//! interval.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use probe_common::spe::{Class, LATENCY_BUCKETS};

use super::{
    Attributes, CounterSource, CounterValue, Estimate, Histogram, MetricInfo, MetricKind, Reason,
    Report, Series, Spread, Value, ValueMethod, latency,
    spe::{self, REMOTE, sampled_estimate},
    statistics::{self, ConfidenceInterval},
};
use crate::{
    formula::NoValue,
    snapshot::SampleCounts,
    window::{EventWindow, Gained, MemLevel, RunningTime, SampleUsage, SampleWindow, float},
};

/// The metric shown if the number of operations is unknown.
const SAMPLES: &str = "chosen_access_samples";

/// The metric of the number of accesses that the samples represent.
pub(crate) const ACCESSES: &str = "memory_accesses";

/// The metric of the mean latency of sampled accesses.
pub(crate) const MEAN_LATENCY: &str = "memory_access_latency_mean_cycles";

/// The metrics of sampled accesses: their indices in a report.
pub(super) struct AccessMetrics {
    /// The sampler of each class.
    samplers: BTreeMap<Class, Arc<str>>,
    /// Classes whose number of operations is unknown: the core chose which of them it timed.
    tagged: BTreeSet<Class>,
    /// Whether samples of this window may be missing, since the kernel may have stopped a counter.
    limited: bool,
    /// Whether samples of the totals may be missing.
    ever_limited: bool,
    /// The time of the event with the lowest running ratio, if any event is multiplexed.
    time: Option<RunningTime>,
    /// The longest latency that a sample can hold, in cycles.
    max_latency: f64,
    operations: u32,
    /// Used instead of `operations` if the number of operations is unknown.
    samples: Option<u32>,
    /// Mean, median, 90th and 99th percentile.
    latency: [u32; 4],
    /// Mean issue and translation latency, which only SPE records.
    stage_latencies: Option<[u32; 2]>,
    walks: u32,
    remote: u32,
    share: u32,
    histogram: u32,
}

impl AccessMetrics {
    /// `samples`: None if no accesses are sampled.
    pub(super) fn new(report: &mut Report, samples: Option<&SampleWindow>) -> Self {
        let by_events = samples.is_some_and(|samples| samples.spe.is_none());
        let events = || samples.into_iter().flat_map(SampleWindow::access_events);
        let mut metric = |name: &str, unit: &str, kind, help: &str| {
            report.add_metric(MetricInfo {
                name: name.to_owned(),
                help: help.to_owned(),
                unit: unit.to_owned(),
                kind,
                counting: match kind {
                    MetricKind::Counter if name != SAMPLES => CounterSource::Samples,
                    _ => CounterSource::All,
                },
            })
        };
        let cycles = "cycles";
        let stages = [
            (
                "memory_access_issue_latency_mean_cycles",
                "Mean cycles from dispatch to issue",
            ),
            (
                "memory_access_translation_latency_mean_cycles",
                "Mean cycles of address translation",
            ),
        ];
        let sampler = |class| Some((class, samples?.sampler(class).into()));
        Self {
            samplers: Class::ALL.into_iter().filter_map(sampler).collect(),
            tagged: samples.map_or_else(BTreeSet::new, SampleWindow::tagged),
            limited: events().any(|event| event.gained.limited),
            ever_limited: events().any(|event| event.ever_limited),
            time: events()
                .filter_map(EventWindow::multiplexed_time)
                .min_by(|a, b| a.running_ratio().total_cmp(&b.running_ratio())),
            max_latency: samples.map_or(u16::MAX.into(), SampleWindow::max_latency),
            operations: metric(
                ACCESSES,
                "",
                MetricKind::Counter,
                "Operations that the samples stand for",
            ),
            samples: by_events.then(|| {
                let help = "Samples of operations whose number is not known";
                metric(SAMPLES, "", MetricKind::Counter, help)
            }),
            latency: [
                (MEAN_LATENCY, "Mean cycles from dispatch to completion"),
                (
                    "memory_access_latency_p50_cycles",
                    "Median of the cycles from dispatch to completion",
                ),
                (
                    "memory_access_latency_p90_cycles",
                    "90th percentile of the cycles from dispatch to completion",
                ),
                (
                    "memory_access_latency_p99_cycles",
                    "99th percentile of the cycles from dispatch to completion",
                ),
            ]
            .map(|(name, help)| metric(name, cycles, MetricKind::Gauge, help)),
            stage_latencies: (!by_events)
                .then(|| stages.map(|(name, help)| metric(name, cycles, MetricKind::Gauge, help))),
            walks: metric(
                "memory_access_tlb_walk_share",
                "1",
                MetricKind::Gauge,
                "Share that needed a translation table walk",
            ),
            remote: metric(
                "memory_access_remote_share",
                "1",
                MetricKind::Gauge,
                "Share served by another socket, of those whose source is known",
            ),
            share: metric(
                "memory_access_source_share",
                "1",
                MetricKind::Gauge,
                "Share of the operations of the class that were served there",
            ),
            histogram: metric(
                "memory_access_latency_cycles",
                cycles,
                MetricKind::Histogram,
                "Operations that the samples stand for, by cycles from dispatch to completion",
            ),
        }
    }

    /// Adds the accesses of one row, by operation and then by memory level. `machine_total`: all
    /// accesses of the machine since sampling began.
    pub(super) fn add_row(
        &self,
        report: &mut Report,
        subject: u32,
        row: &Gained<SampleUsage>,
        machine_total: &SampleUsage,
    ) {
        let none = SampleCounts::default();
        for class in Class::ALL {
            let (deltas, totals) = (
                spe::by_level(&row.delta, class),
                spe::by_level(&row.total, class),
            );
            let sampled = totals.iter().filter(|(_, total)| total.samples > 0);
            let levels: Vec<(MemLevel, &SampleCounts, &SampleCounts)> = sampled
                .map(|(served, total)| (*served, deltas.get(served).unwrap_or(&none), total))
                .collect();
            if levels.is_empty() {
                continue;
            }
            let deltas = || levels.iter().map(|(served, delta, _)| (*served, *delta));
            let all = spe::sum(deltas(), |_| true);
            let total = spe::sum(
                levels.iter().map(|(served, _, total)| (*served, *total)),
                |_| true,
            );
            let mut add = self.adder(report, subject, class, None);
            self.add_counts(&mut add, &all, &total, row.since);
            if let Some([issue, _]) = self.stage_latencies {
                add.estimate(issue, spe::other_latency(all.issue, &all));
            }
            if matches!(class, Class::Load | Class::Store) {
                if let Some([_, translation]) = self.stage_latencies {
                    let latency = spe::other_latency(all.translation, &all);
                    add.estimate(translation, latency);
                }
                // SPE reports page walks; sampled events of some cores never do. A count of 0 by
                // events is trusted only if an access of the machine walked the page table.
                let reports_walks = self.stage_latencies.is_some()
                    || spe::samples_of_class(machine_total, class).any(|(_, all)| all.walks > 0.0);
                if reports_walks {
                    add.gauge(self.walks, spe::walk_share(&all));
                }
            }
            let remote = spe::sum(deltas(), spe::served_by(REMOTE));
            if let Some(remote) = spe::share(&remote, &spe::sum(deltas(), spe::is_source_known)) {
                add.gauge(self.remote, Some(remote));
            }
            for (served, delta, total) in &levels {
                let mut add = self.adder(report, subject, class, Some(*served));
                self.add_counts(&mut add, delta, total, row.since);
                add.gauge(self.share, spe::share(delta, &all));
            }
        }
    }

    fn adder<'r>(
        &self,
        report: &'r mut Report,
        subject: u32,
        operation: Class,
        source: Option<MemLevel>,
    ) -> SeriesAdder<'r> {
        let attributes = report.add_attributes(Attributes {
            method: ValueMethod::Sampled,
            sampler: self.samplers.get(&operation).cloned(),
            operation: Some(operation),
            source,
            ..Attributes::default()
        });
        SeriesAdder {
            report,
            subject,
            class: operation,
            attributes,
            limited: self.limited,
            time: self.time,
        }
    }

    fn add_counts(
        &self,
        add: &mut SeriesAdder<'_>,
        delta: &SampleCounts,
        total: &SampleCounts,
        since: Duration,
    ) {
        let is_number_known = !self.tagged.contains(&add.class);
        if is_number_known {
            let mut value = operation_counter(delta, add.report.start);
            value.estimate = add.as_sampled(value.estimate);
            value.time = add.time;
            let mut total = operation_counter(total, since);
            if self.ever_limited {
                total.estimate.spread = Spread::None;
            }
            add.push(self.operations, Ok(Value::Counter(value)), Some(total));
        } else {
            let why = Reason::NoValue(NoValue::ChosenByCore);
            add.push(self.operations, Err(why), None);
            if let Some(samples) = self.samples {
                let value = Value::Counter(sample_counter(delta, add.report.start));
                add.push(samples, Ok(value), Some(sample_counter(total, since)));
            }
        }
        let mean = latency::mean(delta, self.max_latency);
        let quantile = |q| spe::quantile(delta, q);
        let latency = [mean, quantile(0.5), quantile(0.9), quantile(0.99)];
        for (metric, value) in self.latency.into_iter().zip(latency) {
            add.gauge(metric, value);
        }
        if is_number_known {
            let histogram = Value::Histogram(Box::new(latency_histogram(total, since)));
            add.push(self.histogram, Ok(histogram), None);
        }
    }
}

/// Adds series of one subject and kind of access.
struct SeriesAdder<'a> {
    report: &'a mut Report,
    subject: u32,
    class: Class,
    attributes: u32,
    /// Whether samples may be missing for a part of the time.
    limited: bool,
    time: Option<RunningTime>,
}

impl SeriesAdder<'_> {
    /// The estimate with the running ratio of sampling; without an interval if samples may be
    /// missing.
    fn as_sampled(&self, estimate: Estimate) -> Estimate {
        Estimate {
            running_ratio: self
                .time
                .map_or(estimate.running_ratio, RunningTime::running_ratio),
            spread: match self.limited {
                true => Spread::None,
                false => estimate.spread,
            },
            ..estimate
        }
    }

    fn push(&mut self, metric: u32, value: Result<Value, Reason>, total: Option<CounterValue>) {
        let ids = [self.subject, metric, self.attributes];
        self.report.push(ids, value, total);
    }

    /// Adds a gauge; None means too few samples.
    fn gauge(&mut self, metric: u32, value: Option<ConfidenceInterval>) {
        self.estimate(metric, value.map(sampled_estimate));
    }

    fn estimate(&mut self, metric: u32, value: Option<Estimate>) {
        let value = value
            .map(|value| Value::Gauge(self.as_sampled(value)))
            .ok_or(Reason::NoValue(NoValue::TooFewSamples));
        self.push(metric, value, None);
    }
}

/// The number of operations, estimated from samples.
fn operation_counter(counts: &SampleCounts, start: Duration) -> CounterValue {
    CounterValue {
        start,
        raw: counts.samples,
        estimate: sampled_estimate(statistics::count(counts.operations, counts.variance)),
        time: None,
    }
}

/// The number of samples.
fn sample_counter(counts: &SampleCounts, start: Duration) -> CounterValue {
    CounterValue {
        start,
        raw: counts.samples,
        estimate: Estimate::exact(float(counts.samples)),
        time: None,
    }
}

/// Latencies, since `start`, of the operations that samples represent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates of operations, rounded"
)]
fn latency_histogram(counts: &SampleCounts, start: Duration) -> Histogram {
    let bounds = (0..LATENCY_BUCKETS - 1).map(|bucket| statistics::bucket_ends(bucket).1);
    Histogram {
        start,
        bounds: bounds.collect(),
        counts: counts.histogram.map(|weight| weight.round() as u64).into(),
        sum: counts.cycles,
        powers: None,
    }
}

/// The counter whose raw count is the number of samples, among the series of one kind of access. It
/// counts operations, or samples if the number of operations is unknown.
#[must_use]
pub fn find_sample_counter(series: &[Series]) -> Option<&CounterValue> {
    series.iter().find_map(Series::counter)
}

/// The memory level as a metric label.
#[must_use]
pub fn mem_level_name(served: MemLevel) -> String {
    match served {
        MemLevel::Number(number) => format!("source_{number:#x}"),
        MemLevel::Unknown => "not_said".to_owned(),
        MemLevel::By(source) => source.name().to_owned(),
    }
}

#[cfg(test)]
mod tests;
