//! The counters on CPUs that tell who caused a socket's traffic.

use super::CountSource;
use crate::{
    catalogue::{Apportion, Metric},
    machine::{Pmu, PmuKind, Pmus},
};

/// What a weight counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightKind {
    /// Reads that missed the last-level cache.
    LlcReadMisses,
    /// Reads that a core sent to the bus.
    BusReads,
    /// Lines that a core's second-level cache wrote back.
    WriteBacks,
}

/// A weight, and where its counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What the shares of these metrics need and the core PMU lists; the first of a kind that it has.
pub(super) fn wanted(metrics: &[&Metric], pmus: &Pmus) -> Vec<RequestedWeight> {
    let any = |wanted: &[Apportion]| {
        metrics
            .iter()
            .any(|metric| wanted.contains(&metric.apportion))
    };
    let mut cores = pmus.cores().filter(|pmu| pmu.kind == PmuKind::Core);
    // Of several kinds of core each would need a weight of its own, and they could not be added up.
    let (Some(core), None) = (cores.next(), cores.next()) else {
        return Vec::new();
    };
    let reads = [
        Apportion::CpuRead,
        Apportion::CpuReadSource,
        Apportion::CpuReadRemote,
    ];
    let reads = any(&reads).then(|| of_reads(core)).flatten();
    let writes = any(&[Apportion::CpuWrite])
        .then(|| of_writes(core))
        .flatten();
    reads.into_iter().chain(writes).collect()
}

/// `ll_cache_miss_rd` (0x37), `bus_access_rd` (0x60) and `remote_access` (0x31) are architected events of
/// Arm, listed where the core has them; `cache-misses` is Intel's `LONGEST_LAT_CACHE.MISS` (0x2e, umask 0x41).
fn of_reads(core: &Pmu) -> Option<RequestedWeight> {
    let event = |name: &str| core.event(name).map(|_| format!("{}/{name}/", core.name));
    let misses = event("ll_cache_miss_rd").or_else(|| event("cache-misses"));
    let (kind, all) = match misses {
        Some(misses) => (WeightKind::LlcReadMisses, misses),
        None => (WeightKind::BusReads, event("bus_access_rd")?),
    };
    Some(RequestedWeight {
        kind,
        all,
        remote: event("remote_access"),
    })
}

/// `l2d_cache_wb` (0x18) of Arm.
fn of_writes(core: &Pmu) -> Option<RequestedWeight> {
    core.event("l2d_cache_wb").map(|_| RequestedWeight {
        kind: WeightKind::WriteBacks,
        all: format!("{}/l2d_cache_wb/", core.name),
        remote: None,
    })
}
