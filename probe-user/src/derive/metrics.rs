//! Documented metrics of entities, sockets and devices.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Attributes, Estimate, MetricInfo, Reason, Report, Series, Spread, Subject, Value, ValueMethod,
    spe_metrics::SpeMetric,
};
use crate::{
    catalogue::MetricCounts,
    devices::Device,
    formula::{Absent, EventCount, FormulaValue, Implicit, Input, NoValue},
    plan::{CountSource, MetricSource, Plan, PlannedMetric},
    window::{GroupCounts, SPE, SampleUsage, Usage, Window, float},
};

/// A value, or the reason for its absence.
pub(super) type MetricValue = Result<Estimate, NoValue>;

fn estimate_of(value: FormulaValue) -> Estimate {
    Estimate {
        running_ratio: value.running_ratio,
        exceeded_bound: value.exceeded_bound,
        ..Estimate::exact(value.value)
    }
}

/// The description of a catalogue metric.
fn catalogue_metric(planned: &PlannedMetric) -> MetricInfo {
    let metric = &planned.metric;
    MetricInfo::gauge(&*metric.name, &*metric.title, &*metric.unit)
}

/// The metrics of entities.
pub(super) struct CoreMetrics<'a> {
    plan: &'a Plan,
    list: Vec<CoreMetric<'a>>,
    length: Duration,
    /// Attributes of metrics estimated from samples.
    sampled: u32,
}

struct CoreMetric<'a> {
    id: u32,
    planned: &'a PlannedMetric,
    source: &'a MetricSource,
    /// Set if the metric is estimated from samples.
    sampled: Option<SpeMetric<'a>>,
}

impl<'a> CoreMetrics<'a> {
    pub(super) fn new(report: &mut Report, plan: &'a Plan, window: &'a Window) -> Self {
        let list = core_metrics(plan).map(|(planned, source)| CoreMetric {
            id: report.add_metric(catalogue_metric(planned)),
            planned,
            source,
            sampled: window
                .access_samples()
                .and_then(|samples| SpeMetric::new(plan, planned, source, samples, window.length)),
        });
        Self {
            plan,
            list: list.collect(),
            length: window.length,
            sampled: report.add_attributes(Attributes {
                method: ValueMethod::Sampled,
                sampler: Some(SPE.into()),
                ..Attributes::default()
            }),
        }
    }

    /// The number of metrics.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds the values of one entity. Counts are estimates for the whole time in which the entity
    /// ran; time in formulas is wall time.
    pub(super) fn add_row(
        &self,
        report: &mut Report,
        subject: u32,
        usage: &Usage,
        samples: &SampleUsage,
    ) {
        let ran = usage.iter().flatten().any(|row| row.enabled > 0);
        let first = report.series.len();
        for metric in &self.list {
            let (value, attributes) = match &metric.sampled {
                Some(sampled) => (sampled.value(samples), self.sampled),
                None => (self.counted(metric, usage, ran), 0),
            };
            let value = value.map(Value::Gauge).map_err(Reason::NoValue);
            report.push([subject, metric.id, attributes], value, None);
        }
        self.mark_over_threshold(&mut report.series[first..]);
    }

    /// Marks values beyond the threshold of their metric. `series`: an entity's values, in the
    /// order of the list.
    fn mark_over_threshold(&self, series: &mut [Series]) {
        for (at, CoreMetric { planned, .. }) in self.list.iter().enumerate() {
            let value_of = |name: &str| {
                let mut others = self.list.iter();
                let other = others.position(|other| other.planned.metric.name == name)?;
                Some(series[other].estimate()?.value)
            };
            let is_over = planned.metric.is_over_threshold(value_of);
            if let Ok(Value::Gauge(estimate)) = &mut series[at].value {
                estimate.over_threshold = is_over;
            }
        }
    }

    fn counted(&self, metric: &CoreMetric<'_>, usage: &Usage, ran: bool) -> MetricValue {
        let CoreMetric {
            planned, source, ..
        } = metric;
        if !ran && !source.events.is_empty() {
            return Err(NoValue::DidNotRun);
        }
        let input = UsageInput {
            source,
            usage,
            nanos: self.length.as_secs_f64() * 1e9,
            cpus: number(self.plan.metrics.cpus),
        };
        let value = value_of(self.plan, planned, &input)?;
        Ok(Estimate {
            spread: standard_error(self.plan, planned, &input, value.value)
                .map_or(Spread::None, Spread::Error),
            ..estimate_of(value)
        })
    }
}

/// The counts of an entity, as the input of a formula.
struct UsageInput<'a> {
    source: &'a MetricSource,
    usage: &'a Usage,
    /// Length of the window.
    nanos: f64,
    cpus: f64,
}

impl Input for UsageInput<'_> {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let mut sum = None;
        for event in self.events().filter(|event| event.name == name) {
            let count = super::counts::estimate(event.row, event.at)?;
            let running_ratio = event.row.running_ratio();
            let sum = sum.get_or_insert(EventCount {
                count: 0.0,
                running_ratio,
            });
            sum.count += count;
            sum.running_ratio = sum.running_ratio.min(running_ratio);
        }
        sum.ok_or(Absent::Missing)
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        match implicit {
            Implicit::DurationTime => Some(self.nanos),
            Implicit::Seconds => Some(self.nanos / 1e9),
            Implicit::NumCpus => Some(self.cpus),
            Implicit::CounterTime => self.counter_time(),
            _ => None,
        }
    }
}

/// The metrics counted or sampled per CPU, with their source.
pub(super) fn core_metrics(plan: &Plan) -> impl Iterator<Item = (&PlannedMetric, &MetricSource)> {
    plan.metrics.list.iter().filter_map(|planned| {
        let source = planned.sources.as_ref().ok()?.first()?;
        let core = |(_, place): &(String, CountSource)| {
            matches!(place, CountSource::Core { .. } | CountSource::Sampled(_))
        };
        source.events.iter().all(core).then_some((planned, source))
    })
}

/// Adds the metrics that cannot be counted on this machine, with the reason.
pub(super) fn add_missing(report: &mut Report, machine: u32, plan: &Plan) {
    for planned in &plan.metrics.list {
        if let Err(reason) = &planned.sources {
            let metric = report.add_metric(catalogue_metric(planned));
            let reason = Reason::NotPlanned(reason.clone());
            report.push([machine, metric, 0], Err(reason), None);
        }
    }
}

/// An event of a metric, with its position in an entity's counts.
struct MetricEvent<'a> {
    name: &'a str,
    group: usize,
    row: &'a GroupCounts,
    at: usize,
}

impl<'a> UsageInput<'a> {
    /// The events in groups that were enabled for the entity.
    fn events(&self) -> impl Iterator<Item = MetricEvent<'a>> + use<'a> {
        let Self { source, usage, .. } = *self;
        source.events.iter().filter_map(|(name, place)| {
            let CountSource::Core { group, at } = *place else {
                return None;
            };
            let row = usage.get(group)?.as_ref().filter(|row| row.enabled > 0)?;
            Some(MetricEvent {
                name,
                group,
                row,
                at,
            })
        })
    }
}

impl UsageInput<'_> {
    /// The time in nanoseconds for which the counter group of the first event was enabled; None if
    /// never. Counts are estimates for this time, so a count per time is right even if the group is
    /// multiplexed.
    fn counter_time(&self) -> Option<f64> {
        let (first, _) = self.source.events.first()?;
        let events = self.events().filter(|event| event.name == first);
        let time = events.map(|event| event.row.enabled);
        time.reduce(u64::saturating_add).map(float)
    }
}

/// The standard error of a metric from the errors of its counts (first-order error propagation).
/// Events of one group have a common error, which cancels in their ratio. Errors of different
/// groups are independent. None if a slope is undefined.
fn standard_error(
    plan: &Plan,
    planned: &PlannedMetric,
    input: &UsageInput<'_>,
    value: f64,
) -> Option<f64> {
    if input.events().all(|event| event.row.is_exact()) {
        return Some(0.0);
    }
    let events: Vec<MetricEvent<'_>> = input.events().collect();
    let slopes = events
        .iter()
        .map(|event| slope(plan, planned, input, event, value))
        .collect::<Option<Vec<f64>>>()?;
    let (mut variance, mut largest_term) = (0.0, 0.0_f64);
    for (a, slope) in events.iter().zip(&slopes) {
        for (b, other) in events.iter().zip(&slopes) {
            if a.group == b.group {
                let term = slope * other * a.row.covariance(a.at, b.at);
                variance += term;
                largest_term = largest_term.max(term.abs());
            }
        }
    }
    // If all terms cancel, only rounding remains.
    Some(if variance > ROUNDING * largest_term {
        variance.sqrt()
    } else {
        0.0
    })
}

/// The largest variance, relative to the largest term, that rounding and finite steps leave if the
/// terms cancel.
const ROUNDING: f64 = 1e-9;

/// The relative change of a count that measures a slope.
const STEP: f64 = 1e-6;

/// The derivative of the metric with respect to the count of an event; 0 if the count is exact. If
/// the metric is undefined for a smaller or larger count, the other one determines the slope. None
/// if both are undefined.
fn slope(
    plan: &Plan,
    planned: &PlannedMetric,
    counts: &UsageInput<'_>,
    event: &MetricEvent<'_>,
    value: f64,
) -> Option<f64> {
    let count = event.row.estimate(event.at)?;
    if event.row.covariance(event.at, event.at) == 0.0 {
        return Some(0.0);
    }
    let changed = |part: f64| {
        let (event, change) = (event.name, part * count);
        value_of(
            plan,
            planned,
            &ChangedInput {
                counts,
                event,
                change,
            },
        )
    };
    let (up, down) = (changed(STEP), changed(-STEP));
    let steps = f64::from(u8::from(up.is_ok()) + u8::from(down.is_ok()));
    let end = |changed: Result<FormulaValue, NoValue>| changed.map_or(value, |it| it.value);
    (steps > 0.0).then(|| (end(up) - end(down)) / (steps * STEP * count))
}

/// Counts in which `change` is added to the count of `event`.
struct ChangedInput<'a> {
    counts: &'a UsageInput<'a>,
    event: &'a str,
    change: f64,
}

impl Input for ChangedInput<'_> {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let mut counted = self.counts.event(name)?;
        if name == self.event {
            counted.count += self.change;
        }
        Ok(counted)
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        self.counts.implicit(implicit)
    }
}

/// Adds the metrics of sockets and devices. Time in their formulas is the running time of their own
/// counter group.
pub(super) fn add_uncore(report: &mut Report, plan: &Plan, window: &Window) {
    for planned in &plan.metrics.list {
        for source in planned.sources.iter().flatten() {
            for socket in sockets(source, window) {
                let metric = report.add_metric(catalogue_metric(planned));
                let mut place = source.place.clone();
                place.socket.get_or_insert(socket);
                let devices = devices(plan, source, socket);
                let subject = report.subject(Subject::Place(place, devices));
                let value = uncore_value(plan, planned, source, window, socket)
                    .map(Value::Gauge)
                    .map_err(Reason::NoValue);
                report.push([subject, metric, 0], value, None);
            }
        }
    }
}

/// The value of one source of a metric on a socket; None if the metric has no such source.
pub(super) fn at_socket(
    plan: &Plan,
    planned: &PlannedMetric,
    source: usize,
    window: &Window,
    socket: u32,
) -> Option<MetricValue> {
    let source = planned.sources.as_ref().ok()?.get(source)?;
    Some(uncore_value(plan, planned, source, window, socket))
}

/// The names of the devices that a source counts; empty for a whole socket.
pub(super) fn devices(plan: &Plan, source: &MetricSource, socket: u32) -> Vec<String> {
    let place = &source.place;
    if place.device.is_none() && place.filters.is_empty() {
        return Vec::new();
    }
    let devices = plan.devices_of(source, socket).into_iter();
    devices.map(Device::name).collect()
}

/// The sockets with counts of a source.
fn sockets(source: &MetricSource, window: &Window) -> BTreeSet<u32> {
    let of_source = |at: usize| {
        let mut places = source.events.iter().map(|(_, place)| place);
        places.any(|place| *place == CountSource::Uncore { at })
    };
    let readings = window.uncore.iter();
    readings
        .filter(|reading| of_source(reading.at))
        .map(|reading| reading.socket)
        .collect()
}

fn uncore_value(
    plan: &Plan,
    planned: &PlannedMetric,
    source: &MetricSource,
    window: &Window,
    socket: u32,
) -> MetricValue {
    let mut counts = MetricCounts::for_uncore();
    // Units of the PMU on this socket; other units may be on other sockets.
    let mut units = 0;
    for (event, place) in &source.events {
        let CountSource::Uncore { at } = place else {
            continue;
        };
        let is_here = |reading: &&_| {
            let reading: &crate::snapshot::UncoreReading = reading;
            (reading.at, reading.socket) == (*at, socket)
        };
        let first = source
            .events
            .first()
            .is_some_and(|(first, _)| first == event);
        units += usize::from(first && window.uncore.iter().any(|reading| is_here(&reading)));
        for reading in window.uncore.iter().filter(is_here) {
            match reading.count {
                Some(count) => counts.add(event, count, reading.enabled, reading.running),
                None => counts.add(event, 0, 0, 0),
            }
        }
    }
    if let Some(ports) = source.place.ports(&planned.metric.pmu) {
        counts.set(Implicit::NumPorts, f64::from(ports));
    }
    counts.set(Implicit::NumUnits, number(units));
    // Each socket has its own value.
    counts.set(Implicit::NumSockets, 1.0);
    evaluate(plan, planned, counts)
}

pub(super) fn evaluate(
    plan: &Plan,
    planned: &PlannedMetric,
    mut counts: MetricCounts,
) -> MetricValue {
    counts.set(Implicit::NumCpus, number(plan.metrics.cpus));
    value_of(plan, planned, &counts).map(estimate_of)
}

fn value_of(
    plan: &Plan,
    planned: &PlannedMetric,
    input: &impl Input,
) -> Result<FormulaValue, NoValue> {
    let machine = plan.metrics.machine.as_ref();
    let events = planned.metric.formula.events();
    let machine = machine.ok_or_else(|| NoValue::Missing(events.to_vec()))?;
    planned.metric.evaluate(machine, input)
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
