//! Skew: traffic that an uncore counter counted while the weights were being read, which cannot be
//! placed inside or outside the window.

use std::collections::{BTreeSet, HashMap};

use super::Uncore;
use crate::{
    catalogue::Apportion,
    plan::{CountSource, Plan},
    snapshot::UncoreReading,
};

/// Counts at one moment, by event, socket and instance.
pub(crate) type Peek = HashMap<(usize, u32, u16), u64>;

impl Uncore {
    /// Reads the counters whose counts are apportioned to owners.
    pub(crate) fn peek(&self) -> Peek {
        let mut peek = Peek::new();
        for group in &self.groups {
            for ((socket, instance), unit) in &group.units {
                if !group
                    .events
                    .clone()
                    .any(|at| self.apportioned.contains(&at))
                {
                    continue;
                }
                let counters = group
                    .events
                    .clone()
                    .zip(unit.read_now().into_iter().flatten());
                let apportioned = counters.filter(|(at, _)| self.apportioned.contains(at));
                let counts =
                    apportioned.map(|(at, reading)| ((at, *socket, *instance), reading.count));
                peek.extend(counts);
            }
        }
        peek
    }

    /// Sets the skew of each reading: the larger one of two increases of its counter. One is from
    /// the peek `before` the first flush of a CPU to the reading, the other one from the reading to
    /// the peek `after` the last row was read.
    pub(crate) fn bound_skew(&self, readings: &mut [UncoreReading], before: &Peek, after: &Peek) {
        for reading in readings {
            let Some(count) = reading
                .count
                .filter(|_| self.apportioned.contains(&reading.at))
            else {
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

/// The events whose counts are apportioned to owners by counts of CPUs. Only for these the moment
/// of the reading matters.
pub(super) fn apportioned(plan: &Plan) -> BTreeSet<usize> {
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
