//! Snapshot: everything that was counted since a session began, at one moment. Plain data.

mod cost;
mod health;
mod layout;
mod pairs;
mod place;
pub mod recording;
mod refused;
mod rows;
mod sampled;
mod spe;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, UsageKey, UsageRow};
use serde::{Deserialize, Serialize};

pub use self::{
    cost::{CountingCost, ReadCost},
    health::{HandedOver, Health, LogCounts, MapMemory},
    layout::layout,
    place::{NameCounts, Place},
    refused::Refused,
    rows::UsageRows,
    sampled::{
        AddressCounts, CodeKey, SampledAddress, SampledCounts, SampledHealth, SampledKey,
        SampledReading,
    },
    spe::{SpeCounts, SpeHealth, SpeHook, SpeReading, UNATTRIBUTED},
};
use crate::{
    devices::DeviceUse,
    machine::{memory::MemoryReading, resctrl::Monitored, topology::Topology},
    names::Described,
};

/// In place of a process id: processes that ended and are not told apart any more.
pub const ENDED: u32 = u32::MAX;

/// Whom counts belong to that USAGE could not take: its cgroup is not known any more.
pub const OVERFLOW: CgroupId = CgroupId(u64::MAX - 2);

/// Everything that was counted since the session began, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The kernel's `CLOCK_MONOTONIC`, which is that of no time namespace but the initial one, at
    /// the moment when all CPUs were flushed.
    pub at: Duration,
    /// Unix time at which that clock was 0, by the wall's clock of now.
    pub boot_time: Duration,
    /// Counts since the session began (raw, not scaled). Rows of owners that ended are freed one
    /// flush later, after their last value was in a snapshot.
    pub rows: UsageRows,
    /// Rows that were freed since the last snapshot, as they were at their end. A key may be there
    /// more than once, and in `rows` too: [`UsageRow::made`] tells rows apart.
    pub freed: Vec<(UsageKey, UsageRow)>,
    /// Uncore counts since the session began.
    pub uncore: Vec<UncoreReading>,
    /// The socket of each CPU, where uncore events are counted.
    pub topology: Option<Arc<Topology>>,
    /// Who uses devices, where metrics are about them.
    pub devices: Option<DeviceUse>,
    /// What resctrl counted, where memory traffic is shared out.
    pub monitored: Vec<Monitored>,
    /// What cgroups or processes held, in a session that looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReading>,
    /// Samples of memory accesses, where the session samples.
    pub spe: Option<SpeReading>,
    /// Samples of events, where the session samples any.
    #[serde(default)]
    pub sampled: Option<SampledReading>,
    /// Names of every cgroup and process that has a row.
    pub names: Arc<Names>,
    /// What the programs say of themselves.
    pub health: Health,
}

/// An uncore count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncoreReading {
    /// Index into [`crate::plan::Plan::uncore`].
    pub at: usize,
    /// Socket, as [`crate::machine::topology::Topology`] numbers them.
    pub socket: u32,
    /// Number among those of the same event on that socket: most PMUs have one, but some a cpumask
    /// with several CPUs of a socket. Their counts add up to the socket's.
    pub instance: u16,
    /// Count since the session began, not scaled; None where the event could not be read, or its
    /// PMU is gone.
    pub count: Option<u64>,
    /// The most that the counter moved between the reading and the moments at which the pull took
    /// what CPUs had counted; 0 where nothing divides it by that.
    pub skew: u64,
    /// Nanoseconds enabled.
    pub enabled: u64,
    /// Nanoseconds on the PMU.
    pub running: u64,
}

impl UncoreReading {
    /// The count for the whole time, where the counter was not always on the PMU; None where
    /// nothing is known.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate of more than 2^53 counts has no better precision"
    )]
    pub fn estimate(&self) -> Option<f64> {
        let live = self.running as f64 / self.enabled.max(self.running) as f64;
        let count = self.count.filter(|_| self.running > 0)?;
        Some(count as f64 / live)
    }

    /// Standard error of [`Self::estimate`]: what was not seen may be anything from nothing to
    /// twice as much. 0 where nothing is known.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an error of more than 2^53 counts has no better precision"
    )]
    pub fn error(&self) -> f64 {
        let dead = self.enabled.saturating_sub(self.running) as f64;
        let all = self.enabled.max(self.running).max(1) as f64;
        self.estimate().unwrap_or(0.0) * (dead / all)
    }
}

/// What cgroups and processes are called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Path from the root of the cgroup2 hierarchy, as in /proc/PID/cgroup.
    #[serde(with = "pairs")]
    pub cgroups: HashMap<CgroupId, String>,
    /// Command name by process id of the initial pid namespace.
    #[serde(with = "pairs")]
    pub processes: HashMap<u32, String>,
    /// What runtimes call the containers and pods of these cgroups.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub described: Arc<Described>,
    /// Whether others than root can make cgroups in a directory; only of those above cgroups that
    /// share an id, as far as it could be looked up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub delegated: BTreeMap<String, bool>,
}

fn is_nothing(described: &Described) -> bool {
    described.is_empty()
}

impl Names {
    pub(crate) fn from_walk(cgroups: Vec<(CgroupId, String)>) -> Self {
        Self {
            cgroups: cgroups.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Which kernel hook accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Hook {
    /// Every context switch.
    #[default]
    SchedSwitch,
    /// Only switches between cgroups; where the kernel runs it completely. Idle and system are one
    /// row.
    CgroupSwitches,
}
