//! Checks of loaded metrics: the factor from counts to bytes in bandwidth formulas, no clock mixed
//! with other events, and event encodings that perf accepts.
//!
//! The check of a factor evaluates the formula: one count of one event in one second must give the
//! bytes of that count in the metric's unit. It needs no algebra of units, and the factor may be
//! written in any way.

use super::{
    error::{MetricProblem, Problem},
    event_spec::{CountOf, EventSpec},
    model::{Metric, PmuSpec},
    template,
};
use crate::{
    event,
    formula::{Absent, EventCount, Formula, Implicit, Input},
};

/// Bandwidth units, with their size in bytes per second.
const BANDWIDTH_UNITS: [(&str, f64); 8] = [
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("TB/s", 1e12),
    ("KiB/s", 1024.0),
    ("MiB/s", 1_048_576.0),
    ("GiB/s", 1_073_741_824.0),
];

/// The unit of bytes in flight: bandwidth times latency.
const BYTES_UNIT: &str = "B";

/// Largest relative error from rounding.
const ROUNDING: f64 = 1e-9;

/// Synthetic counts for evaluating a formula.
struct SyntheticCounts<'a> {
    count: &'a dyn Fn(&str) -> f64,
    seconds: f64,
}

impl Input for SyntheticCounts<'_> {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let count = (self.count)(name);
        Ok(EventCount {
            count,
            running_ratio: 1.0,
        })
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        Some(match implicit {
            Implicit::Seconds => self.seconds,
            Implicit::DurationTime | Implicit::CounterTime => self.seconds * 1e9,
            Implicit::NumCpus
            | Implicit::Slots
            | Implicit::NumUnits
            | Implicit::NumPorts
            | Implicit::NumSockets
            | Implicit::SmtOn
            | Implicit::TscFrequency => 1.0,
        })
    }
}

/// Checks that perf accepts the encodings, as far as this does not depend on the machine.
pub(super) fn events(pmu: &PmuSpec) -> Result<(), Problem> {
    for (name, event) in &pmu.events {
        let filled = template::fill(&event.perf, |_| Some("0".to_owned()));
        event::check(&filled).map_err(|error| Problem::Perf {
            event: name.clone(),
            error: Box::new(error),
        })?;
    }
    Ok(())
}

/// Checks that the formula does not mix clocks with other events: a clock and a counter start at
/// different moments of a time slice, and their groups may not run at the same time.
pub(super) fn clocks(metric: &Metric) -> Result<(), Problem> {
    let is_clock = |name: &&String| metric.pmu.events[*name].count == CountOf::Ns;
    let (clocks, others): (Vec<_>, Vec<_>) = metric.formula.events().iter().partition(is_clock);
    match (clocks.first(), others.first()) {
        (Some(clock), Some(other)) => Err(Problem::Metric {
            name: metric.name.clone(),
            problem: MetricProblem::Clock {
                clock: (*clock).clone(),
                other: (*other).clone(),
            },
        }),
        _ => Ok(()),
    }
}

/// Checks a metric in bytes or bytes per second; accepts any other.
pub(super) fn bandwidth(metric: &Metric) -> Result<(), MetricProblem> {
    let event = |name: &String| (name.clone(), metric.pmu.events[name].clone());
    let events: Vec<(String, EventSpec)> = metric.formula.events().iter().map(event).collect();
    // Files that do not state what one count is are not checked.
    if events
        .iter()
        .any(|(_, spec)| spec.count == CountOf::Unstated)
    {
        return Ok(());
    }
    if metric.unit == BYTES_UNIT {
        return bytes_in_flight(metric, &events);
    }
    let mut units = BANDWIDTH_UNITS.iter();
    let Some((_, unit_bytes)) = units.find(|(unit, _)| *unit == metric.unit) else {
        return Ok(());
    };
    let no_bandwidth = || MetricProblem::NoBandwidth {
        unit: metric.unit.clone(),
    };
    let value = |count: &dyn Fn(&str) -> f64, seconds| {
        evaluate(&metric.formula, count, seconds).ok_or_else(no_bandwidth)
    };
    let mut sum = 0.0;
    for (name, spec) in &events {
        let bytes = bytes_per_count(metric, name, spec)?;
        let expected = bytes / unit_bytes;
        let found = value(&|event| f64::from(u8::from(event == name)), 1.0)?;
        check_factor(metric, name, spec, expected, found)?;
        sum += found;
    }
    // Twice the counts in half the time give four times the bandwidth; zero counts give zero.
    let fourfold = value(&|_| 2.0, 0.5)?;
    let zero = value(&|_| 0.0, 1.0)?;
    if events.is_empty() || !is_close(fourfold, 4.0 * sum) || zero != 0.0 {
        return Err(no_bandwidth());
    }
    Ok(())
}

/// Checks bytes in flight: one request that waits for one cycle of 1 ns must give the bytes of one
/// count.
fn bytes_in_flight(metric: &Metric, events: &[(String, EventSpec)]) -> Result<(), MetricProblem> {
    let no_bandwidth = || MetricProblem::NoBandwidth {
        unit: metric.unit.clone(),
    };
    let with_size: Vec<_> = events
        .iter()
        .filter(|(_, spec)| spec.count.bytes().is_some())
        .collect();
    let [(name, spec)] = with_size[..] else {
        return Err(no_bandwidth());
    };
    let found = evaluate(&metric.formula, &|_| 1.0, 1e-9).ok_or_else(no_bandwidth)?;
    check_factor(
        metric,
        name,
        spec,
        bytes_per_count(metric, name, spec)?,
        found,
    )
}

fn evaluate(formula: &Formula, count: &dyn Fn(&str) -> f64, seconds: f64) -> Option<f64> {
    let value = formula.evaluate(&SyntheticCounts { count, seconds });
    value.ok().map(|value| value.value)
}

fn bytes_per_count(metric: &Metric, name: &str, spec: &EventSpec) -> Result<f64, MetricProblem> {
    let bytes = spec.count.bytes().map(f64::from);
    bytes.ok_or_else(|| MetricProblem::NotBytes {
        unit: metric.unit.clone(),
        event: name.to_owned(),
        count: spec.count,
    })
}

fn check_factor(
    metric: &Metric,
    name: &str,
    spec: &EventSpec,
    expected: f64,
    found: f64,
) -> Result<(), MetricProblem> {
    if is_close(expected, found) {
        return Ok(());
    }
    Err(MetricProblem::Factor {
        unit: metric.unit.clone(),
        event: name.to_owned(),
        count: spec.count,
        expected,
        found,
    })
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= ROUNDING * a.abs().max(b.abs())
}
