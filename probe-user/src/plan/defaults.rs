//! What is counted where the user does not say: the core PMU where there is one, else what the
//! kernel counts itself.

use std::collections::BTreeMap;

use super::{
    RequestedEvent,
    capacity::{Capacity, Refusal},
    planner::wanted,
};
use crate::{
    event::{self, EventError, EventGroup},
    machine::{MissingCapabilities, Pmus, capabilities},
};

/// In the order of worth: what does not fit beside those before it is left out.
const HARDWARE: [&str; 6] = [
    "cycles",
    "instructions",
    "cache-misses",
    "branch-misses",
    "cache-references",
    "branches",
];

/// Without it nothing on the PMU is worth counting.
const NEEDED: &str = HARDWARE[0];

/// Takes no counter of the PMU.
const BESIDE: &str = "task-clock";

const SOFTWARE: &str = "task-clock,page-faults,context-switches,cpu-migrations";

/// What could not be found out about the machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefaultsError {
    /// The machine's own description.
    #[error(transparent)]
    Event(#[from] EventError),
    /// A right that is missing.
    #[error(transparent)]
    Capabilities(#[from] MissingCapabilities),
}

/// Cycles, instructions and what the PMU counts beside them at one time, so that nothing takes
/// turns; without a PMU, software events. Says what it left out and why.
///
/// # Errors
///
/// Where the machine cannot be read, or counting is not permitted at all.
pub fn default_events(pmus: &Pmus, capacity: &Capacity) -> Result<Vec<EventGroup>, DefaultsError> {
    capabilities::check()?;
    if pmus.cores().next().is_none() {
        tracing::info!(
            "this machine has no hardware PMU: counting {}",
            SOFTWARE.replace(',', ", ")
        );
        return Ok(event::parse(SOFTWARE, pmus)?);
    }
    let chosen = Chosen::of(pmus, capacity)?;
    if let Some((_, refusal)) = chosen.not_here.iter().find(|(name, _)| *name == NEEDED) {
        tracing::warn!(
            "cannot count {NEEDED}: {refusal}; counting {}",
            SOFTWARE.replace(',', ", ")
        );
        return Ok(event::parse(SOFTWARE, pmus)?);
    }
    if !chosen.not_here.is_empty() {
        let names: Vec<&str> = chosen.not_here.iter().map(|(name, _)| *name).collect();
        tracing::info!("this PMU does not count {}", names.join(", "));
    }
    if let Some(line) = chosen.left_out() {
        tracing::info!("{line}");
    }
    Ok(chosen.events)
}

/// The events that are counted by default.
struct Chosen {
    events: Vec<EventGroup>,
    /// Those that the PMU counts, but not beside the others.
    left_out: Vec<&'static str>,
    /// Those that cannot be counted at all.
    not_here: Vec<(&'static str, Refusal)>,
}

impl Chosen {
    fn of(pmus: &Pmus, capacity: &Capacity) -> Result<Self, EventError> {
        let mut chosen = Self {
            events: Vec::new(),
            left_out: Vec::new(),
            not_here: Vec::new(),
        };
        // By core PMU: what is counted there at one time.
        let mut groups: BTreeMap<Option<String>, Vec<RequestedEvent>> = BTreeMap::new();
        for name in HARDWARE {
            let parsed = event::parse(name, pmus)?;
            let all = parsed.iter().flat_map(|group| &group.events);
            let all: Vec<RequestedEvent> = all.filter_map(wanted).collect();
            let mut with = groups.clone();
            for wanted in &all {
                let group = with.entry(wanted.counter.pmu.clone()).or_default();
                group.push(wanted.clone());
            }
            let alone =
                |wanted: &RequestedEvent| capacity.can_schedule(std::slice::from_ref(wanted));
            if with
                .values()
                .all(|group| capacity.can_schedule(group).is_ok())
            {
                groups = with;
                chosen.events.extend(parsed);
                continue;
            }
            match all.iter().try_for_each(alone) {
                Err(refusal) if name == NEEDED || !refusal.is_of_room() => {
                    chosen.not_here.push((name, refusal));
                }
                _ => chosen.left_out.push(name),
            }
        }
        chosen.events.extend(event::parse(BESIDE, pmus)?);
        Ok(chosen)
    }

    /// One line about what the PMU has no counter left for.
    fn left_out(&self) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let not_here = |name: &&str| self.not_here.iter().all(|(absent, _)| absent != name);
        let all: Vec<&str> = HARDWARE.into_iter().filter(not_here).collect();
        Some(format!(
            "not counted, as no counter is left for it: {}; in turns: `-e {},{BESIDE}`",
            self.left_out.join(", "),
            all.join(","),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalogue::{Catalogue, Chip, Hardware, Settings},
        plan::{Plan, planner::Request},
        sys::tree::fixture,
    };

    /// On a core that counts six events and its cycles.
    fn chosen(reserve: usize) -> (Chosen, Plan) {
        let pmus = Pmus::read(&fixture("sysfs/grace")).unwrap();
        let machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
        let catalogue = Catalogue::builtin().unwrap();
        let capacity = Capacity::documented(&catalogue, &machine, &pmus, reserve);
        let chosen = Chosen::of(&pmus, &capacity).unwrap();
        let request = Request {
            events: &chosen.events,
            metrics: &[],
            offered: &[],
            machine,
            cpus: 2,
            settings: Settings::default(),
        };
        let plan = Plan::packed(&request, &pmus, &capacity).unwrap();
        (chosen, plan)
    }

    #[test]
    fn nothing_of_the_default_takes_turns() {
        for reserve in 0..6 {
            let (chosen, plan) = chosen(reserve);
            assert_eq!(plan.rotated, 0, "{reserve} counters for others");
            // Of seven counters one is for cycles only.
            let capacity = 7 - reserve;
            let columns = plan.columns.iter().map(|column| column.name.as_str());
            let columns: Vec<&str> = columns.collect();
            let (last, counted) = columns.split_last().unwrap();
            assert_eq!(counted, &HARDWARE[..capacity.min(6)]);
            assert_eq!(*last, BESIDE);
            assert_eq!(chosen.left_out, &HARDWARE[capacity.min(6)..]);
        }
    }

    #[test]
    fn what_is_left_out_is_one_line_with_the_option_that_counts_it() {
        assert_eq!(chosen(0).0.left_out(), None);
        assert_eq!(
            chosen(3).0.left_out().unwrap(),
            "not counted, as no counter is left for it: cache-references, branches; in turns: \
             `-e cycles,instructions,cache-misses,branch-misses,cache-references,branches,task-clock`"
        );
    }
}
