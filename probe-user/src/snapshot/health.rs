//! What pmuscope's own programs cost and could not do.

use probe_common::{CpuCounts, CpuState, GROUPS, LIFECYCLE_PATH, SLOTS, UsageKey, UsageRow};
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
    /// Times the counters of a CPU were exchanged for those of the next group, since the session
    /// began.
    pub exchanges: u64,
    /// Rows in the USAGE map.
    pub rows: usize,
    /// Kernel memory of the maps.
    pub memory: MapMemory,
    /// Map calls of this process that met a busy map and were made again.
    pub map_retries: u64,
    /// How asking runtimes for names went, in a session that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<ResolverHealth>,
    /// What was not counted between two processes; None where counts end with their process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
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
    /// Rows of USAGE, which follow what ran.
    pub rows: usize,
    /// All else, which is there from the start.
    pub fixed: usize,
}

impl MapMemory {
    /// Memory for `rows` rows of at most `max_rows`, on `cpus` possible CPUs.
    ///
    /// From kernel/bpf/hashtab.c and memalloc.c (6.12): a row is a 48-byte element header, key and
    /// value, 8 bytes of allocator link, rounded up to a kmalloc size; a bucket is 16 bytes, their
    /// number the next power of two; the allocator keeps up to 96 free rows per CPU.
    #[must_use]
    pub fn of(rows: usize, max_rows: usize, cpus: usize) -> Self {
        let row = kmalloc_size(48 + size_of::<UsageKey>() + size_of::<UsageRow>() + 8);
        let buckets = max_rows.next_power_of_two() * 16;
        let spare = 96 * row * cpus;
        let per_cpu = size_of::<CpuState>() + GROUPS * size_of::<UsageRow>() + 16 + LIFECYCLE_PATH;
        let counters = SLOTS * cpus * size_of::<usize>();
        let ring = 256 * 1024;
        Self {
            rows: rows * row,
            fixed: buckets + spare + per_cpu * cpus + counters + ring,
        }
    }

    /// All of it.
    #[must_use]
    pub fn total(self) -> usize {
        self.rows + self.fixed
    }
}

/// Sizes that kmalloc serves: powers of two, and 96 and 192.
fn kmalloc_size(bytes: usize) -> usize {
    match bytes {
        65..=96 => 96,
        129..=192 => 192,
        _ => bytes.next_power_of_two(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_cgroups_on_144_cpus_stay_below_64_mib() {
        let memory = MapMemory::of(144_000, 144 * 2048, 144);
        assert!(memory.total() <= 64 << 20, "{memory:?}");
        // The bound is no accident of a row that got lost in the sum.
        assert!(memory.rows >= 144_000 * (16 + 80), "{memory:?}");
    }
}
