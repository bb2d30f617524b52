//! The cost and the failures of pmuscope's own programs ([`Health`]).

use probe_common::CpuCounts;
use serde::{Deserialize, Serialize};

use super::{CountingCost, Hook};
use crate::names::resolver::ResolverHealth;

/// The programs' counts of their own work since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The hook in use.
    pub hook: Hook,
    /// Sum of the counts of all CPUs. Its missed switches include those that pulls found the hook
    /// `cgroup-switches` to have missed.
    pub sum: CpuCounts,
    /// CPU time that counting costs.
    pub cost: CountingCost,
    /// Number of CPUs that this pull flushed by an interrupt.
    pub flushes: u64,
    /// Nanoseconds from the first flush of this pull to its last row: counts of that time are in
    /// this window or in the next. None in recordings of versions that did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<u64>,
    /// Exchanges of a CPU's counters for those of the next multiplexed group, since the session
    /// began.
    pub exchanges: u64,
    /// Rows in the USAGE map.
    pub rows: usize,
    /// Rows evicted since the session began. None in recordings of versions without eviction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_rows: Option<u64>,
    /// Kernel memory of the maps.
    pub memory: MapMemory,
    /// Map calls of this process that were repeated because the map was busy, since the session
    /// began.
    pub map_retries: u64,
    /// Program runs that the kernel skipped. None in recordings of versions that did not read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_runs: Option<u64>,
    /// Lost messages of the kernel log; None if it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogCounts>,
    /// Statistics of asking runtimes for names, in a session that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<ResolverHealth>,
    /// Gaps of counting at handovers; None if the maps are not pinned, so that counts end with this
    /// process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
}

/// Messages of the kernel log that were not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCounts {
    /// Suppressed by the rate limit of their kind. A later message of that kind has their number.
    pub suppressed: u64,
    /// Dropped because the ring was full.
    pub dropped: u64,
}

/// Gaps of counting when another process took over the pinned maps, since counting into them began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// Number of handovers.
    pub times: u64,
    /// Nanoseconds of CPU time charged to no owner because counters were being replaced.
    pub gap: u64,
    /// Nanoseconds between the last pull of one process and the takeover by the next. Nothing was
    /// sampled then, and no uncore counter was read.
    pub unattended: u64,
}

/// Kernel memory of the maps in bytes, computed from their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapMemory {
    /// Memory of the rows, whose number depends on the load.
    pub rows: usize,
    /// Memory of everything else, allocated at the start.
    pub fixed: usize,
}

impl MapMemory {
    /// Adds the memory of further maps.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            fixed: self.fixed + other.fixed,
        }
    }

    /// The memory of rows and the fixed memory.
    #[must_use]
    pub fn total(self) -> usize {
        self.rows + self.fixed
    }
}
