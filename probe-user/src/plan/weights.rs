//! The counters on CPUs that tell who caused a socket's traffic.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CountSource, Request, RequestedEvent};
use crate::{
    catalogue::{Of, WeightSpec},
    event,
    machine::{Pmu, PmuKind, Pmus},
};

/// A weight, and where its counters are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWeight {
    /// Its name in the catalogue.
    pub name: Arc<str>,
    /// The traffic that it is a weight of.
    pub of: Of,
    /// Whether [`Self::all`] is of the CPU's own socket's memory only
    /// ([`WeightSpec::local`](crate::catalogue::WeightSpec::local)).
    pub local: bool,
    /// What it counts besides memory traffic, so that no error can be stated of its shares.
    #[serde(default)]
    pub but: Option<Arc<str>>,
    /// All accesses.
    pub all: CountSource,
    /// Those to other sockets, where the core counts them apart.
    pub remote: Option<CountSource>,
}

/// A weight before it has a place.
#[derive(Clone)]
pub(super) struct RequestedWeight(&'static WeightSpec);

impl RequestedWeight {
    /// Where its events, all accesses first, are counted there.
    pub(super) fn at(&self, places: &[CountSource]) -> Option<PlannedWeight> {
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

/// What the shares of the metrics need and the core PMU has; the first of each traffic.
pub(super) fn wanted(
    request: &Request<'_>,
    pmus: &Pmus,
) -> Vec<(RequestedWeight, Vec<RequestedEvent>)> {
    let mut cores = pmus.cores().filter(|pmu| pmu.kind == PmuKind::Core);
    // Of several kinds of core each would need a weight of its own, and they could not be added up.
    let (Some(core), None) = (cores.next(), cores.next()) else {
        return Vec::new();
    };
    let machine = &request.machine;
    let sockets = machine.sockets.unwrap_or(1);
    let needs = |of: Of| {
        let mut needs = request.metrics.iter().map(|metric| metric.apportion);
        needs.any(|apportion| apportion.needs() == Some(of))
    };
    let first = |of: Of| {
        let mut weights = machine.platform.weights().iter().filter(|weight| {
            weight.of == of && weight.sockets.is_none_or(|of_many| of_many == sockets)
        });
        weights.find_map(|weight| {
            let mut events = parsed(&events(core, weight)?, pmus);
            if request.settings.own_weights {
                let known = events.iter().take_while(|event| is_own(request, event));
                events.truncate(known.count());
            }
            let whole = !events.is_empty() && (!weight.local || events.len() > 1);
            whole.then_some((RequestedWeight(weight), events))
        })
    };
    let reads = first(Of::Reads).filter(|(weight, _)| {
        // What a CPU reads tells to which memory it writes too, where that is not counted.
        needs(Of::Reads) || needs(Of::Writes) && weight.0.local
    });
    let writes = needs(Of::Writes).then(|| first(Of::Writes)).flatten();
    reads.into_iter().chain(writes).collect()
}

fn parsed(events: &[String], pmus: &Pmus) -> Vec<RequestedEvent> {
    let parsed = events
        .iter()
        .filter_map(|text| event::parse(text, pmus).ok());
    let all = parsed.flatten().flat_map(|group| group.events);
    all.filter_map(|event| super::planner::wanted(&event))
        .collect()
}

/// Whether the user asks for that event.
fn is_own(request: &Request<'_>, wanted: &RequestedEvent) -> bool {
    let mut own = request.events.iter().flat_map(|group| &group.events);
    own.any(|event| super::planner::wanted(event).as_ref() == Some(wanted))
}

/// The events that the core has: all accesses, those to other sockets.
fn events(core: &Pmu, weight: &WeightSpec) -> Option<Vec<String>> {
    let has = |event: &str| match event.contains('=') {
        true => event.split(',').all(|term| {
            let name = term.split('=').next().unwrap_or_default();
            core.formats.contains_key(name)
        }),
        false => core.event(event).is_some(),
    };
    let named = |event: &String| has(event).then(|| format!("{}/{event}/", core.name));
    let all = named(&weight.event)?;
    let remote = weight.remote.as_ref().and_then(named);
    if weight.local && remote.is_none() {
        return None;
    }
    Some(std::iter::once(all).chain(remote).collect())
}
