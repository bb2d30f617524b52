//! What pmuscope's own programs cost and could not do.

use probe_common::CpuCounts;
use serde::{Deserialize, Serialize};

use super::{CountingCost, Hook};
use crate::names::resolver::ResolverHealth;

/// The programs' account of themselves since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The hook in use.
    pub hook: Hook,
    /// What the programs counted on all CPUs. Its missed switches include those that are known
    /// otherwise.
    pub sum: CpuCounts,
    /// What counting takes of a CPU.
    pub cost: CountingCost,
    /// Interrupts that this pull sent: CPUs flushed.
    pub flushes: u64,
    /// Nanoseconds from the first flush of this pull to its last row: what runs meanwhile is in
    /// this window or in the next. None in a recording by a version that did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<u64>,
    /// Times the counters of a CPU were exchanged for those of the next group, since the session
    /// began.
    pub exchanges: u64,
    /// Rows in the USAGE map.
    pub rows: usize,
    /// Rows that were evicted since the session began. None in a recording by a version that
    /// evicted none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_rows: Option<u64>,
    /// Kernel memory of the maps.
    pub memory: MapMemory,
    /// Map calls of this process that met a busy map and were made again.
    pub map_retries: u64,
    /// Runs of programs that the kernel left out. None in a recording by a version that did not
    /// ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_runs: Option<u64>,
    /// Messages of the kernel log that nobody sees, where it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogCounts>,
    /// How asking runtimes for names went, in a session that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<ResolverHealth>,
    /// What was not counted between two processes; None where counts end with their process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
}

/// Messages of the kernel log that nobody sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCounts {
    /// Kept back by the limit of their kind: a later message has their number.
    pub suppressed: u64,
    /// Lost, since the ring had no room for them.
    pub dropped: u64,
}

/// What was not counted or read since counting into pinned maps began, at the times when another
/// process took them over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// How often that was.
    pub times: u64,
    /// Nanoseconds of CPU time that were counted for nobody while counters were exchanged.
    pub gap: u64,
    /// Nanoseconds between the last reading by one process and the start of the next: nothing was
    /// sampled, and no uncore counter was read.
    pub unattended: u64,
}

/// Kernel memory of the maps in bytes, by arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapMemory {
    /// Rows, which follow what ran.
    pub rows: usize,
    /// All else, which is there from the start.
    pub fixed: usize,
}

impl MapMemory {
    /// All of it.
    #[must_use]
    pub fn total(self) -> usize {
        self.rows + self.fixed
    }
}
