//! Memory that a session takes in the kernel at most: the one place that says how large its maps
//! may be. What an agent may take follows from it (`agent/memory.rs`).

use probe_common::{
    CpuState, GROUPS, LIFECYCLE_PATH, LogCpu, SLOTS, Tree, UsageKey, UsageRow,
    sample::{SAMPLED_EVENTS, SampleCpu, SampleKey, SampleRow},
    spe::{Class, SpeCpu, SpeKey, SpeRow, SpeSwitch, SpeTask, TIMELINE},
};

use super::{Config, SpeConfig, object::log_ring_size};
use crate::{event::sampling::SampledEvent, snapshot::MapMemory};

/// What USAGE takes at most with all its rows, where the user does not say how many.
const USAGE_LIMIT: usize = 64 << 20;

/// The same of the rows of samples.
const SPE_ROWS_LIMIT: usize = 32 << 20;

/// Threads that may live at once; memory follows those that do.
pub(super) const MAX_THREADS: u32 = 1 << 20;

/// Threads that may exit between two pulls without staying in the task map.
pub(super) const MAX_EXITED: u32 = 1 << 16;

/// The ring of what comes and goes.
const RING: usize = 256 << 10;

/// A ring has two pages of positions and one of its own data beside its bytes.
const RING_PAGES: usize = 3;

/// Of a bucket.
const BUCKET: usize = 16;

/// Free rows that the allocator keeps on a CPU at most.
const SPARE: usize = 96;

/// A hash map without preallocation. From kernel/bpf/hashtab.c and memalloc.c (6.12): a row is a
/// 48-byte element header, key and value, 8 bytes of allocator link, rounded up to a kmalloc size;
/// a bucket is 16 bytes, their number the next power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// Bytes of a row.
    pub(crate) row: usize,
}

/// Of counts.
pub(crate) const USAGE: Table = Table::of(size_of::<UsageKey>() + size_of::<UsageRow>());

/// Of samples.
pub(crate) const SPE_ROWS: Table = Table::of(size_of::<SpeKey>() + size_of::<SpeRow>());

/// Of the samples of events.
const SAMPLE_ROWS: Table = Table::of(size_of::<SampleKey>() + size_of::<SampleRow>());

/// Of threads.
const SPE_TASKS: Table = Table::of(size_of::<u64>() + size_of::<SpeTask>());

impl Table {
    /// Of so many bytes of key and value.
    const fn of(key_and_value: usize) -> Self {
        Self {
            row: kmalloc_size(48 + key_and_value + 8),
        }
    }

    /// Bytes of the map without a row: buckets for `room` rows, and what the allocator keeps on
    /// `cpus` CPUs.
    fn fixed(self, room: usize, cpus: usize) -> usize {
        room.next_power_of_two() * BUCKET + self.spare(cpus)
    }

    fn spare(self, cpus: usize) -> usize {
        SPARE * self.row * cpus
    }

    /// The most rows with which the map stays within `limit`; one at least.
    fn room(self, limit: usize, cpus: usize) -> u32 {
        let left = limit.saturating_sub(self.spare(cpus));
        let with = |bits: u32| {
            let buckets = 1_usize << bits;
            buckets.min(left.saturating_sub(buckets * BUCKET) / self.row)
        };
        let most = (0..u32::BITS).map(with).max().unwrap_or(0);
        u32::try_from(most).unwrap_or(u32::MAX).max(1)
    }
}

/// Sizes that kmalloc serves: powers of two, and 96 and 192.
const fn kmalloc_size(bytes: usize) -> usize {
    match bytes {
        65..=96 => 96,
        129..=192 => 192,
        _ => bytes.next_power_of_two(),
    }
}

/// What the maps of counts take now; the ring of messages has `log_ring` bytes.
pub(super) fn of_counts(rows: usize, max_rows: u32, cpus: usize, log_ring: u32) -> MapMemory {
    let state = size_of::<CpuState>() + size_of::<LogCpu>();
    let per_cpu = state + GROUPS * size_of::<UsageRow>() + 16 + LIFECYCLE_PATH;
    let page = rustix::param::page_size();
    // The third is that of markers, in a session that has none.
    let rings = RING + log_ring as usize + page + 3 * RING_PAGES * page;
    // Buckets of the cgroups that a walk is asked about: it has rows for a moment only.
    let cgroups = Tree::ASKED as usize * BUCKET;
    let counters = SLOTS * size_of::<usize>();
    MapMemory {
        rows: rows * USAGE.row,
        fixed: USAGE.fixed(max_rows as usize, cpus) + (per_cpu + counters) * cpus + cgroups + rings,
    }
}

/// What the maps of samples take now, with `threads` threads; not the tables of pages and of cache
/// lines, whose size the user gives.
pub(super) fn of_samples(
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

/// What the maps of sampled events take now, without their addresses.
fn of_events(rows: usize, max_rows: u32, cpus: usize) -> MapMemory {
    MapMemory {
        rows: rows * SAMPLE_ROWS.row,
        fixed: SAMPLE_ROWS.fixed(max_rows as usize, cpus)
            + SAMPLED_EVENTS * size_of::<SampleCpu>() * cpus,
    }
}

/// What a session takes in the kernel at most, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Rows of counts for which there is room.
    pub rows: u32,
    /// The maps of counts with all of these.
    pub counts: usize,
    /// What sampling of memory accesses adds.
    pub samples: Option<SampleMemory>,
    /// What sampling of events adds.
    pub events: Option<EventMemory>,
}

/// What sampling of events takes at most, in bytes, without tables of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMemory {
    /// Whether memory accesses are among them.
    pub accesses: bool,
    /// Whether others are.
    pub others: bool,
    /// Rows of samples for which there is room.
    pub rows: u32,
    /// The maps with all of these.
    pub maps: usize,
}

/// What sampling takes at most, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleMemory {
    /// Rows of samples for which there is room.
    pub rows: u32,
    /// The maps of samples with all of these, and with as many threads as are usual at most
    /// ([`USUAL_THREADS`]).
    pub maps: usize,
    /// The buffers of all CPUs.
    pub buffers: usize,
}

/// Threads of a busy node: each has 128 bytes in the kernel where memory accesses are sampled.
pub const USUAL_THREADS: usize = 65_536;

impl Config {
    /// What a session of this takes where `online` of `possible` CPUs count.
    #[must_use]
    pub fn memory(&self, online: usize, possible: usize) -> Memory {
        let rows = self.rows(online, possible);
        Memory {
            rows,
            counts: of_counts(rows as usize, rows, possible, log_ring_size(true, true)).total(),
            samples: self.spe.as_ref().map(|spe| {
                let rows = spe.rows(possible);
                let all = [rows as usize, USUAL_THREADS];
                SampleMemory {
                    rows,
                    maps: of_samples(spe.wants_timeline(), all, rows, possible).total(),
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
                    maps: of_events(rows as usize, rows, possible).total(),
                }
            }),
        }
    }

    /// Rows of USAGE where the user does not say how many: for 2,048 owner-group pairs on every
    /// CPU, or 512 owners with all their groups, as far as they stay within [`USAGE_LIMIT`]. Memory
    /// follows what ran, only the buckets are there at once.
    pub(super) fn rows(&self, online: usize, possible: usize) -> u32 {
        let on_a_cpu = self.plan.groups.len().saturating_mul(512).max(2048);
        let wanted = u32::try_from(online.saturating_mul(on_a_cpu)).unwrap_or(u32::MAX);
        let room = USAGE.room(USAGE_LIMIT, possible);
        self.max_rows.unwrap_or(wanted.max(16_384).min(room))
    }
}

impl SpeConfig {
    /// Rows of samples on so many CPUs, as far as they stay within [`SPE_ROWS_LIMIT`]: memory
    /// follows what was sampled, only the buckets are there at once. Of the processes whose ends
    /// wait in the lifecycle ring each has room for 32.
    pub(super) fn rows(&self, possible: usize) -> u32 {
        let wanted = u32::try_from(possible.saturating_mul(1024)).unwrap_or(u32::MAX);
        let room = SPE_ROWS.room(SPE_ROWS_LIMIT, possible);
        self.max_rows.unwrap_or(wanted.max(65_536).min(room))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        plan::Plan,
        snapshot::{SampledCounts, SampledKey, SpeCounts},
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

    /// What a session of an agent takes on so many CPUs, in bytes.
    #[derive(Debug)]
    pub(crate) struct Taken {
        /// A row in the kernel and in two snapshots.
        pub(crate) row_of_counts: usize,
        pub(crate) counts_without_rows: usize,
        pub(crate) samples: usize,
    }

    pub(crate) fn of_agent(cpus: usize, sampled: u32, timeline: bool) -> Taken {
        let rows = config(1).rows(cpus, cpus);
        let all = [sampled as usize, USUAL_THREADS];
        Taken {
            row_of_counts: USAGE.row + 2 * size_of::<(UsageKey, UsageRow)>(),
            counts_without_rows: of_counts(0, rows, cpus, log_ring_size(true, true)).fixed,
            samples: of_samples(timeline, all, sampled, cpus).total(),
        }
    }

    /// What user space keeps of so many rows of samples while it reads them: the rows as the kernel
    /// has them, twice; what they stood for at the last reading; two snapshots; and half as many
    /// rows again that were freed in between. Hash tables are a power of two, of which 7 of 8 are
    /// used, with a byte for each place.
    pub(crate) fn user_bytes(rows: u32) -> usize {
        let (key, row, counts) = (
            size_of::<SpeKey>(),
            size_of::<SpeRow>(),
            size_of::<SpeCounts>(),
        );
        let rows = rows as usize;
        let places = (rows * 8).div_ceil(7).next_power_of_two();
        let in_tables = (key + row) + (key + row + counts + 8) + 2 * (key + counts) + 4;
        places * in_tables + rows * (key + row) + rows * 3 / 2 * (key + counts)
    }

    /// What sampled events take with so many rows, in the kernel and in user space while it reads
    /// them: the rows as the kernel has them, twice; what they stood for; and two snapshots.
    pub(crate) fn of_sampled_events(cpus: usize, rows: u32) -> usize {
        let (key, row) = (size_of::<SampleKey>(), size_of::<SampleRow>());
        let counts = size_of::<SampledKey>() + size_of::<SampledCounts>();
        let maps = of_events(rows as usize, rows, cpus).total();
        let rows = rows as usize;
        let places = (rows * 8).div_ceil(7).next_power_of_two();
        maps + places * (key + row + 1) + rows * (key + row) + 3 * places * (counts + 1)
    }

    fn all(table: Table, rows: u32, cpus: usize) -> usize {
        rows as usize * table.row + table.fixed(rows as usize, cpus)
    }

    proptest! {
        /// Whatever the size of a row: the limit holds with every row taken, and one more row
        /// would break it.
        #[test]
        fn the_limit_is_used_and_held(
            cpus in 1..1025_usize,
            key_and_value in 16..512_usize,
            limit in (64..128_usize).prop_map(|mib| mib << 20),
        ) {
            let table = Table::of(key_and_value);
            let room = table.room(limit, cpus);
            prop_assert!(all(table, room, cpus) <= limit || room == 1);
            prop_assert!(all(table, room + 1, cpus) > limit);
        }

        /// On any machine, with as many groups as there may be.
        #[test]
        fn a_session_stays_within_both_limits(
            online in 1..1025_usize,
            absent in 0..512_usize,
            groups in 1..=GROUPS,
        ) {
            let possible = (online + absent).min(1024).max(online);
            let rows = config(groups).rows(online, possible);
            prop_assert!(all(USAGE, rows, possible) <= USAGE_LIMIT);
            let samples = SPE_ROWS.room(SPE_ROWS_LIMIT, possible);
            prop_assert!(all(SPE_ROWS, samples, possible) <= SPE_ROWS_LIMIT);
            // What the issue asks of usual machines has room.
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
        // The sizes that docs/kubernetes.md states.
        assert_eq!([USAGE.row, SPE_ROWS.row, SPE_TASKS.row], [192, 256, 128]);
    }

    #[test]
    fn what_the_user_says_holds() {
        let asked = Config {
            max_rows: Some(7),
            ..config(16)
        };
        assert_eq!(asked.rows(144, 144), 7);
    }
}
