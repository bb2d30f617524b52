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
    /// What it counts in addition to memory traffic, so that its shares have no stated error.
    #[serde(default)]
    pub but: Option<Arc<str>>,
    /// All accesses.
    pub all: CountSource,
    /// Accesses to other sockets, if the core counts them separately.
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

/// The weights that the metrics' shares need and the core PMU has: for each traffic the best one,
/// then the others that are requested.
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
    let needs = |traffic: MemoryTraffic| {
        let mut needs = request.metrics.iter().map(|metric| metric.apportion);
        needs.any(|apportion| apportion.needs() == Some(traffic))
    };
    let countable = |weight: &'static WeightSpec| {
        let mut events = parsed(&events(core, weight)?, pmus);
        if request.settings.own_weights {
            let known = events
                .iter()
                .take_while(|event| is_requested(request, event));
            events.truncate(known.count());
        }
        let whole = !events.is_empty() && (!weight.local || events.len() > 1);
        whole.then_some((RequestedWeight(weight), events))
    };
    let weights = |traffic: MemoryTraffic| {
        let weights = machine.platform.weights().iter();
        let of_traffic = weights.filter(move |weight| {
            weight.of == traffic && weight.sockets.is_none_or(|count| count == sockets)
        });
        let mut names = BTreeSet::new();
        let countable = of_traffic.filter_map(countable);
        // One name may stand for the events of several cores.
        let once = countable.filter(move |(weight, _)| names.insert(&weight.0.name));
        let more_weights = &request.settings.more_weights;
        let wanted = |(at, weight): (usize, (RequestedWeight, _))| {
            (at == 0 || more_weights.has(&weight.0.0.name)).then_some(weight)
        };
        once.enumerate().filter_map(wanted).collect::<Vec<_>>()
    };
    let mut wanted = Vec::new();
    // Reads also show which memory a CPU writes to, if that is not counted.
    if needs(MemoryTraffic::Reads) {
        wanted.extend(weights(MemoryTraffic::Reads));
    } else if needs(MemoryTraffic::Writes) {
        let reads = weights(MemoryTraffic::Reads).into_iter();
        wanted.extend(reads.take(1).filter(|(weight, _)| weight.0.local));
    }
    if needs(MemoryTraffic::Writes) {
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
    let mut own = request.events.iter().flat_map(|group| &group.events);
    own.any(|event| super::planner::requested_event(event).as_ref() == Some(wanted))
}

/// A weight's events on this core: all accesses, then those to other sockets.
fn events(core: &Pmu, weight: &WeightSpec) -> Option<Vec<String>> {
    let is_known = |event: &str| match event.contains('=') {
        true => event.split(',').all(|term| {
            let name = term.split('=').next().unwrap_or_default();
            core.formats.contains_key(name)
        }),
        false => core.event(event).is_some(),
    };
    let named = |event: &String| is_known(event).then(|| format!("{}/{event}/", core.name));
    let all = named(&weight.event)?;
    let remote = weight.remote.as_ref().and_then(named);
    if weight.local && remote.is_none() {
        return None;
    }
    Some(std::iter::once(all).chain(remote).collect())
}
