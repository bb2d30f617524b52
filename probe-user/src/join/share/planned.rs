//! The shares of a plan's metrics in a window.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{Method, NoShare, Shares, Traffic, Weights, device};
use crate::{
    catalogue::Apportion,
    join::Naming,
    plan::{CountSource, MetricSource, Plan, PlannedMetric},
    snapshot::UncoreReading,
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

/// What was counted, and how much of it may lie outside of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    count: u64,
    skew: u64,
}

/// The shares of every metric that can have any, for each socket that was read. A device is
/// somebody's as the view has it: all containers of a pod are one owner where rows are pods.
pub(crate) fn of_window(plan: &Plan, window: &Window, naming: &Naming) -> Vec<MetricShares> {
    let weights = weights(plan, window);
    let mut all = Vec::new();
    for (metric, planned) in plan.metrics.list.iter().enumerate() {
        let apportion = planned.metric.apportion;
        if apportion == Apportion::None {
            continue;
        }
        for (source, events) in planned.sources.iter().flatten().enumerate() {
            for (socket, counted) in counts(events, planned.metric.formula.events(), window) {
                // A port without traffic, mostly without a device.
                let idle = counted.is_some_and(|counted| counted.count == 0);
                if apportion.is_of_device() && idle {
                    continue;
                }
                let shares = |counted: Counted| {
                    if apportion.is_of_device() {
                        let devices = plan.devices_of(events, socket);
                        device::shares(apportion, &devices, counted.count, window, naming)
                    } else {
                        by_cpus(planned, window, &weights, socket, counted)
                    }
                };
                all.push(MetricShares {
                    metric,
                    source,
                    socket,
                    shares: counted.ok_or(NoShare::NotMeasured).and_then(shares),
                });
            }
        }
    }
    all
}

/// All weights of a window, the best first.
fn weights(plan: &Plan, window: &Window) -> Vec<Weights> {
    let samples = window.samples.iter();
    let sampled = samples.map(|samples| Weights::sampled(&samples.on_socket));
    let counted = plan.weights.iter();
    let counted = counted.map(|planned| Weights::counted(planned, window));
    sampled.chain(counted).collect()
}

fn by_cpus(
    planned: &PlannedMetric,
    window: &Window,
    weights: &[Weights],
    socket: u32,
    counted: Counted,
) -> Result<Shares, NoShare> {
    let writes = planned.metric.apportion == Apportion::CpuWrite;
    let usable: Vec<Weights> = weights
        .iter()
        .filter(|weights| (weights.method == Method::WriteBacks) == writes)
        .cloned()
        .collect();
    let best = |socket| Weights::best(&usable, socket);
    let mut traffic = Traffic {
        measured: counted.count,
        skew: counted.skew,
        mismatch: planned.metric.pmu.mismatch.map_or(0, u64::from),
        ..Traffic::default()
    };
    match planned.metric.apportion {
        Apportion::CpuReadRemote => return best(socket)?.own(socket, &traffic, true),
        Apportion::CpuReadSource => return best(socket)?.own(socket, &traffic, false),
        // Owners of one socket would get what those of another read.
        Apportion::CpuRead if planned.metric.from_sockets.is_none() && sockets(window) > 1 => {
            return Err(NoShare::OtherSockets);
        }
        _ => {}
    }
    if let Some(event) = &planned.metric.from_sockets {
        for (other, counted) in from_sockets(planned, event, window, socket)? {
            traffic.from_sockets.insert(other, counted.count);
            traffic.skew = traffic.skew.saturating_add(counted.skew);
        }
    }
    if planned.metric.io.is_some() {
        // Of a PMU that is not here nothing is planned.
        let places = Some(planned.io.as_slice()).filter(|places| !places.is_empty());
        let io = places.and_then(|places| sum(places, window, socket));
        let io = io.ok_or(NoShare::NotMeasured)?;
        traffic.io = io.count;
        traffic.skew = traffic.skew.saturating_add(io.skew);
    }
    // With the weights of one method for all sockets, so that the shares are of one kind.
    let mut chosen = best(socket);
    if chosen.is_err() && traffic.from_sockets.values().any(|count| *count > 0) {
        let mut others = traffic.from_sockets.keys();
        chosen = others
            .find_map(|other| best(*other).ok())
            .ok_or(NoShare::NoWeight);
    }
    let chosen = chosen?;
    match chosen.cpu_reads(socket, &traffic) {
        // Of the other socket there are too few samples: counters tell.
        Err(_) if chosen.method == Method::Spe => {
            let counters = usable.iter().filter(|other| other.method != Method::Spe);
            let counters: Vec<Weights> = counters.cloned().collect();
            by_cpus(planned, window, &counters, socket, counted)
        }
        shares => shares,
    }
}

/// Sockets on which anything was counted.
fn sockets(window: &Window) -> usize {
    let uncore = window.uncore.iter().map(|reading| reading.socket);
    let owners = window.on_socket.keys().map(|(socket, _)| *socket);
    uncore.chain(owners).collect::<BTreeSet<_>>().len()
}

/// What the other socket says it sent here. Of more than two, each counts what it sent to all
/// others.
fn from_sockets(
    planned: &PlannedMetric,
    event: &str,
    window: &Window,
    socket: u32,
) -> Result<BTreeMap<u32, Counted>, NoShare> {
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
fn counts(
    source: &MetricSource,
    names: &[String],
    window: &Window,
) -> BTreeMap<u32, Option<Counted>> {
    let of_names = source
        .events
        .iter()
        .filter(|(name, _)| names.contains(name));
    let places: Vec<CountSource> = of_names.map(|(_, place)| *place).collect();
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
fn sum(places: &[CountSource], window: &Window, socket: u32) -> Option<Counted> {
    let mut here = window
        .uncore
        .iter()
        .filter(|reading| reading.socket == socket && is_at(reading, places));
    here.try_fold(Counted::default(), |sum, reading| {
        Some(Counted {
            count: sum.count.checked_add(estimate(reading, reading.count?)?)?,
            skew: sum.skew.saturating_add(estimate(reading, reading.skew)?),
        })
    })
}

fn is_at(reading: &UncoreReading, places: &[CountSource]) -> bool {
    places.contains(&CountSource::Uncore { at: reading.at })
}

/// For the whole time, of a counter that had its turns.
fn estimate(reading: &UncoreReading, count: u64) -> Option<u64> {
    if reading.running == 0 {
        return None;
    }
    let enabled = u128::from(reading.enabled.max(reading.running));
    u64::try_from(u128::from(count) * enabled / u128::from(reading.running)).ok()
}
