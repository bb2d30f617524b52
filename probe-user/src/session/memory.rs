//! Memory of a session in the kernel, and the limits of its maps. `sampling` has the limits for
//! sampled events. The limits of an agent follow from these limits (`agent/memory.rs`).

use probe_common::{
    CgroupWalk, CpuState, GROUPS, LIFECYCLE_PATH, LogCpu, SLOTS, UsageKey, UsageRow,
    WAIT_SLICES_BYTES, WAIT_TASKS, WaitKey, WaitTask, WaitTimes,
    sample::{SAMPLED_EVENTS, SampleCpu, SampleKey, SampleRow},
    spe::{Class, SpeCpu, SpeKey, SpeRow, SpeSwitch, SpeTask, TIMELINE},
};

use super::{Config, SpeConfig, object::log_ring_size};
use crate::{event::sampling::SampledEvent, snapshot::MapMemory};

/// Maximum bytes of USAGE with all its rows, if the user does not set the number of rows.
const USAGE_LIMIT: usize = 64 << 20;

/// Maximum bytes of the map of SPE rows with all its rows, if the user does not set their number.
const SPE_ROWS_LIMIT: usize = 32 << 20;

/// Maximum number of threads in the task map of SPE. Only existing threads take memory.
pub(super) const MAX_THREADS: u32 = 1 << 20;

/// Maximum number of exits between two drains in the queue of exited threads.
pub(super) const MAX_EXITED: u32 = 1 << 16;

/// Maximum number of rows of the ledger of waits, if the user does not set it. Only pairs of owners
/// of which one waited for the other take memory.
const DEFAULT_MAX_WAITS: u32 = 1 << 16;

/// Bytes of the lifecycle ring.
const LIFECYCLE_RING: usize = 256 << 10;

/// Pages of a ring in addition to its bytes: two for positions and one for its own data.
const RING_PAGES: usize = 3;

/// Bytes of a hash bucket.
const BUCKET: usize = 16;

/// Maximum number of free rows that the kernel's allocator keeps on a CPU for one map.
const FREE_ROWS: usize = 96;

/// Sizes of a hash map without preallocation. From kernel/bpf/hashtab.c and memalloc.c (6.12): a
/// row is a 48-byte element header, key and value, and 8 bytes of allocator link, rounded up to a
/// kmalloc size. A bucket has 16 bytes, and the number of buckets is rounded up to a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashMapSize {
    /// Bytes of a row.
    pub(crate) row: usize,
}

/// Sizes of the map of counts.
pub(crate) const USAGE: HashMapSize =
    HashMapSize::new(size_of::<UsageKey>() + size_of::<UsageRow>());

/// Sizes of the map of SPE rows.
pub(crate) const SPE_ROWS: HashMapSize =
    HashMapSize::new(size_of::<SpeKey>() + size_of::<SpeRow>());

/// Sizes of the map of rows of sampled events.
const SAMPLE_ROWS: HashMapSize = HashMapSize::new(size_of::<SampleKey>() + size_of::<SampleRow>());

/// Sizes of the ledger of waits.
const WAITS: HashMapSize = HashMapSize::new(size_of::<WaitKey>() + size_of::<u64>());

/// Sizes of the map of the lengths of waits.
const WAIT_TIMES: HashMapSize = HashMapSize::new(size_of::<UsageKey>() + size_of::<WaitTimes>());

/// Sizes of the map of threads.
const SPE_TASKS: HashMapSize = HashMapSize::new(size_of::<u64>() + size_of::<SpeTask>());

impl HashMapSize {
    /// The sizes of a map whose key and value together have this many bytes.
    const fn new(key_and_value: usize) -> Self {
        Self {
            row: kmalloc_size(48 + key_and_value + 8),
        }
    }

    /// Bytes of the map without rows: buckets for `room` rows, and free rows on `cpus` CPUs.
    fn fixed(self, room: usize, cpus: usize) -> usize {
        room.next_power_of_two() * BUCKET + self.free_bytes(cpus)
    }

    /// Bytes of the free rows that the allocator keeps on `cpus` CPUs.
    fn free_bytes(self, cpus: usize) -> usize {
        FREE_ROWS * self.row * cpus
    }

    /// The largest number of rows with which the map stays within `limit` bytes; at least one.
    fn rows_within(self, limit: usize, cpus: usize) -> u32 {
        let remaining = limit.saturating_sub(self.free_bytes(cpus));
        let rows_with = |bits: u32| {
            let buckets = 1_usize << bits;
            buckets.min(remaining.saturating_sub(buckets * BUCKET) / self.row)
        };
        let max_rows = (0..u32::BITS).map(rows_with).max().unwrap_or(0);
        u32::try_from(max_rows).unwrap_or(u32::MAX).max(1)
    }
}

/// The size that kmalloc allocates for `bytes`: a power of two, 96 or 192.
const fn kmalloc_size(bytes: usize) -> usize {
    match bytes {
        65..=96 => 96,
        129..=192 => 192,
        _ => bytes.next_power_of_two(),
    }
}

/// Current memory of the maps of counts; the ring of messages has `log_ring` bytes.
pub(super) fn counts_memory(rows: usize, max_rows: u32, cpus: usize, log_ring: u32) -> MapMemory {
    let state = size_of::<CpuState>() + size_of::<LogCpu>();
    let per_cpu = state + GROUPS * size_of::<UsageRow>() + 16 + LIFECYCLE_PATH;
    let page = rustix::param::page_size();
    // The third ring is for markers: one page in a session without markers.
    let rings = LIFECYCLE_RING + log_ring as usize + page + 3 * RING_PAGES * page;
    // Of the map of cgroups that a walk looks for, only the buckets: its rows exist only briefly.
    let cgroups = CgroupWalk::MAX_QUERIES as usize * BUCKET;
    let counters = SLOTS * size_of::<usize>();
    MapMemory {
        rows: rows * USAGE.row,
        fixed: USAGE.fixed(max_rows as usize, cpus) + (per_cpu + counters) * cpus + cgroups + rings,
    }
}

impl Config {
    /// Maximum number of rows of the ledger of waits.
    pub(super) fn max_waits(&self) -> u32 {
        self.max_rows.unwrap_or(DEFAULT_MAX_WAITS)
    }

    /// Maximum number of rows of the two maps of waits: of the ledger, and of the map of lengths.
    fn max_wait_rows(&self, max_rows: u32) -> [usize; 2] {
        match self.plan.counts_waits() {
            true => [self.max_waits() as usize, max_rows as usize],
            false => [0; 2],
        }
    }

    /// Current memory of the maps of waits, given the number of rows in use in the ledger and in
    /// the map of lengths, which has room for `max_rows`.
    pub(super) fn waits_memory(
        &self,
        [rows, lengths]: [usize; 2],
        max_rows: u32,
        cpus: usize,
    ) -> MapMemory {
        let tasks = match self.plan.scheduler_slots() {
            0 => 0,
            _ => WAIT_TASKS as usize * size_of::<WaitTask>(),
        };
        let maps = match self.plan.counts_waits() {
            true => {
                WAITS.fixed(self.max_waits() as usize, cpus)
                    + WAIT_TIMES.fixed(max_rows as usize, cpus)
            }
            false => 0,
        };
        MapMemory {
            rows: rows * WAITS.row + lengths * WAIT_TIMES.row,
            fixed: tasks + WAIT_SLICES_BYTES * cpus + maps,
        }
    }
}

/// Current memory of the maps of SPE samples, given the number of rows and threads in them. Tables
/// of pages and cache lines are not included: the user sets their size.
pub(super) fn samples_memory(
    timeline: bool,
    [rows, threads]: [usize; 2],
    max_rows: u32,
    cpus: usize,
) -> MapMemory {
    let entries = if timeline { TIMELINE } else { 1 };
    let timeline = entries as usize * size_of::<SpeSwitch>();
    let per_cpu = size_of::<SpeCpu>() + Class::ALL.len() * size_of::<SpeRow>() + timeline;
    let exited = MAX_EXITED as usize * size_of::<u64>();
    MapMemory {
        rows: rows * SPE_ROWS.row + threads * SPE_TASKS.row,
        fixed: SPE_ROWS.fixed(max_rows as usize, cpus)
            + SPE_TASKS.fixed(MAX_THREADS as usize, cpus)
            + per_cpu * cpus
            + exited,
    }
}

/// Current memory of the maps of sampled events, without tables of addresses.
fn events_memory(rows: usize, max_rows: u32, cpus: usize) -> MapMemory {
    MapMemory {
        rows: rows * SAMPLE_ROWS.row,
        fixed: SAMPLE_ROWS.fixed(max_rows as usize, cpus)
            + SAMPLED_EVENTS * size_of::<SampleCpu>() * cpus,
    }
}

/// Upper bound of a session's memory in the kernel, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Number of rows of counts for which there is room.
    pub rows: u32,
    /// Bytes of the maps of counts and of waits, with all of their rows.
    pub counts: usize,
    /// Additional memory for SPE sampling.
    pub samples: Option<SampleMemory>,
    /// Additional memory for sampled events.
    pub events: Option<EventMemory>,
}

/// Upper bound of the memory for sampled events, in bytes, without tables of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMemory {
    /// Whether memory accesses are sampled.
    pub accesses: bool,
    /// Whether other events are sampled.
    pub others: bool,
    /// Number of rows of samples for which there is room.
    pub rows: u32,
    /// Bytes of the maps with all of these rows.
    pub maps: usize,
}

/// Upper bound of the memory for SPE sampling, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleMemory {
    /// Number of rows of samples for which there is room.
    pub rows: u32,
    /// Bytes of the maps of samples with all of these rows, and with [`USUAL_THREADS`] threads.
    pub maps: usize,
    /// Bytes of the buffers of all CPUs.
    pub buffers: usize,
}

/// Number of threads of a busy node. Each takes 128 bytes in the kernel if SPE samples.
pub const USUAL_THREADS: usize = 65_536;

impl Config {
    /// Memory of a session with this configuration, on `online` of `possible` CPUs.
    #[must_use]
    pub fn memory(&self, online: usize, possible: usize) -> Memory {
        let rows = self.rows(online, possible);
        Memory {
            rows,
            counts: counts_memory(rows as usize, rows, possible, log_ring_size(true, true)).total()
                + self
                    .waits_memory(self.max_wait_rows(rows), rows, possible)
                    .total(),
            samples: self.spe.as_ref().map(|spe| {
                let rows = spe.rows(possible);
                let rows_and_threads = [rows as usize, USUAL_THREADS];
                SampleMemory {
                    rows,
                    maps: samples_memory(spe.wants_timeline(), rows_and_threads, rows, possible)
                        .total(),
                    buffers: spe.aux_size * online,
                }
            }),
            events: self.sampling.as_ref().map(|sampling| {
                let rows = sampling.rows(possible);
                let is_access = |event: &SampledEvent| event.accesses.is_some();
                EventMemory {
                    accesses: sampling.events.iter().any(is_access),
                    others: !sampling.events.iter().all(is_access),
                    rows,
                    maps: events_memory(rows as usize, rows, possible).total(),
                }
            }),
        }
    }

    /// Maximum number of rows of USAGE. If the user does not set it: on each CPU 2,048 rows, or 512
    /// owners with all their groups if that is more; in all at least 16,384 rows, but within
    /// [`USAGE_LIMIT`]. Only the buckets are allocated at once; rows are allocated as owners run.
    pub(super) fn rows(&self, online: usize, possible: usize) -> u32 {
        let on_a_cpu = self.plan.groups.len().saturating_mul(512).max(2048);
        let wanted = u32::try_from(online.saturating_mul(on_a_cpu)).unwrap_or(u32::MAX);
        let room = USAGE.rows_within(USAGE_LIMIT, possible);
        self.max_rows.unwrap_or(wanted.max(16_384).min(room))
    }
}

impl SpeConfig {
    /// Maximum number of rows of SPE samples on this many CPUs, within [`SPE_ROWS_LIMIT`]. Only the
    /// buckets are allocated at once; rows are allocated as owners are sampled. The lifecycle ring
    /// wakes its reader with at most 2,048 ended processes in it: 65,536 rows are 32 for each of
    /// these.
    pub(super) fn rows(&self, possible: usize) -> u32 {
        let wanted = u32::try_from(possible.saturating_mul(1024)).unwrap_or(u32::MAX);
        let room = SPE_ROWS.rows_within(SPE_ROWS_LIMIT, possible);
        self.max_rows.unwrap_or(wanted.max(65_536).min(room))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        plan::Plan,
        snapshot::{SampleCounts, SampledKey},
    };

    fn config(groups: usize) -> Config {
        Config {
            plan: Plan {
                groups: vec![Vec::new(); groups],
                ..Plan::default()
            },
            ..Config::default()
        }
    }

    /// Memory of an agent's session, in bytes, for the tests of the agent's limits.
    #[derive(Debug)]
    pub(crate) struct SessionBytes {
        /// One row in the kernel and in two snapshots.
        pub(crate) row_of_counts: usize,
        pub(crate) counts_without_rows: usize,
        pub(crate) samples: usize,
    }

    pub(crate) fn agent_bytes(cpus: usize, sampled: u32, timeline: bool) -> SessionBytes {
        let rows = config(1).rows(cpus, cpus);
        let rows_and_threads = [sampled as usize, USUAL_THREADS];
        SessionBytes {
            row_of_counts: USAGE.row + 2 * size_of::<(UsageKey, UsageRow)>(),
            counts_without_rows: counts_memory(0, rows, cpus, log_ring_size(true, true)).fixed,
            samples: samples_memory(timeline, rows_and_threads, sampled, cpus).total(),
        }
    }

    /// Bytes in user space while this many rows of samples are read: the kernel's rows, twice;
    /// their weighted counts at the last reading; two snapshots; and half as many rows again that
    /// were freed in between. Hash tables have a power of two of slots, 7 of 8 in use, and a byte
    /// for each slot.
    pub(crate) fn user_bytes(rows: u32) -> usize {
        let (row, counts) = (
            size_of::<(SpeKey, SpeRow)>(),
            size_of::<(SampledKey, SampleCounts)>(),
        );
        let at_the_last_reading = row + size_of::<SampleCounts>() + 8;
        let rows = rows as usize;
        let slots = (rows * 8).div_ceil(7).next_power_of_two();
        let in_tables = row + at_the_last_reading + 2 * counts + 4;
        slots * in_tables + rows * row + rows * 3 / 2 * counts
    }

    /// Bytes of sampled events with this many rows, in the kernel, and in user space while the rows
    /// are read: the kernel's rows, twice; their weighted counts; two snapshots; and half as many
    /// rows again that were freed in between.
    pub(crate) fn sampled_event_bytes(cpus: usize, rows: u32) -> usize {
        let (key, row) = (size_of::<SampleKey>(), size_of::<SampleRow>());
        let counts = size_of::<(SampledKey, SampleCounts)>();
        let maps = events_memory(rows as usize, rows, cpus).total();
        let rows = rows as usize;
        let slots = (rows * 8).div_ceil(7).next_power_of_two();
        let freed = rows * 3 / 2 * counts;
        maps + slots * (key + row + 1) + rows * (key + row) + 3 * slots * (counts + 1) + freed
    }

    fn full_size(table: HashMapSize, rows: u32, cpus: usize) -> usize {
        rows as usize * table.row + table.fixed(rows as usize, cpus)
    }

    proptest! {
        /// For any size of a row, the limit holds with every row in use, and one more row would
        /// exceed it.
        #[test]
        fn the_map_fills_the_limit_but_does_not_exceed_it(
            cpus in 1..1025_usize,
            key_and_value in 16..512_usize,
            limit in (64..128_usize).prop_map(|mib| mib << 20),
        ) {
            let table = HashMapSize::new(key_and_value);
            let room = table.rows_within(limit, cpus);
            prop_assert!(full_size(table, room, cpus) <= limit || room == 1);
            prop_assert!(full_size(table, room + 1, cpus) > limit);
        }

        /// On any machine, with any number of groups, both maps stay within their limits.
        #[test]
        fn a_session_stays_within_both_limits(
            online in 1..1025_usize,
            absent in 0..512_usize,
            groups in 1..=GROUPS,
        ) {
            let possible = (online + absent).min(1024).max(online);
            let rows = config(groups).rows(online, possible);
            prop_assert!(full_size(USAGE, rows, possible) <= USAGE_LIMIT);
            let samples = SPE_ROWS.rows_within(SPE_ROWS_LIMIT, possible);
            prop_assert!(full_size(SPE_ROWS, samples, possible) <= SPE_ROWS_LIMIT);
            // Machines of usual size have the required number of rows.
            if possible <= 144 {
                prop_assert!(rows as usize >= (1000 * online).min(16_384));
                prop_assert!(samples >= 65_536);
            }
        }
    }

    #[test]
    fn a_thousand_cgroups_on_144_cpus_have_rows() {
        let memory = config(1).memory(144, 144);
        assert!(memory.rows >= 144_000, "{memory:?}");
        assert!(memory.counts <= USAGE_LIMIT + (2 << 20), "{memory:?}");
        // The sizes that docs/reference/chart.md states.
        assert_eq!([USAGE.row, SPE_ROWS.row, SPE_TASKS.row], [192, 256, 128]);
    }

    #[test]
    fn the_users_number_of_rows_takes_precedence() {
        let configured = Config {
            max_rows: Some(7),
            ..config(16)
        };
        assert_eq!(configured.rows(144, 144), 7);
    }
}
