//! The shares of a plan's metrics in a window.

use std::collections::BTreeMap;

use super::{Method, NoShare, Shares, Traffic, Weights};
use crate::{
    catalogue::Apportion,
    load::{MetricSource, Place, Plan, PlannedMetric},
    pull::UncoreReading,
    window::Window,
};

/// Whose one metric's counts are, on one socket.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricShares {
    /// Index into the metrics of the plan.
    pub metric: usize,
    /// Index into the metric's sources.
    pub source: usize,
    /// The socket.
    pub socket: u32,
    /// By owner, or why there are none.
    pub shares: Result<Shares, NoShare>,
}

/// The shares of every metric that can have any, for each socket that was read.
#[must_use]
pub fn of_window(plan: &Plan, window: &Window) -> Vec<MetricShares> {
    let weights: Vec<Weights> = plan
        .weights
        .iter()
        .map(|planned| Weights::counted(planned, window))
        .collect();
    let mut all = Vec::new();
    for (metric, planned) in plan.metrics.list.iter().enumerate() {
        if matches!(
            planned.metric.apportion,
            Apportion::None | Apportion::Device
        ) {
            continue;
        }
        for (source, events) in planned.sources.iter().flatten().enumerate() {
            for (socket, measured) in counts(events, planned.metric.formula.events(), window) {
                all.push(MetricShares {
                    metric,
                    source,
                    socket,
                    shares: measured
                        .ok_or(NoShare::NotMeasured)
                        .and_then(|measured| shares(planned, window, &weights, socket, measured)),
                });
            }
        }
    }
    all
}

fn shares(
    planned: &PlannedMetric,
    window: &Window,
    weights: &[Weights],
    socket: u32,
    measured: u64,
) -> Result<Shares, NoShare> {
    let writes = planned.metric.apportion == Apportion::CpuWrite;
    let usable: Vec<Weights> = weights
        .iter()
        .filter(|weights| (weights.method == Method::WriteBacks) == writes)
        .cloned()
        .collect();
    let best = |socket| Weights::best(&usable, socket);
    match planned.metric.apportion {
        Apportion::CpuReadRemote => best(socket)?.own(socket, measured, true),
        Apportion::CpuReadSource => best(socket)?.own(socket, measured, false),
        Apportion::CpuRead | Apportion::CpuWrite | Apportion::Device | Apportion::None => {
            let from_sockets = match &planned.metric.from_sockets {
                Some(event) => from_sockets(planned, event, window, socket)?,
                None => BTreeMap::new(),
            };
            let io = match planned.io.as_slice() {
                [] if planned.metric.io.is_some() => return Err(NoShare::NotMeasured),
                [] => 0,
                places => sum(places, window, socket).ok_or(NoShare::NotMeasured)?,
            };
            let traffic = Traffic {
                measured,
                io,
                from_sockets,
            };
            // With the weights of one method for all sockets, so that the shares are of one kind.
            let mut chosen = best(socket);
            if chosen.is_err() && traffic.from_sockets.values().any(|count| *count > 0) {
                let mut others = traffic.from_sockets.keys();
                chosen = others
                    .find_map(|other| best(*other).ok())
                    .ok_or(NoShare::NoWeight);
            }
            chosen?.cpu_reads(socket, &traffic)
        }
    }
}

/// What the other socket says it sent here. Of more than two, each counts what it sent to all others.
fn from_sockets(
    planned: &PlannedMetric,
    event: &str,
    window: &Window,
    socket: u32,
) -> Result<BTreeMap<u32, u64>, NoShare> {
    let mut from = BTreeMap::new();
    for source in planned.sources.iter().flatten() {
        for (other, count) in counts(source, &[event.to_owned()], window) {
            if other != socket {
                from.insert(other, count.ok_or(NoShare::NotMeasured)?);
            }
        }
    }
    if from.len() > 1 {
        return Err(NoShare::ManySockets);
    }
    Ok(from)
}

/// What the events of a source counted together, by socket; `None` where one had no count.
fn counts(source: &MetricSource, names: &[String], window: &Window) -> BTreeMap<u32, Option<u64>> {
    let of_names = source
        .events
        .iter()
        .filter(|(name, _)| names.contains(name));
    let places: Vec<Place> = of_names.map(|(_, place)| *place).collect();
    let sockets = window
        .uncore
        .iter()
        .filter(|reading| is_at(reading, &places));
    let mut counts = BTreeMap::new();
    for reading in sockets {
        counts
            .entry(reading.socket)
            .or_insert_with(|| sum(&places, window, reading.socket));
    }
    counts
}

/// The sum of the counts at these places on a socket, each for the whole time.
fn sum(places: &[Place], window: &Window, socket: u32) -> Option<u64> {
    let here = window
        .uncore
        .iter()
        .filter(|reading| reading.socket == socket && is_at(reading, places));
    here.map(estimate)
        .try_fold(0_u64, |sum, count| sum.checked_add(count?))
}

fn is_at(reading: &UncoreReading, places: &[Place]) -> bool {
    places.contains(&Place::Uncore { at: reading.at })
}

fn estimate(reading: &UncoreReading) -> Option<u64> {
    let count = u128::from(reading.count?);
    if reading.running == 0 {
        return None;
    }
    let enabled = u128::from(reading.enabled.max(reading.running));
    u64::try_from(count * enabled / u128::from(reading.running)).ok()
}
