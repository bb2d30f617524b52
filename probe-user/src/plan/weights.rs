//! The counters on CPUs that tell who caused a socket's traffic.

use serde::{Deserialize, Serialize};

use super::CountSource;
use crate::{
    catalogue::{Metric, Of, Platform, WeightKind, WeightSpec},
    machine::{Pmu, PmuKind, Pmus},
};

/// A weight, and where its counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWeight {
    /// What is counted.
    pub kind: WeightKind,
    /// All accesses.
    pub all: CountSource,
    /// Those to other sockets, where the core counts them apart.
    pub remote: Option<CountSource>,
}

/// A weight before it has a place: its events in the syntax of `-e`.
pub(super) struct RequestedWeight {
    pub(super) kind: WeightKind,
    pub(super) all: String,
    pub(super) remote: Option<String>,
}

/// What the shares of these metrics need and the core PMU lists; the first of each traffic that it
/// has.
pub(super) fn wanted(metrics: &[&Metric], platform: Platform, pmus: &Pmus) -> Vec<RequestedWeight> {
    let mut cores = pmus.cores().filter(|pmu| pmu.kind == PmuKind::Core);
    // Of several kinds of core each would need a weight of its own, and they could not be added up.
    let (Some(core), None) = (cores.next(), cores.next()) else {
        return Vec::new();
    };
    let needed = |of: Of| {
        metrics
            .iter()
            .any(|metric| metric.apportion.needs() == Some(of))
    };
    let first = |of: Of| {
        let mut weights = platform.weights().iter().filter(|weight| weight.of == of);
        weights.find_map(|weight| on(core, weight))
    };
    let traffic = [Of::Reads, Of::Writes].into_iter();
    traffic.filter(|of| needed(*of)).filter_map(first).collect()
}

fn on(core: &Pmu, weight: &WeightSpec) -> Option<RequestedWeight> {
    let event = |name: &String| core.event(name).map(|_| format!("{}/{name}/", core.name));
    Some(RequestedWeight {
        kind: weight.kind,
        all: event(&weight.event)?,
        remote: weight.remote.as_ref().and_then(event),
    })
}
