//! Slots: the counters that event sets can be packed into, next to weights that always run.
//!
//! A multiplexed weight does not count what an owner does while other groups run. So weights always
//! run, if every event set still fits next to them.

use std::collections::BTreeMap;

use super::{
    Plan,
    event_set::{EventSet, PmuClass, Purpose},
};
use crate::plan::{
    RequestedEvent,
    capacity::{Capacity, Refusal},
    pack::{Packed, pack},
};

/// The counters of a kind of PMU that are free for event sets.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    capacity: &'a Capacity,
    /// Counters of cores that always run.
    pinned: &'a [RequestedEvent],
}

impl<'a> Slots<'a> {
    /// All counters.
    pub(super) fn new(capacity: &'a Capacity) -> Self {
        Self {
            capacity,
            pinned: &[],
        }
    }

    /// The counters of a kind of PMU that are left while these counters of cores always run.
    pub(super) fn without(self, pinned: &'a [RequestedEvent], kind: &PmuClass) -> Self {
        let pinned = match kind {
            PmuClass::Core(_) => pinned,
            PmuClass::AlwaysRunning(_) | PmuClass::Uncore(_) => &[],
        };
        Self { pinned, ..self }
    }

    /// Whether these events can be counted at one time, as one group next to the pinned counters.
    pub(super) fn can_schedule(self, group: &[RequestedEvent]) -> Result<(), Refusal> {
        // An event that is also pinned is opened twice, and takes two counters.
        let with_pinned: Vec<RequestedEvent> = group.iter().chain(self.pinned).cloned().collect();
        self.capacity.can_schedule(group)?;
        self.capacity.can_count(&with_pinned)
    }

    /// Packs the event sets, each as a whole into one group.
    pub(super) fn packed(self, event_sets: &[&EventSet]) -> Packed<RequestedEvent> {
        let wanted: Vec<Vec<RequestedEvent>> = event_sets
            .iter()
            .map(|event_set| event_set.wanted.clone())
            .collect();
        pack(&wanted, |group| self.can_schedule(group).is_ok())
    }
}

/// Moves weights that would be multiplexed to a group that always runs. Returns the events of this
/// group; none if no weight would be multiplexed.
///
/// # Errors
/// Why the weights stay multiplexed: they do not fit together, or an event set would not fit next
/// to them.
pub(super) fn pin(
    event_sets: &mut BTreeMap<PmuClass, Vec<EventSet>>,
    capacity: &Capacity,
    plan: &Plan,
) -> Result<Vec<RequestedEvent>, String> {
    let is_weight = |event_set: &EventSet| matches!(event_set.purpose, Purpose::Weight(_));
    let mut kinds = event_sets.iter();
    let kind_with_weights = kinds
        .find(|(kind, of_kind)| matches!(kind, PmuClass::Core(_)) && of_kind.iter().any(is_weight));
    let Some((kind, of_kind)) = kind_with_weights else {
        return Ok(Vec::new());
    };
    let all: Vec<&EventSet> = of_kind.iter().collect();
    let slots = Slots::new(capacity);
    // Optional sets never add a group.
    let requested: Vec<&EventSet> = all
        .iter()
        .copied()
        .filter(|it| !matches!(it.purpose, Purpose::Offered { .. }))
        .collect();
    if slots.packed(&requested).groups.len() <= 1 {
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
    if slots.can_schedule(&pinned).is_err() {
        return Err(
            "the core cannot count them all at one time (shares of reads or of writes alone can)"
                .to_owned(),
        );
    }
    let remaining = slots.without(&pinned, kind);
    let displaced = requested.iter().find(|it| {
        !is_weight(it)
            && slots.can_schedule(&it.wanted).is_ok()
            && remaining.can_schedule(&it.wanted).is_err()
    });
    if let Some(displaced) = displaced {
        return Err(format!(
            "{} has no counters left beside them (fewer metrics or events leave room)",
            displaced.name(plan)
        ));
    }
    let (kind, always_running) = (kind.clone(), kind.always_running());
    let of_kind = event_sets.remove(&kind).unwrap_or_default();
    let (weights, others) = of_kind.into_iter().partition(is_weight);
    event_sets.insert(kind, others);
    event_sets
        .entry(always_running)
        .or_default()
        .extend::<Vec<_>>(weights);
    Ok(pinned)
}
