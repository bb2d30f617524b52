//! Values from samples of memory accesses: their number, data sources and latencies, each with its
//! 95% interval.

use std::time::Duration;

use probe_common::spe::{Class, LATENCY_BUCKETS};

use super::{
    Attributes, Counter, Counting, Estimate, Histogram, Kind, Method, Metric, Reason, Report,
    Series, Spread, Value, latency,
    spe::{self, REMOTE, of_samples},
    statistics::{self, Interval},
};
use crate::{
    formula::NoValue,
    snapshot::SpeCounts,
    window::{Gained, LiveTime, Sampler, Served, SpeUsage, float},
};

/// The metric in place of the number of operations.
const SAMPLES: &str = "spe_samples";

/// The metrics of sampled accesses: their indices in a report.
pub(super) struct Accesses<'a> {
    /// None where nothing was sampled.
    sampler: Option<&'a Sampler>,
    operations: u32,
    /// In place of operations, where their number is not known.
    samples: Option<u32>,
    latency: [u32; 4],
    /// Latencies to issue and of translation, which only SPE tells.
    parts: Option<[u32; 2]>,
    walks: u32,
    remote: u32,
    share: u32,
    histogram: u32,
}

impl<'a> Accesses<'a> {
    pub(super) fn new(report: &mut Report, sampler: Option<&'a Sampler>) -> Self {
        let by_events = matches!(sampler, Some(Sampler::Events { .. }));
        let mut metric = |name: &str, unit: &str, kind, help: &str| {
            report.add_metric(Metric {
                name: name.to_owned(),
                help: help.to_owned(),
                unit: unit.to_owned(),
                kind,
                counting: match kind {
                    Kind::Counter if name != SAMPLES => Counting::Samples,
                    _ => Counting::All,
                },
            })
        };
        let cycles = "cycles";
        let parts = [
            (
                "spe_issue_latency_mean_cycles",
                "Mean cycles from dispatch to issue",
            ),
            (
                "spe_translation_latency_mean_cycles",
                "Mean cycles of address translation",
            ),
        ];
        Self {
            sampler,
            operations: metric(
                "spe_operations",
                "",
                Kind::Counter,
                "Operations that the samples stand for",
            ),
            samples: by_events.then(|| {
                let help = "Samples of operations whose number is not known";
                metric(SAMPLES, "", Kind::Counter, help)
            }),
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
            parts: (!by_events)
                .then(|| parts.map(|(name, help)| metric(name, cycles, Kind::Gauge, help))),
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
                "Operations that the samples stand for, by cycles from dispatch to completion",
            ),
        }
    }

    /// The accesses of one row: by what they did, and then by where they were served. `everyone`
    /// are all of the machine's since sampling began.
    pub(super) fn add_row(
        &self,
        report: &mut Report,
        subject: u32,
        row: &Gained<SpeUsage>,
        everyone: &SpeUsage,
    ) {
        let none = SpeCounts::default();
        for class in Class::ALL {
            let of_class = row
                .total
                .iter()
                .filter(|((of, _), total)| *of == class && total.samples > 0);
            let parts: Vec<(Served, &SpeCounts, &SpeCounts)> = of_class
                .map(|(kind, total)| (kind.1, row.delta.get(kind).unwrap_or(&none), total))
                .collect();
            if parts.is_empty() {
                continue;
            }
            let deltas = || parts.iter().map(|(served, delta, _)| (*served, *delta));
            let all = spe::sum(deltas(), |_| true);
            let total = spe::sum(
                parts.iter().map(|(served, _, total)| (*served, *total)),
                |_| true,
            );
            let mut add = self.adding(report, subject, class, None);
            self.add_counts(&mut add, &all, &total, row.since);
            if let Some([issue, _]) = self.parts {
                add.estimate(issue, spe::other_latency(all.issue, &all));
            }
            if matches!(class, Class::Load | Class::Store) {
                if let Some([_, translation]) = self.parts {
                    let latency = spe::other_latency(all.translation, &all);
                    add.estimate(translation, latency);
                }
                // Some cores tell of no access that its address was looked up: unless some walked,
                // none that did is not known to be none.
                let walked =
                    self.is_spe() || spe::parts(everyone, class).any(|(_, all)| all.walks > 0.0);
                if walked {
                    add.gauge(self.walks, spe::walks(&all));
                }
            }
            let remote = spe::sum(deltas(), spe::by(REMOTE));
            if let Some(remote) = spe::share(&remote, &spe::sum(deltas(), spe::known)) {
                add.gauge(self.remote, Some(remote));
            }
            for (served, delta, total) in &parts {
                let mut add = self.adding(report, subject, class, Some(*served));
                self.add_counts(&mut add, delta, total, row.since);
                add.gauge(self.share, spe::share(delta, &all));
            }
        }
    }

    fn is_spe(&self) -> bool {
        !matches!(self.sampler, Some(Sampler::Events { .. }))
    }

    fn adding<'r>(
        &self,
        report: &'r mut Report,
        subject: u32,
        operation: Class,
        source: Option<Served>,
    ) -> Adding<'r> {
        let mut adding = Adding::new(report, subject, operation, source);
        if let Some(Sampler::Events { limited, time, .. }) = self.sampler {
            (adding.limited, adding.time) = (*limited, *time);
        }
        adding
    }

    fn add_counts(
        &self,
        add: &mut Adding<'_>,
        delta: &SpeCounts,
        total: &SpeCounts,
        since: Duration,
    ) {
        let counts = self.sampler.is_none_or(|it| it.counts(add.class));
        if counts {
            let mut value = counter(delta, add.report.start);
            value.estimate = add.as_sampled(value.estimate);
            value.time = add.time;
            let mut total = counter(total, since);
            if let Some(Sampler::Events {
                ever_limited: true, ..
            }) = self.sampler
            {
                total.estimate.spread = Spread::Unknown;
            }
            add.push(self.operations, Ok(Value::Counter(value)), Some(total));
        } else {
            let why = Reason::NoValue(NoValue::ChosenByCore);
            add.push(self.operations, Err(why), None);
            if let Some(samples) = self.samples {
                let value = Value::Counter(taken(delta, add.report.start));
                add.push(samples, Ok(value), Some(taken(total, since)));
            }
        }
        let max_latency = self.sampler.map_or(u16::MAX.into(), Sampler::max_latency);
        let mean = latency::mean(delta, max_latency);
        let quantile = |q| spe::quantile(delta, q);
        let latency = [mean, quantile(0.5), quantile(0.9), quantile(0.99)];
        for (metric, value) in self.latency.into_iter().zip(latency) {
            add.gauge(metric, value);
        }
        if counts {
            let histogram = Value::Histogram(Box::new(histogram(total, since)));
            add.push(self.histogram, Ok(histogram), None);
        }
    }
}

/// Series of one subject and kind of access that are being added.
struct Adding<'a> {
    report: &'a mut Report,
    subject: u32,
    class: Class,
    attributes: u32,
    /// What the samples were is not known for all of the time.
    limited: bool,
    time: Option<LiveTime>,
}

impl<'a> Adding<'a> {
    fn new(report: &'a mut Report, subject: u32, operation: Class, source: Option<Served>) -> Self {
        let attributes = report.add_attributes(Attributes {
            method: Method::Sampled,
            operation: Some(operation),
            source,
            ..Attributes::default()
        });
        Self {
            report,
            subject,
            class: operation,
            attributes,
            limited: false,
            time: None,
        }
    }

    /// An estimate with the part of the time in which samples were taken, and without an interval
    /// where some are missing nobody knows of.
    fn as_sampled(&self, estimate: Estimate) -> Estimate {
        Estimate {
            live: self.time.map_or(estimate.live, LiveTime::live),
            spread: match self.limited {
                true => Spread::Unknown,
                false => estimate.spread,
            },
            ..estimate
        }
    }

    fn push(&mut self, metric: u32, value: Result<Value, Reason>, total: Option<Counter>) {
        let ids = [self.subject, metric, self.attributes];
        self.report.push(ids, value, total);
    }

    /// Adds a value; with too few samples there is none.
    fn gauge(&mut self, metric: u32, value: Option<Interval>) {
        self.estimate(metric, value.map(of_samples));
    }

    fn estimate(&mut self, metric: u32, value: Option<Estimate>) {
        let value = value.map(|value| Value::Gauge(self.as_sampled(value)));
        let value = value.ok_or(Reason::NoValue(NoValue::TooFewSamples));
        self.push(metric, value, None);
    }
}

/// The estimated number of operations.
fn counter(counts: &SpeCounts, start: Duration) -> Counter {
    Counter {
        start,
        raw: counts.samples,
        estimate: of_samples(statistics::count(counts.operations, counts.variance)),
        time: None,
    }
}

/// The number of samples.
fn taken(counts: &SpeCounts, start: Duration) -> Counter {
    Counter {
        start,
        raw: counts.samples,
        estimate: Estimate::exact(float(counts.samples)),
        time: None,
    }
}

/// The total latencies of the operations that samples stand for.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates of operations, rounded"
)]
fn histogram(counts: &SpeCounts, start: Duration) -> Histogram {
    let bounds = (0..LATENCY_BUCKETS - 1).map(|bucket| statistics::ends(bucket).1);
    Histogram {
        start,
        bounds: bounds.collect(),
        counts: counts.histogram.map(|weight| weight.round() as u64).into(),
        sum: counts.cycles,
    }
}

/// The counter of the samples of one kind of access, which has these series: that of operations,
/// or of samples where the number of operations is not known.
#[must_use]
pub fn samples_of(series: &[Series]) -> Option<&Counter> {
    series.iter().find_map(Series::counter)
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
mod tests;
