//! Weights: the counters of cores that attribute a socket's traffic.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{CountSource, RequestedEvent, ResolvedRequest};
use crate::{
    catalogue::{MemoryTraffic, WeightSpec},
    event,
    machine::{Pmu, PmuKind, Pmus},
};

/// A weight, and the sources of its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWeight {
    /// Its name in the catalogue.
    pub name: Arc<str>,
    /// The traffic that it attributes.
    pub of: MemoryTraffic,
    /// Whether [`Self::all`] counts only the memory of the CPU's own socket
    /// ([`WeightSpec::local`](crate::catalogue::WeightSpec::local)).
    pub local: bool,
    /// What it counts in addition to memory traffic, if that is so much that its shares have no
    /// stated error.
    #[serde(default)]
    pub but: Option<Arc<str>>,
    /// The count of all accesses.
    pub all: CountSource,
    /// The count of accesses to other sockets, if the core counts them separately.
    pub remote: Option<CountSource>,
}

/// A requested weight, before it is placed.
#[derive(Clone)]
pub(super) struct RequestedWeight(&'static WeightSpec);

impl RequestedWeight {
    /// The weight with the sources of its events, all accesses first.
    pub(super) fn placed_at(&self, places: &[CountSource]) -> Option<PlannedWeight> {
        Some(PlannedWeight {
            name: self.0.name.as_str().into(),
            of: self.0.of,
            local: self.0.local,
            but: self.0.but.as_deref().map(Arc::from),
            all: *places.first()?,
            remote: places.get(1).copied(),
        })
    }
}

/// The weights that the metrics' shares need and the core PMU has: for each kind of traffic the
/// best one, then the further ones that are requested.
pub(super) fn requested_weights(
    request: &ResolvedRequest<'_>,
    pmus: &Pmus,
) -> Vec<(RequestedWeight, Vec<RequestedEvent>)> {
    let mut cores = pmus.cores().filter(|pmu| pmu.kind == PmuKind::Core);
    // With several kinds of core, each would need its own weight, and these could not be summed.
    let (Some(core), None) = (cores.next(), cores.next()) else {
        return Vec::new();
    };
    let machine = &request.machine;
    let sockets = machine.sockets.unwrap_or(1);
    let is_needed = |traffic: MemoryTraffic| {
        let mut apportions = request.metrics.iter().map(|metric| metric.apportion);
        apportions.any(|apportion| apportion.needs() == Some(traffic))
    };
    let with_events = |weight: &'static WeightSpec| {
        let mut events = parsed(&events(core, weight)?, pmus);
        if request.settings.own_weights {
            let requested = events
                .iter()
                .take_while(|event| is_requested(request, event));
            events.truncate(requested.count());
        }
        let is_complete = !events.is_empty() && (!weight.local || events.len() > 1);
        is_complete.then_some((RequestedWeight(weight), events))
    };
    let weights = |traffic: MemoryTraffic| {
        let weights = machine.platform.weights().iter();
        let of_traffic = weights.filter(move |weight| {
            weight.of == traffic && weight.sockets.is_none_or(|count| count == sockets)
        });
        let mut names = BTreeSet::new();
        let countable = of_traffic.filter_map(with_events);
        // One name may stand for the events of several cores.
        let unique = countable.filter(move |(weight, _)| names.insert(&weight.0.name));
        let more_weights = &request.settings.more_weights;
        let if_wanted = |(rank, weight): (usize, (RequestedWeight, _))| {
            (rank == 0 || more_weights.has(&weight.0.0.name)).then_some(weight)
        };
        unique.enumerate().filter_map(if_wanted).collect::<Vec<_>>()
    };
    let mut wanted = Vec::new();
    // If the core does not count which memory a CPU writes to, its reads show it.
    if is_needed(MemoryTraffic::Reads) {
        wanted.extend(weights(MemoryTraffic::Reads));
    } else if is_needed(MemoryTraffic::Writes) {
        let reads = weights(MemoryTraffic::Reads).into_iter();
        wanted.extend(reads.take(1).filter(|(weight, _)| weight.0.local));
    }
    if is_needed(MemoryTraffic::Writes) {
        wanted.extend(weights(MemoryTraffic::Writes));
    }
    wanted
}

fn parsed(events: &[String], pmus: &Pmus) -> Vec<RequestedEvent> {
    let parsed = events
        .iter()
        .filter_map(|text| event::parse(text, pmus).ok());
    let all = parsed.flatten().flat_map(|group| group.events);
    all.filter_map(|event| super::planner::requested_event(&event))
        .collect()
}

/// Whether the user requests the event.
fn is_requested(request: &ResolvedRequest<'_>, wanted: &RequestedEvent) -> bool {
    let mut events = request.events.iter().flat_map(|group| &group.events);
    events.any(|event| super::planner::requested_event(event).as_ref() == Some(wanted))
}

/// A weight's events on this core: that of all accesses, then that of accesses to other sockets.
/// `None` if the core lacks an event that the weight needs.
fn events(core: &Pmu, weight: &WeightSpec) -> Option<Vec<String>> {
    let is_known = |event: &str| match event.contains('=') {
        true => event.split(',').all(|term| {
            let name = term.split('=').next().unwrap_or_default();
            core.formats.contains_key(name)
        }),
        false => core.event(event).is_some(),
    };
    let event_text = |event: &String| is_known(event).then(|| format!("{}/{event}/", core.name));
    let all = event_text(&weight.event)?;
    let remote = weight.remote.as_ref().and_then(event_text);
    if weight.local && remote.is_none() {
        return None;
    }
    Some(std::iter::once(all).chain(remote).collect())
}
