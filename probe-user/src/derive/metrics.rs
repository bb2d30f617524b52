//! Documented metrics of entities, sockets and devices.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    catalogue::{self, Counts},
    devices::Device,
    formula::{Absent, Implicit, Input, NoValue, Sample, Value},
    plan::{CountSource, MetricSource, Plan, PlannedMetric},
    window::{Counted, Usage, Window},
};

/// A value, or why there is none.
pub type MetricValue = Result<Measured, NoValue>;

/// The value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// In the metric's unit.
    pub value: f64,
    /// The smallest share of time for which one of its events was on the PMU: 1 where nothing was scaled.
    pub live: f64,
    /// The ends of its 95% interval, where it is an estimate from samples.
    pub interval: Option<(f64, f64)>,
    /// Standard error of the value, as far as it is an estimate of what counters would have counted while they
    /// were not live; None where it is not known.
    pub error: Option<f64>,
}

impl Measured {
    fn counted(value: Value) -> Self {
        Self {
            value: value.value,
            live: value.live,
            interval: None,
            error: None,
        }
    }

    /// [`Self::error`] as a part of the value; None where it is not known, or nothing of nothing.
    #[must_use]
    pub fn rel_error(&self) -> Option<f64> {
        super::relative(self.error?, self.value)
    }
}

/// What a metric is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricHead {
    /// Its name in the catalogue.
    pub name: String,
    /// Unit of its values.
    pub unit: String,
}

/// One value of a socket or device.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceRow {
    /// What it is for.
    pub place: catalogue::Place,
    /// The devices that are counted there, where it is not a whole socket.
    pub devices: Vec<String>,
    /// The metric.
    pub metric: MetricHead,
    /// Its value there.
    pub value: MetricValue,
}

impl MetricHead {
    fn of(planned: &PlannedMetric) -> Self {
        Self {
            name: planned.metric.name.clone(),
            unit: planned.metric.unit.clone(),
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

pub(super) fn of_entities(plan: &Plan) -> Vec<MetricHead> {
    cores(plan)
        .map(|(planned, _)| MetricHead::of(planned))
        .collect()
}

pub(super) fn missing(plan: &Plan) -> Vec<(MetricHead, String)> {
    let list = plan.metrics.list.iter();
    list.filter_map(|planned| {
        let reason = planned.sources.as_ref().err()?;
        Some((MetricHead::of(planned), reason.clone()))
    })
    .collect()
}

/// The metrics of one entity, of what is estimated for all of its time; time is the wall's.
pub(super) fn of_usage(plan: &Plan, usage: &Usage, length: Duration) -> Vec<MetricValue> {
    let ran = usage.iter().flatten().any(|row| row.enabled > 0);
    let value = |(planned, source): (&PlannedMetric, &MetricSource)| {
        if !ran && !source.events.is_empty() {
            return Err(NoValue::DidNotRun);
        }
        let mut counts = Counts::of_cpus(length);
        let counted = counted(source, usage);
        for Event { name, row, at, .. } in &counted {
            match super::estimate(row, *at) {
                Ok(count) => {
                    let live = row.live();
                    counts.add_sample(name, Sample { count, live });
                }
                Err(why) => counts.absent(name, why),
            }
        }
        counts.set(Implicit::NumCpus, number(plan.metrics.cpus));
        let value = value_of(plan, planned, &counts)?;
        Ok(Measured {
            error: error(plan, planned, &counts, &counted, value.value),
            ..Measured::counted(value)
        })
    };
    cores(plan).map(value).collect()
}

/// An event of a metric, and where an entity's counts of it are.
struct Event<'a> {
    name: &'a str,
    group: usize,
    row: &'a Counted,
    at: usize,
}

/// The events of a metric in the groups that could have counted for an entity.
fn counted<'a>(source: &'a MetricSource, usage: &'a Usage) -> Vec<Event<'a>> {
    let event = |(name, place): &'a (String, CountSource)| {
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
    };
    source.events.iter().filter_map(event).collect()
}

/// The standard error of a metric by that of its counts (error propagation of the first order). What the events
/// of one group err by together does not change their ratio; groups err independently of each other.
fn error(
    plan: &Plan,
    planned: &PlannedMetric,
    counts: &Counts,
    events: &[Event<'_>],
    value: f64,
) -> Option<f64> {
    let slopes: Option<Vec<f64>> = events
        .iter()
        .map(|event| slope(plan, planned, counts, event, value))
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
    // What is left where all of it cancels is rounding.
    Some(if variance > ROUNDING * apart {
        variance.sqrt()
    } else {
        0.0
    })
}

/// What rounding, and slopes that are those of steps, leave of a variance that cancels.
const ROUNDING: f64 = 1e-9;

/// How far a count may be changed to see what the metric makes of that.
const STEP: f64 = 1e-6;

/// What the metric changes by for one more count of an event; 0 where the count is exact. A value above its
/// bound is none, so it may be seen on one side only.
fn slope(
    plan: &Plan,
    planned: &PlannedMetric,
    counts: &Counts,
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
    let end = |changed: Result<Value, NoValue>| changed.map_or(value, |it| it.value);
    (steps > 0.0).then(|| (end(up) - end(down)) / (steps * STEP * count))
}

/// Counts of which one is a little larger.
struct Changed<'a> {
    counts: &'a Counts,
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
pub(super) fn of_places(plan: &Plan, window: &Window) -> Vec<PlaceRow> {
    let mut rows = Vec::new();
    for planned in &plan.metrics.list {
        for source in planned.sources.iter().flatten() {
            for socket in sockets(source, window) {
                rows.push(place_row(plan, planned, source, window, socket));
            }
        }
    }
    rows
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
    Some(place_row(plan, planned, source, window, socket).value)
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

fn place_row(
    plan: &Plan,
    planned: &PlannedMetric,
    source: &MetricSource,
    window: &Window,
    socket: u32,
) -> PlaceRow {
    let mut counts = Counts::of_uncore();
    // Of its units some may be on another socket.
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
    if let Some(ports) = source.place.ports() {
        counts.set(Implicit::NumPorts, f64::from(ports));
    }
    counts.set(Implicit::NumUnits, number(units));
    let mut place = source.place.clone();
    if place.socket.is_none() {
        place.socket = Some(socket);
    }
    PlaceRow {
        place,
        devices: devices(plan, source, socket),
        metric: MetricHead::of(planned),
        value: evaluate(plan, planned, counts),
    }
}

pub(super) fn evaluate(plan: &Plan, planned: &PlannedMetric, mut counts: Counts) -> MetricValue {
    counts.set(Implicit::NumCpus, number(plan.metrics.cpus));
    value_of(plan, planned, &counts).map(Measured::counted)
}

fn value_of(plan: &Plan, planned: &PlannedMetric, input: &impl Input) -> Result<Value, NoValue> {
    let machine = plan.metrics.machine.as_ref();
    let events = planned.metric.formula.events();
    let machine = machine.ok_or_else(|| NoValue::Missing(events.to_vec()))?;
    planned.metric.evaluate(machine, input)
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
