//! The points of the measurement: on which CPUs ([`CpuGroup`]), with how many threads, over how
//! much memory ([`WorkingSet`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::caches::Cache;

/// Bytes of the three arrays, as a multiple of the last-level caches. By STREAM's rule each array
/// is at least four times as large as these caches.
const STREAM_MULTIPLE: u64 = 3 * 4;

/// Bytes of the three arrays if the kernel reports no caches: more than most machines' caches.
const BYTES_WITHOUT_CACHES: u64 = 384 << 20;

/// A working set has the size of a cache divided by this; the rest is left to other data.
const CACHE_DIVISOR: u64 = 2;

/// A cache level is measured if its working set is at least this many times as large as the next
/// inner level.
const MIN_RATIO_TO_INNER: u64 = 2;

/// CPUs that are measured together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuGroup {
    /// None: all sockets.
    pub(super) socket: Option<u32>,
    /// In the order in which threads are placed: first one CPU of each core, then the other CPUs.
    pub(super) cpus: Vec<u32>,
    /// Number of physical cores of `cpus`.
    pub(super) cores: usize,
}

/// The socket and the core of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CpuLocation {
    pub(super) cpu: u32,
    pub(super) socket: u32,
    /// The first CPU of its core.
    pub(super) core: u32,
}

/// A group for each socket, and one of all sockets if there are several.
pub(super) fn cpu_groups(locations: &[CpuLocation]) -> Vec<CpuGroup> {
    let sockets: BTreeSet<u32> = locations.iter().map(|location| location.socket).collect();
    let socket_group = |socket: u32| {
        let inside: Vec<CpuLocation> = (locations.iter().copied())
            .filter(|location| location.socket == socket)
            .collect();
        cpu_group(Some(socket), &inside)
    };
    let mut groups: Vec<CpuGroup> = sockets.iter().copied().map(socket_group).collect();
    if sockets.len() > 1 {
        groups.push(cpu_group(None, locations));
    }
    groups
}

fn cpu_group(socket: Option<u32>, locations: &[CpuLocation]) -> CpuGroup {
    let mut cpus_by_core: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, CpuLocation)> = Vec::new();
    let mut locations = locations.to_vec();
    locations.sort_unstable();
    for location in locations {
        let cpus_before = cpus_by_core
            .entry((location.socket, location.core))
            .or_default();
        ranked.push((*cpus_before, location));
        *cpus_before += 1;
    }
    ranked.sort();
    CpuGroup {
        socket,
        cores: cpus_by_core.len(),
        cpus: (ranked.into_iter())
            .map(|(_, location)| location.cpu)
            .collect(),
    }
}

impl CpuGroup {
    /// The CPUs of the first `threads` threads, and their number of cores.
    pub(super) fn first_cpus(&self, threads: usize) -> (&[u32], usize) {
        let threads = threads.min(self.cpus.len());
        (&self.cpus[..threads], threads.min(self.cores))
    }

    /// Numbers of threads to measure: powers of two, one thread for each core, and one for each
    /// CPU. The group of all sockets has no powers of two.
    pub(super) fn thread_counts(&self, max: usize) -> Vec<usize> {
        let (cores, cpus) = (self.cores.min(max), self.cpus.len().min(max));
        let powers = (0..usize::BITS)
            .map(|power| 1_usize << power)
            .take_while(|power| *power < cores)
            .filter(|_| self.socket.is_some());
        let all: BTreeSet<usize> = powers.chain([cores, cpus]).collect();
        all.into_iter().collect()
    }
}

/// The memory that a measurement accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkingSet {
    /// `L1`, `L2`, .., `memory`, or `given BYTES`.
    pub(super) level: String,
    /// Bytes of all threads together.
    pub(super) bytes: u64,
}

/// The level of working sets that fit into no cache.
pub(super) const MEMORY: &str = "memory";

/// A working set for each cache level of these CPUs that is clearly larger than the next inner
/// level, then one for memory. No working set exceeds `max` bytes.
pub(super) fn working_sets(caches: &[Cache], cpus: &[u32], max: u64) -> Vec<WorkingSet> {
    let is_used = |cache: &&Cache| cpus.iter().any(|cpu| cache.cpus.contains(*cpu));
    let mut size_by_level: BTreeMap<u32, u64> = BTreeMap::new();
    for cache in caches.iter().filter(is_used) {
        *size_by_level.entry(cache.level).or_default() += cache.size;
    }
    let mut working_sets = Vec::new();
    let mut inner = 0;
    for (level, size) in &size_by_level {
        let bytes = size / CACHE_DIVISOR;
        if bytes >= inner * MIN_RATIO_TO_INNER && bytes <= max {
            working_sets.push(WorkingSet {
                level: format!("L{level}"),
                bytes,
            });
        }
        inner = *size;
    }
    let last = size_by_level.values().next_back();
    let memory = last.map_or(BYTES_WITHOUT_CACHES, |last| last * STREAM_MULTIPLE);
    working_sets.push(WorkingSet {
        level: MEMORY.to_owned(),
        bytes: memory.min(max),
    });
    working_sets
}

/// Whether `bytes` are enough by STREAM's rule.
pub(super) fn is_beyond_caches(caches: &[Cache], cpus: &[u32], bytes: u64) -> bool {
    let working_sets = working_sets(caches, cpus, u64::MAX);
    working_sets
        .last()
        .is_some_and(|memory| bytes >= memory.bytes)
}

/// Bytes of a cache line: the kernel's value, or 64 if it is unknown.
pub(super) fn line_size(caches: &[Cache]) -> u64 {
    let lines = caches.iter().filter_map(|cache| cache.line);
    lines
        .max()
        .filter(|line| line.is_power_of_two())
        .unwrap_or(64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::machine::cpus::CpuList;

    fn locations(
        cpus: &CpuList,
        socket_of: impl Fn(u32) -> u32,
        core_of: impl Fn(u32) -> u32,
    ) -> Vec<CpuLocation> {
        let location = |cpu| CpuLocation {
            cpu,
            socket: socket_of(cpu),
            core: core_of(cpu),
        };
        cpus.iter().map(location).collect()
    }

    fn cache(level: u32, cpus: &str, size: u64) -> Cache {
        Cache {
            level,
            cpus: cpus.parse().unwrap(),
            size,
            line: Some(64),
        }
    }

    fn pairs(working_sets: &[WorkingSet]) -> Vec<(&str, u64)> {
        working_sets
            .iter()
            .map(|working_set| (&*working_set.level, working_set.bytes))
            .collect()
    }

    /// Two sockets of two cores with two threads each, numbered as on Xeons.
    #[test]
    fn first_threads_of_cores_come_first_and_the_group_of_all_sockets_last() {
        let cpus = "0-7".parse().unwrap();
        let locations = locations(&cpus, |cpu| cpu % 2, |cpu| cpu % 4);
        let groups = cpu_groups(&locations);
        let shapes: Vec<_> = groups
            .iter()
            .map(|group| (group.socket, group.cpus.clone(), group.cores))
            .collect();
        assert_eq!(
            shapes,
            [
                (Some(0), vec![0, 2, 4, 6], 2),
                (Some(1), vec![1, 3, 5, 7], 2),
                (None, vec![0, 1, 2, 3, 4, 5, 6, 7], 4),
            ]
        );
        assert_eq!(groups[0].thread_counts(usize::MAX), [1, 2, 4]);
        assert_eq!(groups[2].thread_counts(usize::MAX), [4, 8]);
        assert_eq!(groups[0].thread_counts(1), [1]);
        assert_eq!(groups[0].first_cpus(3), (&[0, 2, 4][..], 2));
    }

    #[test]
    fn each_level_is_half_full_and_memory_follows_streams_rule() {
        let mib = 1 << 20;
        let caches = [
            cache(1, "0", 48 << 10),
            cache(1, "1", 48 << 10),
            cache(2, "0", mib),
            cache(2, "1", mib),
            cache(3, "0-1", 32 * mib),
            cache(3, "2-3", 32 * mib),
        ];
        let one = working_sets(&caches, &[0], u64::MAX);
        let names = [("L1", 24 << 10), ("L2", mib / 2), ("L3", 16 * mib)];
        assert_eq!(pairs(&one)[..3], names);
        assert_eq!(pairs(&one)[3], ("memory", 384 * mib));
        let two = working_sets(&caches, &[0, 1], 100 * mib);
        assert_eq!(pairs(&two)[..2], [("L1", 48 << 10), ("L2", mib)]);
        assert_eq!(pairs(&two)[3], ("memory", 100 * mib));
        assert!(!is_beyond_caches(&caches, &[0, 1], 100 * mib));
        assert!(is_beyond_caches(&caches, &[0, 1], 384 * mib));
        // 72 cores with an L2 of 1 MiB each share an L3 of 114 MiB: half of it fits into their L2.
        let grace = [cache(2, "0", 72 * mib), cache(3, "0", 114 * mib)];
        let levels = working_sets(&grace, &[0], u64::MAX);
        assert_eq!(pairs(&levels), [("L2", 36 * mib), ("memory", 1368 * mib)]);
        assert_eq!(pairs(&working_sets(&[], &[0], 1000)), [("memory", 1000)]);
        assert_eq!((line_size(&caches), line_size(&[])), (64, 64));
    }

    proptest! {
        #[test]
        fn every_cpu_has_one_place_in_its_socket(
            sockets in prop::collection::vec(0_u32..3, 1..40),
            cores in 1_u32..20,
        ) {
            let count = u32::try_from(sockets.len()).unwrap();
            let cpus: CpuList = (0..count).collect();
            let at = |cpu: u32| sockets[usize::try_from(cpu).unwrap()];
            let locations = locations(&cpus, at, |cpu| cpu % cores);
            for group in cpu_groups(&locations) {
                let expected: Vec<u32> = cpus
                    .iter()
                    .filter(|cpu| group.socket.is_none_or(|socket| at(*cpu) == socket))
                    .collect();
                let mut sorted = group.cpus.clone();
                sorted.sort_unstable();
                prop_assert_eq!(sorted, expected);
                let threads = group.thread_counts(usize::MAX);
                prop_assert!(threads.is_sorted() && threads.contains(&group.cpus.len()));
                prop_assert!(group.cores >= 1 && group.cores <= group.cpus.len());
            }
        }
    }
}
