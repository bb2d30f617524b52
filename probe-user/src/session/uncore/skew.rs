//! The edges of a window: how far a counter that is shared out moved while a pull took the weights,
//! so that nobody can tell whether that traffic is inside the window of the weights or outside.

use std::collections::{BTreeSet, HashMap};

use super::Uncore;
use crate::{
    catalogue::Apportion,
    plan::{CountSource, Plan},
    snapshot::UncoreReading,
};

/// Counts by event, socket and instance.
pub(crate) type Peek = HashMap<(usize, u32, u16), u64>;

impl Uncore {
    /// What the counters that are divided hold at this moment.
    pub(crate) fn peek(&self) -> Peek {
        let mut peek = Peek::new();
        for group in &self.groups {
            for ((socket, instance), unit) in &group.units {
                if !group.events.clone().any(|at| self.divided.contains(&at)) {
                    continue;
                }
                let counters = group.events.clone().zip(unit.now().into_iter().flatten());
                let divided = counters.filter(|(at, _)| self.divided.contains(at));
                peek.extend(divided.map(|(at, reading)| ((at, *socket, *instance), reading.count)));
            }
        }
        peek
    }

    /// Tells each reading how far its counter moved while the pull that it belongs to took the
    /// weights: between a peek before the first CPU was flushed and one after the last row was
    /// read.
    pub(crate) fn bound_skew(&self, readings: &mut [UncoreReading], before: &Peek, after: &Peek) {
        for reading in readings {
            let Some(count) = reading.count.filter(|_| self.divided.contains(&reading.at)) else {
                continue;
            };
            let key = (reading.at, reading.socket, reading.instance);
            reading.skew = match (before.get(&key), after.get(&key)) {
                (Some(before), Some(after)) => count
                    .saturating_sub(*before)
                    .max(after.saturating_sub(count)),
                // Opened again in between, or gone: its edge is not known.
                _ => count,
            };
        }
    }
}

/// The events whose counts are divided by what CPUs counted: of those the moment of the reading
/// matters.
pub(super) fn divided(plan: &Plan) -> BTreeSet<usize> {
    let by_cpus = |apportion: Apportion| apportion != Apportion::None && !apportion.is_of_device();
    let metrics = plan.metrics.list.iter();
    let places = metrics
        .filter(|planned| by_cpus(planned.metric.apportion))
        .flat_map(|planned| {
            let sources = planned.sources.iter().flatten();
            let events = sources.flat_map(|source| source.events.iter().map(|(_, place)| place));
            events.chain(&planned.io)
        });
    places
        .filter_map(|place| match place {
            CountSource::Uncore { at } => Some(*at),
            CountSource::Core { .. } | CountSource::Duration | CountSource::Sampled(_) => None,
        })
        .collect()
}
