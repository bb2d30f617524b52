//! Skew: traffic that an uncore counter counted while the weights were being read, which cannot be
//! placed inside or outside the window.

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
    /// Reads the counters whose counts are divided among owners.
    pub(crate) fn peek(&self) -> Peek {
        let mut peek = Peek::new();
        for group in &self.groups {
            for ((socket, instance), unit) in &group.units {
                if !group.events.clone().any(|at| self.divided.contains(&at)) {
                    continue;
                }
                let counters = group
                    .events
                    .clone()
                    .zip(unit.read_now().into_iter().flatten());
                let divided = counters.filter(|(at, _)| self.divided.contains(at));
                peek.extend(divided.map(|(at, reading)| ((at, *socket, *instance), reading.count)));
            }
        }
        peek
    }

    /// Sets the skew of each reading: how far its counter moved from the peek `before` the first
    /// CPU was flushed to the reading, or from the reading to the peek `after` the last row was
    /// read, whichever is more.
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
                // The unit was reopened in between, or is gone: the skew is unknown, and at most
                // the count.
                _ => count,
            };
        }
    }
}

/// The events whose counts are divided among owners by counts of CPUs: the moment of their reading
/// matters.
pub(super) fn divided(plan: &Plan) -> BTreeSet<usize> {
    let by_cpus = |apportion: Apportion| apportion != Apportion::None && !apportion.is_of_device();
    let metrics = plan.metrics.list.iter();
    let sources = metrics
        .filter(|planned| by_cpus(planned.metric.apportion))
        .flat_map(|planned| {
            let planned_sources = planned.sources.iter().flatten();
            let events =
                planned_sources.flat_map(|source| source.events.iter().map(|(_, event)| event));
            events.chain(&planned.io)
        });
    sources
        .filter_map(|source| match source {
            CountSource::Uncore { at } => Some(*at),
            CountSource::Core { .. } | CountSource::Duration | CountSource::Sampled(_) => None,
        })
        .collect()
}
