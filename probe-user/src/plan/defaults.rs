//! The default events: those of the core PMU if there is one, else those of the kernel.

use std::collections::BTreeMap;

use super::{
    RequestedEvent,
    capacity::{Capacity, Refusal},
    planner::requested_event,
};
use crate::{
    event::{self, EventError, EventGroup, UncountableEvent},
    machine::{MissingCapabilities, Pmus},
};

/// In order of importance: an event that does not fit with those before it is left out.
const HARDWARE: [&str; 6] = [
    "cycles",
    "instructions",
    "cache-misses",
    "branch-misses",
    "cache-references",
    "branches",
];

/// Without this event, nothing on the PMU is worth counting.
const NEEDED: &str = HARDWARE[0];

/// Always counted, since it takes no counter of the PMU.
const CLOCK: &str = "task-clock";

/// Without a PMU: counts of a command.
const COUNTS: &str = "task-clock,page-faults,context-switches,cpu-migrations";

/// [`COUNTS`] if waits can be counted: they show why containers do not run.
const WAIT_COUNTS: &str = "task-clock,cpu-wait,page-faults,context-switches";

/// Without a PMU: metrics of windows.
const RATES: &str = "cpus_used,page_faults_per_second,context_switches_per_second";

/// [`RATES`] if waits can be counted.
const WAIT_RATES: &str = "cpus_used,cpu_wait_ratio,page_faults_per_second";

/// What is counted by default.
#[derive(Debug, Default)]
pub struct DefaultRequest {
    /// Events.
    pub events: Vec<EventGroup>,
    /// Names of metrics.
    pub metrics: &'static str,
    /// Default events of the PMU that are not counted, and why.
    pub left_out: Vec<UncountableEvent>,
}

/// Why a default event is not counted, although the PMU has it.
pub(crate) const NO_COUNTER: &str = "no counter is left";

/// Why the default events cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefaultsError {
    /// A default event is unknown here.
    #[error(transparent)]
    Event(#[from] EventError),
    /// A capability is missing.
    #[error(transparent)]
    Capabilities(#[from] MissingCapabilities),
}

/// With a PMU: cycles, instructions and the other default events that it counts at the same time,
/// so that nothing is multiplexed. Without one: software events, and waits for a CPU if `waits`; as
/// `rates`, or else as counts. Logs what is left out, and why.
///
/// # Errors
///
/// If the machine cannot be read.
pub fn default_request(
    pmus: &Pmus,
    capacity: &Capacity,
    (waits, rates): (bool, bool),
) -> Result<DefaultRequest, DefaultsError> {
    let names = match (waits, rates) {
        (true, true) => WAIT_RATES,
        (true, false) => WAIT_COUNTS,
        (false, true) => RATES,
        (false, false) => COUNTS,
    };
    let shown = names.replace(',', ", ");
    let without_pmu = || -> Result<DefaultRequest, DefaultsError> {
        let mut chosen = DefaultRequest::default();
        match rates {
            true => chosen.metrics = names,
            false => chosen.events = event::parse(names, pmus)?,
        }
        Ok(chosen)
    };
    if pmus.cores().next().is_none() {
        tracing::info!("this machine has no hardware PMU: counting {shown}");
        return without_pmu();
    }
    let chosen = DefaultEvents::choose(pmus, capacity)?;
    if let Some((_, refusal)) = chosen.uncountable.iter().find(|(name, _)| *name == NEEDED) {
        tracing::warn!("cannot count {NEEDED}: {refusal}; counting {shown}");
        return Ok(DefaultRequest {
            left_out: chosen.reasons().collect(),
            ..without_pmu()?
        });
    }
    if !chosen.uncountable.is_empty() {
        let names: Vec<&str> = chosen.uncountable.iter().map(|(name, _)| *name).collect();
        tracing::info!("this PMU does not count {}", names.join(", "));
    }
    if let Some(line) = chosen.left_out() {
        tracing::info!("{line}");
    }
    Ok(DefaultRequest {
        left_out: chosen.reasons().collect(),
        events: chosen.events,
        metrics: "",
    })
}

/// The events that are counted by default.
struct DefaultEvents {
    events: Vec<EventGroup>,
    /// Events that the PMU counts, but not together with the others.
    left_out: Vec<&'static str>,
    /// Events that cannot be counted at all.
    uncountable: Vec<(&'static str, Refusal)>,
}

impl DefaultEvents {
    fn choose(pmus: &Pmus, capacity: &Capacity) -> Result<Self, EventError> {
        let mut chosen = Self {
            events: Vec::new(),
            left_out: Vec::new(),
            uncountable: Vec::new(),
        };
        // By core PMU: the events that are counted there at one time.
        let mut groups: BTreeMap<Option<String>, Vec<RequestedEvent>> = BTreeMap::new();
        for name in HARDWARE {
            let parsed = event::parse(name, pmus)?;
            let events: Vec<RequestedEvent> = parsed
                .iter()
                .flat_map(|group| &group.events)
                .filter_map(requested_event)
                .collect();
            let mut extended = groups.clone();
            for wanted in &events {
                let group = extended.entry(wanted.counter.pmu.clone()).or_default();
                group.push(wanted.clone());
            }
            let fits_alone =
                |wanted: &RequestedEvent| capacity.can_schedule(std::slice::from_ref(wanted));
            if extended
                .values()
                .all(|group| capacity.can_schedule(group).is_ok())
            {
                groups = extended;
                chosen.events.extend(parsed);
                continue;
            }
            match events.iter().try_for_each(fits_alone) {
                Err(refusal) if name == NEEDED || !refusal.is_sampled_conflict() => {
                    chosen.uncountable.push((name, refusal));
                }
                _ => chosen.left_out.push(name),
            }
        }
        chosen.events.extend(event::parse(CLOCK, pmus)?);
        Ok(chosen)
    }

    /// The default events that are not counted, with the reasons, in the order of importance.
    fn reasons(&self) -> impl Iterator<Item = UncountableEvent> {
        HARDWARE.into_iter().filter_map(|name| {
            let mut uncountable = self.uncountable.iter();
            let reason = match uncountable.find(|(absent, _)| *absent == name) {
                Some((_, refusal)) => refusal.to_string(),
                None if self.left_out.contains(&name) => NO_COUNTER.to_owned(),
                None => return None,
            };
            Some(UncountableEvent {
                name: name.to_owned(),
                reason,
            })
        })
    }

    /// One line about the events without a free counter; `None` if there are none.
    fn left_out(&self) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let is_countable = |name: &&str| self.uncountable.iter().all(|(absent, _)| absent != name);
        let countable: Vec<&str> = HARDWARE.into_iter().filter(is_countable).collect();
        Some(format!(
            "not counted, as no counter is left for it: {}; in turns: `-e {},{CLOCK}`",
            self.left_out.join(", "),
            countable.join(","),
        ))
    }
}

#[cfg(test)]
mod tests {
    use test_support::sysfs;

    use super::*;
    use crate::{
        catalogue::{Catalogue, Chip, Hardware, MetricSettings},
        plan::{Plan, planner::ResolvedRequest},
    };

    /// The default events on a core with six general counters and one for cycles.
    fn chosen(reserve: usize) -> (DefaultEvents, Plan) {
        let pmus = Pmus::read(&sysfs("grace")).unwrap();
        let machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
        let catalogue = Catalogue::builtin().unwrap();
        let capacity = Capacity::documented(&catalogue, &machine, &pmus, reserve);
        let chosen = DefaultEvents::choose(&pmus, &capacity).unwrap();
        let request = ResolvedRequest {
            events: &chosen.events,
            metrics: &[],
            offered: &[],
            machine,
            cpus: 2,
            settings: MetricSettings::default(),
        };
        let plan = Plan::packed(&request, &pmus, &capacity).unwrap();
        (chosen, plan)
    }

    #[test]
    fn default_events_are_not_multiplexed() {
        for reserve in 0..6 {
            let (chosen, plan) = chosen(reserve);
            assert_eq!(plan.rotated, 0, "{reserve} counters for others");
            // The core has seven counters; one of them counts cycles only.
            let capacity = 7 - reserve;
            let columns: Vec<&str> = plan
                .columns
                .iter()
                .map(|column| column.name.as_str())
                .collect();
            let (last, counted) = columns.split_last().unwrap();
            assert_eq!(counted, &HARDWARE[..capacity.min(6)]);
            assert_eq!(*last, CLOCK);
            assert_eq!(chosen.left_out, &HARDWARE[capacity.min(6)..]);
        }
    }

    #[test]
    fn left_out_events_are_one_line_with_the_option_that_counts_them() {
        assert_eq!(chosen(0).0.left_out(), None);
        assert_eq!(
            chosen(3).0.left_out().unwrap(),
            "not counted, as no counter is left for it: cache-references, branches; in turns: \
             `-e cycles,instructions,cache-misses,branch-misses,cache-references,branches,task-clock`"
        );
    }
}
