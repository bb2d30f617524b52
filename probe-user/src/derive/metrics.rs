//! Documented metrics of entities, sockets and devices.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    catalogue::{self, Counts},
    devices::Device,
    formula::{Implicit, NoValue, Value},
    load::{MetricSource, Place, Plan, PlannedMetric},
    window::{Usage, Window},
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
}

impl Measured {
    fn counted(value: Value) -> Self {
        Self {
            value: value.value,
            live: value.live,
            interval: None,
        }
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
        let core =
            |(_, place): &(String, Place)| matches!(place, Place::Core { .. } | Place::Sampled(_));
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

/// The metrics of one entity. Counts are scaled by enabled / running, time is the wall's.
pub(super) fn of_usage(plan: &Plan, usage: &Usage, length: Duration) -> Vec<MetricValue> {
    let ran = usage.iter().flatten().any(|row| row.enabled > 0);
    let value = |(planned, source): (&PlannedMetric, &MetricSource)| {
        if !ran && !source.events.is_empty() {
            return Err(NoValue::DidNotRun);
        }
        let mut counts = Counts::of_cpus(length);
        for (event, place) in &source.events {
            let Place::Core { group, at } = place else {
                continue;
            };
            if let Some(row) = usage.get(*group).and_then(Option::as_ref)
                && row.enabled > 0
            {
                counts.add(event, row.counts[*at], row.enabled, row.running);
            }
        }
        evaluate(plan, planned, counts)
    };
    cores(plan).map(value).collect()
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
        places.any(|place| *place == Place::Uncore { at })
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
        let Place::Uncore { at } = place else {
            continue;
        };
        let here = |reading: &&_| {
            let reading: &crate::pull::UncoreReading = reading;
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
    let Some(machine) = &plan.metrics.machine else {
        return Err(NoValue::Missing(planned.metric.formula.events().to_vec()));
    };
    counts.set(Implicit::NumCpus, number(plan.metrics.cpus));
    let value = planned.metric.evaluate(machine, &counts)?;
    Ok(Measured::counted(value))
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
