//! What is measured: on which CPUs, with how many threads, over how much memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::{caches::Cache, cpus::CpuList};

/// STREAM's rule: each of its three arrays has four times the last level's size at least.
const TIMES_LAST_LEVEL: u64 = 3 * 4;

/// Memory where the machine tells no caches: more than those of most have.
const WITHOUT_CACHES: u64 = 384 << 20;

/// The part of a cache that is used, as its inverse: the rest is left to what else is in it.
const PART: u64 = 2;

/// How much more than the caches inside it the part of a cache must be to be measured apart.
const MORE_THAN_INNER: u64 = 2;

/// CPUs that are measured together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// None: all sockets.
    pub(super) socket: Option<u32>,
    /// In the order in which threads get them: one of each core, then the others.
    pub(super) cpus: Vec<u32>,
    /// Physical cores among them.
    pub(super) cores: usize,
}

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub(super) cpu: u32,
    pub(super) socket: u32,
    /// The first CPU of its core.
    pub(super) core: u32,
}

/// Each socket, then all of them where there are several.
pub(super) fn places(seats: &[Seat]) -> Vec<Place> {
    let sockets: BTreeSet<u32> = seats.iter().map(|seat| seat.socket).collect();
    let own = |socket: u32| {
        let own: Vec<Seat> = (seats.iter().copied())
            .filter(|seat| seat.socket == socket)
            .collect();
        place(Some(socket), &own)
    };
    let mut places: Vec<Place> = sockets.iter().copied().map(own).collect();
    if sockets.len() > 1 {
        places.push(place(None, seats));
    }
    places
}

fn place(socket: Option<u32>, seats: &[Seat]) -> Place {
    let mut of_core: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Seat)> = Vec::new();
    let mut seats = seats.to_vec();
    seats.sort_unstable();
    for seat in seats {
        let before = of_core.entry((seat.socket, seat.core)).or_default();
        ranked.push((*before, seat));
        *before += 1;
    }
    ranked.sort();
    Place {
        socket,
        cores: of_core.len(),
        cpus: ranked.into_iter().map(|(_, seat)| seat.cpu).collect(),
    }
}

impl Place {
    /// The first CPUs of it, with their number of cores.
    pub(super) fn first(&self, threads: usize) -> (&[u32], usize) {
        let threads = threads.min(self.cpus.len());
        (&self.cpus[..threads], threads.min(self.cores))
    }

    /// Numbers of threads: powers of two up to one for each core, that, and one for each CPU. Of
    /// all sockets together only the last two.
    pub(super) fn threads(&self, most: usize) -> Vec<usize> {
        let (cores, cpus) = (self.cores.min(most), self.cpus.len().min(most));
        let powers = (0..usize::BITS).map(|power| 1_usize << power);
        let few = powers.take_while(|power| *power < cores);
        let few = few.filter(|_| self.socket.is_some());
        let all: BTreeSet<usize> = few.chain([cores, cpus]).collect();
        all.into_iter().collect()
    }
}

/// How much memory a measurement goes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    /// `L1`, `L2`, .., `memory`, or `given`.
    pub(super) level: String,
    /// Of all threads together.
    pub(super) bytes: u64,
}

/// The name of what no cache holds.
pub(super) const MEMORY: &str = "memory";

/// One for each level of the caches of these CPUs, where it can be told from those inside it, then
/// memory: at most `most` bytes.
pub(super) fn amounts(caches: &[Cache], cpus: &[u32], most: u64) -> Vec<Amount> {
    let mine = |cache: &&Cache| cpus.iter().any(|cpu| cache.cpus.contains(*cpu));
    let mut of_level: BTreeMap<u32, u64> = BTreeMap::new();
    for cache in caches.iter().filter(mine) {
        *of_level.entry(cache.level).or_default() += cache.size;
    }
    let mut amounts = Vec::new();
    let mut inner = 0;
    for (level, size) in &of_level {
        let bytes = size / PART;
        if bytes >= inner * MORE_THAN_INNER && bytes <= most {
            amounts.push(Amount {
                level: format!("L{level}"),
                bytes,
            });
        }
        inner = *size;
    }
    let last = of_level.values().next_back();
    let memory = last.map_or(WITHOUT_CACHES, |last| last * TIMES_LAST_LEVEL);
    amounts.push(Amount {
        level: MEMORY.to_owned(),
        bytes: memory.min(most),
    });
    amounts
}

/// Whether so many bytes are what STREAM asks for.
pub(super) fn is_beyond_caches(caches: &[Cache], cpus: &[u32], bytes: u64) -> bool {
    let all = amounts(caches, cpus, u64::MAX);
    all.last().is_some_and(|memory| bytes >= memory.bytes)
}

/// The bytes of a line: of the caches, or what nearly all have.
pub(super) fn line(caches: &[Cache]) -> u64 {
    let lines = caches.iter().filter_map(|cache| cache.line);
    lines
        .max()
        .filter(|line| line.is_power_of_two())
        .unwrap_or(64)
}

/// The seats of these CPUs, by `core_of` and `socket_of`.
pub(super) fn seats(
    cpus: &CpuList,
    socket_of: impl Fn(u32) -> u32,
    core_of: impl Fn(u32) -> u32,
) -> Vec<Seat> {
    let seat = |cpu| Seat {
        cpu,
        socket: socket_of(cpu),
        core: core_of(cpu),
    };
    cpus.iter().map(seat).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(level: u32, cpus: &str, size: u64) -> Cache {
        Cache {
            level,
            cpus: cpus.parse().unwrap(),
            size,
            line: Some(64),
        }
    }

    fn told(amounts: &[Amount]) -> Vec<(&str, u64)> {
        amounts
            .iter()
            .map(|amount| (&*amount.level, amount.bytes))
            .collect()
    }

    /// Two sockets of two cores with two threads each, numbered as Xeons are.
    #[test]
    fn cores_come_before_their_second_threads_and_sockets_before_all() {
        let cpus = "0-7".parse().unwrap();
        let seats = seats(&cpus, |cpu| cpu % 2, |cpu| cpu % 4);
        let places = places(&seats);
        let told: Vec<_> = places
            .iter()
            .map(|place| (place.socket, place.cpus.clone(), place.cores))
            .collect();
        assert_eq!(
            told,
            [
                (Some(0), vec![0, 2, 4, 6], 2),
                (Some(1), vec![1, 3, 5, 7], 2),
                (None, vec![0, 1, 2, 3, 4, 5, 6, 7], 4),
            ]
        );
        assert_eq!(places[0].threads(usize::MAX), [1, 2, 4]);
        assert_eq!(places[2].threads(usize::MAX), [4, 8]);
        assert_eq!(places[0].threads(1), [1]);
        assert_eq!(places[0].first(3), (&[0, 2, 4][..], 2));
    }

    #[test]
    fn each_level_is_half_full_and_memory_is_streams_rule() {
        let mib = 1 << 20;
        let caches = [
            cache(1, "0", 48 << 10),
            cache(1, "1", 48 << 10),
            cache(2, "0", mib),
            cache(2, "1", mib),
            cache(3, "0-1", 32 * mib),
            cache(3, "2-3", 32 * mib),
        ];
        let one = amounts(&caches, &[0], u64::MAX);
        let names = [("L1", 24 << 10), ("L2", mib / 2), ("L3", 16 * mib)];
        assert_eq!(told(&one)[..3], names);
        assert_eq!(told(&one)[3], ("memory", 384 * mib));
        let two = amounts(&caches, &[0, 1], 100 * mib);
        assert_eq!(told(&two)[..2], [("L1", 48 << 10), ("L2", mib)]);
        assert_eq!(told(&two)[3], ("memory", 100 * mib));
        assert!(!is_beyond_caches(&caches, &[0, 1], 100 * mib));
        assert!(is_beyond_caches(&caches, &[0, 1], 384 * mib));
        // 72 cores with 1 MiB of their own share 114 MiB: half of that is in their L2.
        let grace = [cache(2, "0", 72 * mib), cache(3, "0", 114 * mib)];
        let levels = amounts(&grace, &[0], u64::MAX);
        assert_eq!(told(&levels), [("L2", 36 * mib), ("memory", 1368 * mib)]);
        assert_eq!(told(&amounts(&[], &[0], 1000)), [("memory", 1000)]);
        assert_eq!((line(&caches), line(&[])), (64, 64));
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
            let seats = seats(&cpus, at, |cpu| cpu % cores);
            for place in places(&seats) {
                let own: Vec<u32> = cpus
                    .iter()
                    .filter(|cpu| place.socket.is_none_or(|socket| at(*cpu) == socket))
                    .collect();
                let mut found = place.cpus.clone();
                found.sort_unstable();
                prop_assert_eq!(found, own);
                let threads = place.threads(usize::MAX);
                prop_assert!(threads.is_sorted() && threads.contains(&place.cpus.len()));
                prop_assert!(place.cores >= 1 && place.cores <= place.cpus.len());
            }
        }
    }
}
