//! Snapshot: all counts since a session began, at one moment ([`Snapshot`]). Plain data.

mod code_location;
mod cost;
mod growth;
mod health;
mod layout;
mod pairs;
mod refused;
mod rows;
mod sample_counts;
mod sampled;
mod sources;
mod spe;
mod waits;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, UsageKey, UsageRow};
use serde::{Deserialize, Serialize};

pub use self::{
    code_location::{CodeLocation, NameCounts},
    cost::{CountingCost, ReadCost},
    health::{HandedOver, Health, LogCounts, MapMemory},
    layout::layout,
    refused::Refused,
    rows::UsageRows,
    sample_counts::SampleCounts,
    sampled::{
        AddressCounts, CodeKey, SampleOrigin, SampleReading, SampledAddress, SampledEventHealth,
        SampledKey,
    },
    sources::SourceReadings,
    spe::{SpeHealth, SpeHook, SpeReading, UNATTRIBUTED},
    waits::{OwnerWaits, WaitDelta, WaitPair, WaitReader, WaitReading},
};
pub(crate) use self::{
    growth::GrowingRow,
    sources::{SourceReading, for_each_source},
};
use crate::{machine::topology::Topology, names::RuntimeNames};

/// Process id of the rows that sum a cgroup's ended processes.
pub const ENDED: u32 = u32::MAX;

/// Owner of the counts that did not fit into USAGE: their cgroups are unknown.
pub const OVERFLOW: CgroupId = CgroupId(u64::MAX - 2);

/// All counts since the session began, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The kernel's `CLOCK_MONOTONIC` (of the initial time namespace) when all CPUs were flushed.
    pub at: Duration,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, by the current wall clock.
    pub boot_time: Duration,
    /// Counts since the session began (raw, not scaled). Rows of ended owners are freed one flush
    /// later, after their last value was in a snapshot.
    pub rows: UsageRows,
    /// Rows freed since the last snapshot, with their last values. A key may occur more than once,
    /// and in `rows` too: [`UsageRow::made`] distinguishes the rows.
    pub freed: Vec<(UsageKey, UsageRow)>,
    /// Uncore counts since the session began.
    pub uncore: Vec<UncoreReading>,
    /// The socket of each CPU, if uncore events are counted.
    pub topology: Option<Arc<Topology>>,
    /// Readings of the sources.
    pub sources: SourceReadings,
    /// Samples since the session began; None if the session does not sample.
    pub samples: Option<SampleReading>,
    /// Names of every cgroup and process that has a row.
    pub names: Arc<Names>,
    /// The programs' counts of their own work.
    pub health: Health,
}

/// A reading of an uncore counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncoreReading {
    /// Index into [`crate::plan::Plan::uncore`].
    pub at: usize,
    /// Socket, as [`crate::machine::topology::Topology`] numbers them.
    pub socket: u32,
    /// Index among the counters of the same event on that socket. Most PMUs have one; a PMU with
    /// several CPUs of a socket in its cpumask has more, and their counts add up to the socket's.
    pub instance: u16,
    /// Count since the session began, not scaled; None if the event could not be read, or its PMU
    /// is gone.
    pub count: Option<u64>,
    /// Upper bound of the counter's increase between its reading and the pull's readings of the
    /// CPUs' counts; 0 if the count is not apportioned.
    pub skew: u64,
    /// Nanoseconds enabled.
    pub enabled: u64,
    /// Nanoseconds on the PMU.
    pub running: u64,
}

impl UncoreReading {
    /// The count scaled to the whole time; None if the count is unknown or the counter was never on
    /// the PMU.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate of more than 2^53 counts has no better precision"
    )]
    pub fn estimate(&self) -> Option<f64> {
        let running_ratio = self.running as f64 / self.enabled.max(self.running) as f64;
        let count = self.count.filter(|_| self.running > 0)?;
        Some(count as f64 / running_ratio)
    }

    /// Standard error of [`Self::estimate`]: the estimated part has a relative error of 1. 0 if the
    /// count is unknown.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an error of more than 2^53 counts has no better precision"
    )]
    pub fn error(&self) -> f64 {
        let not_running = self.enabled.saturating_sub(self.running) as f64;
        let enabled = self.enabled.max(self.running).max(1) as f64;
        self.estimate().unwrap_or(0.0) * (not_running / enabled)
    }
}

/// Names of cgroups and processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Path from the root of the cgroup2 hierarchy, as in /proc/PID/cgroup.
    #[serde(with = "pairs")]
    pub cgroups: HashMap<CgroupId, String>,
    /// Command name by process id of the initial pid namespace.
    #[serde(with = "pairs")]
    pub processes: HashMap<u32, String>,
    /// The runtimes' names of the containers and pods of these cgroups.
    #[serde(default, skip_serializing_if = "has_no_names")]
    pub described: Arc<RuntimeNames>,
    /// By directory: whether users other than root can create cgroups in it. Contains only
    /// directories above cgroups that share the id of a container or pod with another cgroup, if
    /// they could be looked up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub delegated: BTreeMap<String, bool>,
}

fn has_no_names(described: &RuntimeNames) -> bool {
    described.is_empty()
}

/// The kernel hook at which slices are accounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Hook {
    /// Every context switch.
    #[default]
    SchedSwitch,
    /// Only switches between cgroups, if the kernel runs the program at each of them. Idle and
    /// system are one row.
    CgroupSwitches,
}
