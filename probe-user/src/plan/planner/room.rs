//! Room: what event sets can be packed into, beside weights that are always live.
//!
//! Where groups of counters take turns, a weight that took its turn with them would say nothing of
//! what its owner did meanwhile. So the weights are live all the time where every event set still
//! fits beside them.

use std::collections::BTreeMap;

use super::{
    Plan,
    event_set::{EventSet, Kind, Whose},
};
use crate::plan::{
    RequestedEvent,
    capacity::{Capacity, Refusal},
    pack::{Packed, pack},
};

/// What a kind of PMU has room for.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    capacity: &'a Capacity,
    /// Counters of cores that are always live.
    pinned: &'a [RequestedEvent],
}

impl<'a> Room<'a> {
    /// All of it.
    pub(super) fn of(capacity: &'a Capacity) -> Self {
        Self {
            capacity,
            pinned: &[],
        }
    }

    /// What is left for a kind of PMU where these counters of cores are always live.
    pub(super) fn beside(self, pinned: &'a [RequestedEvent], kind: &Kind) -> Self {
        let pinned = match kind {
            Kind::Core(_) => pinned,
            Kind::Beside(_) | Kind::Uncore(_) => &[],
        };
        Self { pinned, ..self }
    }

    /// Whether these can be counted at one time.
    pub(super) fn can_schedule(self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        // One that both have is opened twice, and takes two counters.
        let all: Vec<RequestedEvent> = group.iter().chain(self.pinned).cloned().collect();
        self.capacity.can_schedule(group)?;
        self.capacity.can_count(&all)
    }

    /// Every event set as a whole in one group.
    pub(super) fn packed(self, event_sets: &[&EventSet]) -> Packed<RequestedEvent> {
        let wanted: Vec<Vec<RequestedEvent>> = event_sets
            .iter()
            .map(|event_set| event_set.wanted.clone())
            .collect();
        pack(&wanted, |group| self.can_schedule(group).is_ok())
    }
}

/// Makes weights that would take turns a group of their own that is always live: it is counted
/// beside the core's others. Returns what is pinned so.
///
/// # Errors
/// The event set that has no room beside them: they take turns.
pub(super) fn pin(
    event_sets: &mut BTreeMap<Kind, Vec<EventSet>>,
    capacity: &Capacity,
    plan: &Plan,
) -> Result<Vec<RequestedEvent>, String> {
    let is_weight = |event_set: &EventSet| matches!(event_set.whose, Whose::Weight(_));
    let mut kinds = event_sets.iter();
    let of_weights = kinds
        .find(|(kind, of_kind)| matches!(kind, Kind::Core(_)) && of_kind.iter().any(is_weight));
    let Some((kind, of_kind)) = of_weights else {
        return Ok(Vec::new());
    };
    let all: Vec<&EventSet> = of_kind.iter().collect();
    let room = Room::of(capacity);
    // Offered ones never make a further group.
    let asked: Vec<&EventSet> = all
        .iter()
        .copied()
        .filter(|it| !matches!(it.whose, Whose::Offered { .. }))
        .collect();
    if room.packed(&asked).groups.len() <= 1 {
        return Ok(Vec::new());
    }
    let mut pinned: Vec<RequestedEvent> = Vec::new();
    for event in all
        .iter()
        .filter(|it| is_weight(it))
        .flat_map(|it| &it.wanted)
    {
        if !pinned.contains(event) {
            pinned.push(event.clone());
        }
    }
    if room.can_schedule(&pinned).is_err() {
        return Err(
            "the core cannot count them all at one time (shares of reads or of writes alone can)"
                .to_owned(),
        );
    }
    let beside = room.beside(&pinned, kind);
    let squeezed = asked.iter().find(|it| {
        !is_weight(it)
            && room.can_schedule(&it.wanted).is_ok()
            && beside.can_schedule(&it.wanted).is_err()
    });
    if let Some(squeezed) = squeezed {
        return Err(format!(
            "{} has no counters left beside them (fewer metrics or events leave room)",
            squeezed.name(plan)
        ));
    }
    let (kind, beside) = (kind.clone(), kind.beside());
    let of_kind = event_sets.remove(&kind).unwrap_or_default();
    let (weights, others) = of_kind.into_iter().partition(is_weight);
    event_sets.insert(kind, others);
    event_sets
        .entry(beside)
        .or_default()
        .extend::<Vec<_>>(weights);
    Ok(pinned)
}
