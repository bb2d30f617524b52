//! The shares of a plan's metrics in a window.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    NoShare, Shares, Traffic, Weights, calibrated, calibrated::Sockets, counted::is_idle, device,
};
use crate::{
    catalogue::{Apportion, MemoryTraffic},
    join::Naming,
    plan::{CountSource, MetricSource, Plan, PlannedMetric},
    snapshot::UncoreReading,
    window::{Owner, Window},
};

/// The shares of one metric on one socket.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricShares {
    /// Index into the metrics of the plan.
    pub metric: usize,
    /// Index into the metric's sources.
    pub source: usize,
    /// The socket.
    pub socket: u32,
    /// The shares, or the reason for their absence.
    pub shares: Result<Shares, NoShare>,
}

/// A count, and how many counts of it may lie outside the window.
#[derive(Clone, Copy, Debug, Default)]
struct UncoreCount {
    count: u64,
    skew: u64,
}

/// The shares of every metric that is apportioned, for each socket that was read. A device's owner
/// is a row of the view: if rows are pods, all containers of a pod are one owner.
pub(crate) fn of_window(plan: &Plan, window: &Window, naming: &Naming) -> Vec<MetricShares> {
    let weights = weights(plan, window);
    let chip = plan.metrics.machine.and_then(|machine| machine.chip);
    let mut metric_shares = Vec::new();
    for (metric, planned) in plan.metrics.list.iter().enumerate() {
        let apportion = planned.metric.apportion;
        if apportion == Apportion::None {
            continue;
        }
        for (source, events) in planned.sources.iter().flatten().enumerate() {
            for (socket, counted) in counts(events, planned.metric.formula.events(), window) {
                // A port without traffic is left out: usually it has no device.
                let has_no_traffic = counted.is_some_and(|counted| counted.count == 0);
                if apportion.is_of_device() && has_no_traffic {
                    continue;
                }
                let shares = |counted: UncoreCount| {
                    if apportion.is_of_device() {
                        let devices = plan.devices_of(events, socket);
                        device::shares(apportion, &devices, counted.count, window, naming)
                    } else {
                        let has_other_memory =
                            chip.is_some_and(|chip| planned.metric.not_shared_on.contains(&chip));
                        let traffic = traffic(planned, window, socket, counted, has_other_memory)?;
                        calibrated(plan, planned, (window, naming), &weights, socket, &traffic)
                            .unwrap_or_else(|| by_cpus(planned, window, &weights, socket, &traffic))
                    }
                };
                metric_shares.push(MetricShares {
                    metric,
                    source,
                    socket,
                    shares: counted.ok_or(NoShare::NotMeasured).and_then(shares),
                });
            }
        }
    }
    metric_shares
}

/// All weights of a window, the best first. Samples come last: they miss the traffic of prefetches
/// and streaming stores.
fn weights(plan: &Plan, window: &Window) -> Vec<Weights> {
    let mut counted: Vec<_> = plan
        .weights
        .iter()
        .map(|planned| Weights::counted(planned, window))
        .collect();
    let reads = counted
        .iter()
        .find(|weights| weights.of == MemoryTraffic::Reads);
    if let Some(reads) = reads.filter(|reads| reads.by_memory).cloned() {
        let like = |weights: Weights| match weights.of {
            MemoryTraffic::Writes if !weights.by_memory => weights.by_memory_like(&reads),
            _ => weights,
        };
        counted = counted.into_iter().map(like).collect();
    }
    let sampled = window
        .access_samples()
        .map(|samples| Weights::sampled(&samples.on_socket));
    counted.extend(sampled);
    counted
}

/// The shares by a calibration of the metric's traffic; None if no calibration applies. It never
/// does on more than two sockets, and on two only to metrics of the traffic of all sockets
/// ([`crate::catalogue::Metric::is_of_all_sockets`]).
fn calibrated(
    plan: &Plan,
    planned: &PlannedMetric,
    (window, naming): (&Window, &Naming),
    weights: &[Weights],
    socket: u32,
    traffic: &Traffic,
) -> Option<Result<Shares, NoShare>> {
    let calibration = &plan.calibration;
    let mut traffics = calibration.traffics.iter();
    let calibrated = traffics.find(|it| it.metric == planned.metric.name)?;
    let mut others = sockets(window);
    others.remove(&socket);
    let other = others.pop_first();
    if !others.is_empty() || other.is_some() && !planned.metric.is_of_all_sockets() {
        return None;
    }
    let mut traffic = traffic.clone();
    if let Some(other) = other.filter(|_| !planned.metric.io.is_empty()) {
        // Each socket counts what its devices move, whichever memory they use.
        let Some(theirs) = sum(&planned.io, window, other) else {
            return Some(Err(NoShare::NotMeasured));
        };
        let elsewhere = traffic.io.max(theirs.count);
        traffic.skew = traffic.skew.saturating_add(elsewhere);
    }
    let sockets = Sockets { own: socket, other };
    let row_of = |owner| naming.entity(owner);
    let ran = ran(window).map(|(_, owner)| owner);
    let made_on = calibration.made_on;
    calibrated::shares(calibrated, made_on, weights, sockets, &traffic, ran, row_of)
}

/// The shares by the best weights that cover all CPUs that took part.
fn by_cpus(
    planned: &PlannedMetric,
    window: &Window,
    weights: &[Weights],
    socket: u32,
    traffic: &Traffic,
) -> Result<Shares, NoShare> {
    let needed = planned.metric.apportion.needs();
    let usable = weights.iter().filter(|weights| Some(weights.of) == needed);
    let mut why = NoShare::NoWeight;
    for weights in usable {
        match divide_by(planned, window, weights, socket, traffic) {
            Ok(mut shares) => {
                shares.add_uncounted(ran_on(window, socket).filter(|owner| {
                    // All accesses of an owner that was counted may have gone to other memory.
                    !weights.has_counted(socket, *owner)
                }));
                return Ok(shares);
            }
            // Reports the first reason other than `NoWeight`, which is that of the best weights.
            Err(reason) if why == NoShare::NoWeight => why = reason,
            Err(_) => {}
        }
    }
    Err(why)
}

/// The shares by these weights.
fn divide_by(
    planned: &PlannedMetric,
    window: &Window,
    weights: &Weights,
    socket: u32,
    traffic: &Traffic,
) -> Result<Shares, NoShare> {
    match planned.metric.apportion {
        Apportion::CpuReadRemote => {
            weights.tells_of(socket)?;
            return weights.own(socket, traffic, true);
        }
        Apportion::CpuReadSource | Apportion::CpuWriteSource => {
            weights.tells_of(socket)?;
            return weights.own(socket, traffic, false);
        }
        _ => {}
    }
    if planned.metric.from_sockets.is_none() {
        let mut others = sockets(window);
        others.remove(&socket);
        let mut others = others.into_iter();
        match (others.next(), others.next()) {
            (None, _) => {}
            (Some(other), None) => return weights.two_sockets(socket, other, traffic),
            (Some(_), Some(_)) => return Err(NoShare::ManySockets),
        }
    }
    let mut sent = traffic.from_sockets.iter().filter(|(_, count)| **count > 0);
    weights.tells_of(socket).or_else(|reason| {
        let has_senders = sent.any(|(other, _)| weights.tells_of(*other).is_ok());
        has_senders.then_some(()).ok_or(reason)
    })?;
    weights.cpu_reads(socket, traffic)
}

/// The measured traffic of a socket. `has_other_memory`: traffic from other sockets may have gone
/// to another memory of this socket.
fn traffic(
    planned: &PlannedMetric,
    window: &Window,
    socket: u32,
    counted: UncoreCount,
    has_other_memory: bool,
) -> Result<Traffic, NoShare> {
    let mut traffic = Traffic {
        measured: counted.count,
        skew: counted.skew,
        mismatch: planned.metric.pmu.mismatch.map_or(0, u64::from),
        ..Traffic::default()
    };
    if let Some(event) = &planned.metric.from_sockets {
        for (other, counted) in from_sockets(planned, event, window, socket)? {
            traffic.from_sockets.insert(other, counted.count);
            traffic.skew = traffic.skew.saturating_add(counted.skew);
        }
    }
    if has_other_memory {
        let sent = traffic
            .from_sockets
            .values()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        let elsewhere = elsewhere(planned, window, socket).ok_or(NoShare::BothMemories)?;
        if elsewhere > 0 && elsewhere >= sent {
            return Err(NoShare::BothMemories);
        }
        traffic.elsewhere = elsewhere;
    }
    if !planned.metric.io.is_empty() {
        // If the PMU is not present, no events of devices are planned.
        let places = Some(planned.io.as_slice()).filter(|places| !places.is_empty());
        let io = places
            .and_then(|places| sum(places, window, socket))
            .ok_or(NoShare::NotMeasured)?;
        traffic.io = io.count;
        traffic.skew = traffic.skew.saturating_add(io.skew);
    }
    Ok(traffic)
}

/// The traffic of a metric on a socket, in counts of its formula's events.
pub(crate) fn measured_traffic(
    planned: &PlannedMetric,
    window: &Window,
    socket: u32,
) -> Option<u64> {
    let mut sources = planned.sources.iter().flatten();
    let counted = sources.find_map(|events| {
        let counts = counts(events, planned.metric.formula.events(), window);
        counts.get(&socket).copied()
    });
    Some(counted??.count)
}

/// The sockets with a count of an uncore event or of an owner.
fn sockets(window: &Window) -> BTreeSet<u32> {
    let uncore = window.uncore.iter().map(|reading| reading.socket);
    let owners = window.on_socket.keys().map(|(socket, _)| *socket);
    uncore.chain(owners).collect()
}

/// The owners that ran and their sockets, without the idle task.
pub(super) fn ran(window: &Window) -> impl Iterator<Item = (u32, Owner)> {
    let ran = window.on_socket.iter().filter(|((_, owner), usage)| {
        let mut groups = usage.iter().flatten();
        !is_idle(*owner, window) && groups.any(|row| row.enabled > 0)
    });
    ran.map(|(at, _)| *at)
}

/// The owners that ran on a socket.
fn ran_on(window: &Window, socket: u32) -> impl Iterator<Item = Owner> {
    let here = ran(window).filter(move |(on, _)| *on == socket);
    here.map(|(_, owner)| owner)
}

/// The traffic from all CPUs to the other memory of a socket; None if it was not counted.
fn elsewhere(planned: &PlannedMetric, window: &Window, socket: u32) -> Option<u64> {
    let event = planned.metric.other_memory.as_ref()?;
    let mut sources = planned.sources.iter().flatten();
    let counted = sources.find_map(|source| {
        let counts = counts(source, std::slice::from_ref(event), window);
        counts.get(&socket).copied()
    });
    Some(counted??.count)
}

/// The traffic that each other socket counted as sent to this one, by events for each destination.
/// Without such events each socket counts what it sent to all others together, which is usable only
/// with two sockets.
fn from_sockets(
    planned: &PlannedMetric,
    event: &str,
    window: &Window,
    socket: u32,
) -> Result<BTreeMap<u32, UncoreCount>, NoShare> {
    let counted = |event: String| -> Result<BTreeMap<u32, UncoreCount>, NoShare> {
        let mut from = BTreeMap::new();
        for source in planned.sources.iter().flatten() {
            for (other, count) in counts(source, std::slice::from_ref(&event), window) {
                if other != socket {
                    from.insert(other, count.ok_or(NoShare::NotMeasured)?);
                }
            }
        }
        Ok(from)
    };
    if let Some(to_this_socket) = planned.metric.from_each(socket) {
        let from = counted(to_this_socket)?;
        let is_complete = sockets(window)
            .into_iter()
            .all(|other| other == socket || from.contains_key(&other));
        match from.is_empty() {
            false if is_complete => return Ok(from),
            false => return Err(NoShare::NotMeasured),
            true => {}
        }
    }
    let from = counted(event.to_owned())?;
    if from.len() > 1 {
        return Err(NoShare::ManySockets);
    }
    Ok(from)
}

/// The sum of a source's events, by socket; `None` if one of them had no count.
fn counts(
    source: &MetricSource,
    names: &[String],
    window: &Window,
) -> BTreeMap<u32, Option<UncoreCount>> {
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

/// The sum of the counts of these sources on a socket, each scaled to the whole time; None if a
/// count is missing.
fn sum(places: &[CountSource], window: &Window, socket: u32) -> Option<UncoreCount> {
    let mut here = window
        .uncore
        .iter()
        .filter(|reading| reading.socket == socket && is_at(reading, places));
    here.try_fold(UncoreCount::default(), |sum, reading| {
        Some(UncoreCount {
            count: sum.count.checked_add(estimate(reading, reading.count?)?)?,
            skew: sum.skew.saturating_add(estimate(reading, reading.skew)?),
        })
    })
}

fn is_at(reading: &UncoreReading, places: &[CountSource]) -> bool {
    places.contains(&CountSource::Uncore { at: reading.at })
}

/// The count of a multiplexed counter, scaled to the whole time; None if it never ran.
fn estimate(reading: &UncoreReading, count: u64) -> Option<u64> {
    if reading.running == 0 {
        return None;
    }
    let enabled = u128::from(reading.enabled.max(reading.running));
    u64::try_from(u128::from(count) * enabled / u128::from(reading.running)).ok()
}
