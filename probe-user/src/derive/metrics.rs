//! Documented metrics of entities, sockets and devices.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Attributes, Estimate, Method, Metric, Reason, Report, Spread, Subject, Value,
    samples::SampledMetric,
};
use crate::{
    catalogue::Counts,
    devices::Device,
    formula::{self, Absent, Implicit, Input, NoValue, Sample},
    plan::{CountSource, MetricSource, Plan, PlannedMetric},
    window::{Counted, SpeUsage, Usage, Window, float},
};

/// A value, or why there is none.
pub(super) type MetricValue = Result<Estimate, NoValue>;

fn counted(value: formula::Value) -> Estimate {
    Estimate {
        live: value.live,
        above_bound: value.above_bound,
        ..Estimate::exact(value.value)
    }
}

/// What a metric of the catalogue says.
fn described(planned: &PlannedMetric) -> Metric {
    let metric = &planned.metric;
    Metric::gauge(&*metric.name, &*metric.title, &*metric.unit)
}

/// The metrics of entities.
pub(super) struct CoreMetrics<'a> {
    plan: &'a Plan,
    list: Vec<CoreMetric<'a>>,
    length: Duration,
    /// The attributes of metrics that are estimated of samples.
    sampled: u32,
}

struct CoreMetric<'a> {
    id: u32,
    planned: &'a PlannedMetric,
    source: &'a MetricSource,
    /// Where it is estimated of samples.
    sampled: Option<SampledMetric<'a>>,
}

impl<'a> CoreMetrics<'a> {
    pub(super) fn new(report: &mut Report, plan: &'a Plan, window: &'a Window) -> Self {
        let list = cores(plan).map(|(planned, source)| CoreMetric {
            id: report.add_metric(described(planned)),
            planned,
            source,
            sampled: window
                .samples
                .as_ref()
                .and_then(|samples| SampledMetric::new(plan, planned, source, samples)),
        });
        Self {
            plan,
            list: list.collect(),
            length: window.length,
            sampled: report.add_attributes(Attributes {
                method: Method::Sampled,
                ..Attributes::default()
            }),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds the values of one entity. Counts are estimates for all of its time; time is wall time.
    pub(super) fn add_row(
        &self,
        report: &mut Report,
        subject: u32,
        usage: &Usage,
        samples: &SpeUsage,
    ) {
        let ran = usage.iter().flatten().any(|row| row.enabled > 0);
        for metric in &self.list {
            let (value, attributes) = match &metric.sampled {
                Some(sampled) => (sampled.value(samples), self.sampled),
                None => (self.counted(metric, usage, ran), 0),
            };
            let value = value.map(Value::Gauge).map_err(Reason::NoValue);
            report.push([subject, metric.id, attributes], value, None);
        }
    }

    fn counted(&self, metric: &CoreMetric<'_>, usage: &Usage, ran: bool) -> MetricValue {
        let CoreMetric {
            planned, source, ..
        } = metric;
        if !ran && !source.events.is_empty() {
            return Err(NoValue::DidNotRun);
        }
        let input = OfUsage {
            source,
            usage,
            nanos: self.length.as_secs_f64() * 1e9,
            cpus: number(self.plan.metrics.cpus),
        };
        let value = value_of(self.plan, planned, &input)?;
        Ok(Estimate {
            spread: error(self.plan, planned, &input, value.value)
                .map_or(Spread::Unknown, Spread::Error),
            ..counted(value)
        })
    }
}

/// The counts of an entity, as the input of a formula.
struct OfUsage<'a> {
    source: &'a MetricSource,
    usage: &'a Usage,
    /// Of the window.
    nanos: f64,
    cpus: f64,
}

impl Input for OfUsage<'_> {
    fn event(&self, name: &str) -> Result<Sample, Absent> {
        let mut sum = None;
        for event in self.events().filter(|event| event.name == name) {
            let count = super::counts::estimate(event.row, event.at)?;
            let live = event.row.live();
            let sum = sum.get_or_insert(Sample { count: 0.0, live });
            sum.count += count;
            sum.live = sum.live.min(live);
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

/// The metrics that are counted or sampled per CPU, with their source.
pub(super) fn cores(plan: &Plan) -> impl Iterator<Item = (&PlannedMetric, &MetricSource)> {
    plan.metrics.list.iter().filter_map(|planned| {
        let source = planned.sources.as_ref().ok()?.first()?;
        let core = |(_, place): &(String, CountSource)| {
            matches!(place, CountSource::Core { .. } | CountSource::Sampled(_))
        };
        source.events.iter().all(core).then_some((planned, source))
    })
}

/// The metrics that cannot be counted here, with the reason in place of a value.
pub(super) fn add_missing(report: &mut Report, machine: u32, plan: &Plan) {
    for planned in &plan.metrics.list {
        if let Err(reason) = &planned.sources {
            let metric = report.add_metric(described(planned));
            let reason = Reason::NotPlanned(reason.clone());
            report.push([machine, metric, 0], Err(reason), None);
        }
    }
}

/// An event of a metric, and the place of an entity's counts of it.
struct Event<'a> {
    name: &'a str,
    group: usize,
    row: &'a Counted,
    at: usize,
}

impl<'a> OfUsage<'a> {
    /// The events in the groups that could have counted for the entity.
    fn events(&self) -> impl Iterator<Item = Event<'a>> + use<'a> {
        let Self { source, usage, .. } = *self;
        source.events.iter().filter_map(|(name, place)| {
            let CountSource::Core { group, at } = *place else {
                return None;
            };
            let row = usage.get(group)?.as_ref().filter(|row| row.enabled > 0)?;
            Some(Event {
                name,
                group,
                row,
                at,
            })
        })
    }
}

impl OfUsage<'_> {
    /// The nanoseconds for which an entity ran, by the group of its counters: those that the counts
    /// are estimates for, so that a quotient is that of the turns that the group had. None where
    /// they could not have counted.
    fn counter_time(&self) -> Option<f64> {
        let (first, _) = self.source.events.first()?;
        let events = self.events().filter(|event| event.name == first);
        let time = events.map(|event| event.row.enabled);
        time.reduce(u64::saturating_add).map(float)
    }
}

/// The standard error of a metric by that of its counts (error propagation of the first order). The
/// common error of the events of a group cancels in their ratio; errors of groups are independent.
fn error(plan: &Plan, planned: &PlannedMetric, input: &OfUsage<'_>, value: f64) -> Option<f64> {
    if input.events().all(|event| event.row.is_exact()) {
        return Some(0.0);
    }
    let events: Vec<Event<'_>> = input.events().collect();
    let slopes: Option<Vec<f64>> = events
        .iter()
        .map(|event| slope(plan, planned, input, event, value))
        .collect();
    let slopes = slopes?;
    let (mut variance, mut apart) = (0.0, 0.0_f64);
    for (a, slope) in events.iter().zip(&slopes) {
        for (b, other) in events.iter().zip(&slopes) {
            if a.group == b.group {
                let term = slope * other * a.row.covariance(a.at, b.at);
                variance += term;
                apart = apart.max(term.abs());
            }
        }
    }
    // Where all terms cancel, the rest is rounding.
    Some(if variance > ROUNDING * apart {
        variance.sqrt()
    } else {
        0.0
    })
}

/// The part of a variance that rounding, and slopes by finite steps, leave where its terms cancel.
const ROUNDING: f64 = 1e-9;

/// The relative change of a count by which a metric's slope is measured.
const STEP: f64 = 1e-6;

/// The change of the metric for one more count of an event; 0 where the count is exact. Where a
/// changed value has none, the slope is that of the other side.
fn slope(
    plan: &Plan,
    planned: &PlannedMetric,
    counts: &OfUsage<'_>,
    event: &Event<'_>,
    value: f64,
) -> Option<f64> {
    let count = event.row.estimate(event.at)?;
    if event.row.covariance(event.at, event.at) == 0.0 {
        return Some(0.0);
    }
    let changed = |part: f64| {
        let (event, by) = (event.name, part * count);
        value_of(plan, planned, &Changed { counts, event, by })
    };
    let (up, down) = (changed(STEP), changed(-STEP));
    let steps = f64::from(u8::from(up.is_ok()) + u8::from(down.is_ok()));
    let end = |changed: Result<formula::Value, NoValue>| changed.map_or(value, |it| it.value);
    (steps > 0.0).then(|| (end(up) - end(down)) / (steps * STEP * count))
}

/// Counts of which one is changed a little.
struct Changed<'a> {
    counts: &'a OfUsage<'a>,
    event: &'a str,
    by: f64,
}

impl Input for Changed<'_> {
    fn event(&self, name: &str) -> Result<Sample, Absent> {
        let mut sample = self.counts.event(name)?;
        if name == self.event {
            sample.count += self.by;
        }
        Ok(sample)
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        self.counts.implicit(implicit)
    }
}

/// The metrics of sockets and devices. Time is the running time of their own group.
pub(super) fn add_places(report: &mut Report, plan: &Plan, window: &Window) {
    for planned in &plan.metrics.list {
        for source in planned.sources.iter().flatten() {
            for socket in sockets(source, window) {
                let metric = report.add_metric(described(planned));
                let mut place = source.place.clone();
                place.socket.get_or_insert(socket);
                let subject = Subject::Place(place, devices(plan, source, socket));
                let subject = report.subject(subject);
                let value = place_value(plan, planned, source, window, socket);
                let value = value.map(Value::Gauge).map_err(Reason::NoValue);
                report.push([subject, metric, 0], value, None);
            }
        }
    }
}

/// The value of one source of a metric on a socket.
pub(super) fn at_socket(
    plan: &Plan,
    planned: &PlannedMetric,
    source: usize,
    window: &Window,
    socket: u32,
) -> Option<MetricValue> {
    let source = planned.sources.as_ref().ok()?.get(source)?;
    Some(place_value(plan, planned, source, window, socket))
}

/// The names of the devices that a source counts, where it is not about a whole socket.
pub(super) fn devices(plan: &Plan, source: &MetricSource, socket: u32) -> Vec<String> {
    let place = &source.place;
    if place.device.is_none() && place.filters.is_empty() {
        return Vec::new();
    }
    let devices = plan.devices_of(source, socket).into_iter();
    devices.map(Device::name).collect()
}

/// The sockets that the counts of a source were read on.
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

fn place_value(
    plan: &Plan,
    planned: &PlannedMetric,
    source: &MetricSource,
    window: &Window,
    socket: u32,
) -> MetricValue {
    let mut counts = Counts::of_uncore();
    // Some units of the PMU may be on another socket.
    let mut units = 0;
    for (event, place) in &source.events {
        let CountSource::Uncore { at } = place else {
            continue;
        };
        let here = |reading: &&_| {
            let reading: &crate::snapshot::UncoreReading = reading;
            (reading.at, reading.socket) == (*at, socket)
        };
        let first = source
            .events
            .first()
            .is_some_and(|(first, _)| first == event);
        units += usize::from(first && window.uncore.iter().any(|reading| here(&reading)));
        for reading in window.uncore.iter().filter(here) {
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
    evaluate(plan, planned, counts)
}

pub(super) fn evaluate(plan: &Plan, planned: &PlannedMetric, mut counts: Counts) -> MetricValue {
    counts.set(Implicit::NumCpus, number(plan.metrics.cpus));
    value_of(plan, planned, &counts).map(counted)
}

fn value_of(
    plan: &Plan,
    planned: &PlannedMetric,
    input: &impl Input,
) -> Result<formula::Value, NoValue> {
    let machine = plan.metrics.machine.as_ref();
    let events = planned.metric.formula.events();
    let machine = machine.ok_or_else(|| NoValue::Missing(events.to_vec()))?;
    planned.metric.evaluate(machine, input)
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
