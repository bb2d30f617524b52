//! A report under construction.

use std::time::Duration;

use probe_common::spe::Class;

use crate::{
    catalogue::MetricPlace,
    derive::{
        Attributes, CounterSource, CounterValue, Estimate, Histogram, MetricInfo, MetricKind,
        Reason, Report, RunningTime, Spread, Subject, Value, ValueMethod,
    },
    formula::NoValue,
    join::{
        Entity,
        share::{self, NoShare},
    },
    window::MemLevel,
};

/// A report under construction.
pub(super) struct Fixture {
    pub(super) report: Report,
    pub(super) subject: u32,
    pub(super) attributes: u32,
}

/// Name, unit and kind of a metric.
pub(super) type Described<'a> = (&'a str, &'a str, MetricKind);

pub(super) const CLOCK: Described<'_> = ("task-clock", "ns", MetricKind::Counter);
pub(super) const CYCLES: Described<'_> = ("cycles", "", MetricKind::Counter);
pub(super) const UNCORE: Described<'_> = ("nvidia_scf_pmu_0/cycles/", "", MetricKind::Counter);
const OPERATIONS: Described<'_> = ("memory_accesses", "", MetricKind::Counter);

/// Start of the session.
pub(super) const BEGAN: Duration = Duration::from_secs(100);

/// Start of the window.
pub(super) const START: Duration = Duration::from_millis(101_500);

/// The counter group of an event: two events are on the cores and share a group.
fn group(described: Described<'_>) -> Option<u32> {
    match described {
        CLOCK | CYCLES => Some(0),
        UNCORE => Some(1),
        _ => None,
    }
}

impl Default for Fixture {
    fn default() -> Self {
        let report = Report {
            began: BEGAN,
            start: START,
            end: Duration::from_millis(102_500),
            boot_time: Duration::from_secs(1_700_000_000),
            time: Duration::from_millis(1_700_000_102_500),
            attributes: vec![Attributes::default()],
            ..Report::default()
        };
        Self {
            report,
            subject: 0,
            attributes: 0,
        }
    }
}

impl Fixture {
    /// Sets the subject and the attributes of the next series.
    pub(super) fn about(&mut self, subject: Subject, attributes: Attributes) {
        self.subject = self.report.subject(subject);
        self.with(attributes);
    }

    /// Sets the attributes of the next series.
    pub(super) fn with(&mut self, attributes: Attributes) {
        self.attributes = self.report.add_attributes(attributes);
    }

    pub(super) fn add(
        &mut self,
        described: Described<'_>,
        value: Result<Value, Reason>,
        total: Option<CounterValue>,
    ) {
        let (name, unit, kind) = described;
        let group = group(described);
        let metric = self.report.add_metric(MetricInfo {
            name: name.to_owned(),
            help: format!("What \"{name}\" says"),
            unit: unit.to_owned(),
            kind,
            counting: match described {
                OPERATIONS => CounterSource::Samples,
                _ if group.is_some() => CounterSource::Event(1.0),
                _ => CounterSource::All,
            },
        });
        let attributes = match group {
            None => self.attributes,
            group => self.report.add_attributes(Attributes {
                group,
                ..Attributes::default()
            }),
        };
        let ids = [self.subject, metric, attributes];
        self.report.push(ids, value, total);
    }

    /// Adds a count. The error of its estimate is as large as the part that was estimated, not
    /// counted. The same amount was counted before the window.
    pub(super) fn count(&mut self, described: Described<'_>, raw: u64, scaled: f64) {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let running_ratio = if scaled == 0.0 {
            1.0
        } else {
            raw as f64 / scaled
        };
        let estimate = Estimate {
            running_ratio,
            spread: Spread::Error(scaled * (1.0 - running_ratio)),
            ..Estimate::exact(scaled)
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small numbers"
        )]
        let time = |enabled: u64| RunningTime {
            enabled,
            running: (running_ratio * 1e9) as u64 * (enabled / 1_000_000_000),
        };
        let time = |enabled| group(described).map(|_| time(enabled));
        let counter = CounterValue {
            start: START,
            raw,
            estimate,
            time: time(1_000_000_000),
        };
        let total = CounterValue {
            start: BEGAN,
            raw: 2 * raw,
            estimate: Estimate {
                spread: Spread::Error(scaled * (1.0 - running_ratio) * std::f64::consts::SQRT_2),
                value: 2.0 * scaled,
                ..estimate
            },
            time: time(2_000_000_000),
        };
        self.add(described, Ok(Value::Counter(counter)), Some(total));
    }

    pub(super) fn gauge(&mut self, name: &str, unit: &str, value: Estimate) {
        self.add(
            (name, unit, MetricKind::Gauge),
            Ok(Value::Gauge(value)),
            None,
        );
    }

    /// Adds a gauge without a value.
    pub(super) fn absent(&mut self, name: &str, unit: &str, reason: impl Into<Reason>) {
        self.add((name, unit, MetricKind::Gauge), Err(reason.into()), None);
    }

    /// Adds two ratios of counters, the second of them multiplexed, and metrics of samples. The
    /// latency is missing, for too few samples.
    pub(super) fn metrics(&mut self, ipc: Option<f64>) {
        match ipc {
            Some(ipc) => {
                self.gauge("ipc", "1/cycle", Estimate::exact(ipc));
                let multiplexed = Estimate {
                    running_ratio: 0.25,
                    spread: Spread::Error(ipc / 800.0),
                    ..Estimate::exact(ipc / 100.0)
                };
                self.gauge("branch_miss_ratio", "1", multiplexed);
            }
            None => {
                let never = || NoValue::NeverRan("cycles".to_owned());
                self.absent("ipc", "1/cycle", never());
                self.absent("branch_miss_ratio", "1", never());
            }
        }
        let plain = self.attributes;
        self.with(Attributes {
            method: ValueMethod::Sampled,
            ..Attributes::default()
        });
        self.gauge("spe_load_rate", "1/s", sampled(1e6));
        self.gauge("spe_load_dram_ratio", "1", sampled(0.25));
        self.absent("spe_load_latency", "cycles", NoValue::TooFewSamples);
        self.attributes = plain;
    }

    /// Adds a row with two events and the metrics.
    pub(super) fn row(&mut self, entity: Entity, clock: u64, ipc: Option<f64>) {
        self.about(Subject::Entity(entity), Attributes::default());
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        self.count(CLOCK, clock, clock as f64);
        self.count(CYCLES, 250, 1_000.0);
        self.metrics(ipc);
    }

    /// Adds sampled accesses of a class, or of one of its data sources. `mean` is their mean
    /// latency.
    pub(super) fn accesses(
        &mut self,
        operation: Class,
        source: Option<MemLevel>,
        samples: u64,
        mean: Option<f64>,
    ) {
        self.with(Attributes {
            method: ValueMethod::Sampled,
            operation: Some(operation),
            source,
            ..Attributes::default()
        });
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let counter = CounterValue {
            start: START,
            raw: samples,
            estimate: sampled(32_768.0 * samples as f64),
            time: None,
        };
        let total = CounterValue {
            start: BEGAN,
            raw: 31,
            estimate: sampled(1e6),
            time: None,
        };
        self.add(OPERATIONS, Ok(Value::Counter(counter)), Some(total));
        match mean {
            Some(mean) => self.gauge("memory_access_latency_mean_cycles", "cycles", sampled(mean)),
            None => self.absent(
                "memory_access_latency_mean_cycles",
                "cycles",
                NoValue::TooFewSamples,
            ),
        }
        let histogram = Value::Histogram(Box::new(Histogram {
            start: BEGAN,
            bounds: vec![1.0, 3.0],
            counts: vec![1, 0, samples],
            sum: 9.0,
            powers: None,
        }));
        let described = (
            "memory_access_latency_cycles",
            "cycles",
            MetricKind::Histogram,
        );
        self.add(described, Ok(histogram), None);
        if source.is_none() {
            self.gauge("memory_access_tlb_walk_share", "1", sampled(0.25));
        } else {
            self.gauge("memory_access_source_share", "1", sampled(0.75));
        }
    }

    /// Adds a share of a socket's traffic, with its value and error.
    pub(super) fn share(&mut self, owner: Subject, share: Result<(f64, Option<f64>), NoShare>) {
        let attributes = Attributes {
            socket: Some(1),
            method: match share {
                Ok(_) => ValueMethod::Apportioned(share::Method::Counted {
                    weight: "llc_read_misses".into(),
                    but: None,
                }),
                Err(_) => ValueMethod::Counted,
            },
            ..Attributes::default()
        };
        self.about(owner, attributes);
        let name = "cmem_read_bandwidth_apportioned";
        match share {
            Ok((value, error)) => {
                let estimate = Estimate {
                    spread: error.map_or(Spread::None, Spread::CountingOnly),
                    ..Estimate::exact(value)
                };
                self.gauge(name, "GB/s", estimate);
            }
            Err(reason) => self.absent(name, "GB/s", Reason::NoShare(reason)),
        }
    }
}

/// An estimate from samples, with an interval of 25% to each side.
pub(super) fn sampled(value: f64) -> Estimate {
    Estimate {
        spread: Spread::Sampled(value * 0.75, value * 1.25),
        ..Estimate::exact(value)
    }
}

/// A place on socket 0, with the names of its devices.
pub(super) fn place(device: Option<&str>, names: &[&str]) -> Subject {
    let place = MetricPlace {
        socket: Some(0),
        device: device.map(str::to_owned),
        ..MetricPlace::default()
    };
    let names = names.iter().map(|name| (*name).to_owned());
    Subject::Place(place, names.collect())
}
