//! CPU waits of owners: the cgroups that ran meanwhile, and the lengths of the waits.

use probe_common::{CgroupId, WaitKey, WaitTimes};
use serde::{Deserialize, Serialize};

/// An owner that waited, and the cgroup that ran on that CPU meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WaitPair {
    /// The cgroup that waited.
    pub waiting: CgroupId,
    /// The process that waited; 0 unless counting by process.
    pub tgid: u32,
    /// The cgroup that ran; [`CgroupId::IDLE`], [`CgroupId::EARLIER`] and [`CgroupId::OTHER_CPU`]
    /// are not cgroups.
    pub running: CgroupId,
}

/// The lengths of an owner's waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerWaits {
    /// The owner's cgroup.
    pub cgroup: CgroupId,
    /// The owner's process; 0 unless counting by process.
    pub tgid: u32,
    /// The lengths of its waits.
    pub lengths: WaitTimes,
}

/// Waits since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReading {
    /// Nanoseconds by pair, sorted, on all CPUs. A pair is dropped when its cgroup or process has
    /// ended; also when it did not increase while the map was nearly full. If the pair waits again,
    /// it starts at 0.
    pub pairs: Vec<(WaitPair, u64)>,
    /// Nanoseconds of pairs that did not fit into the map.
    pub unplaced: u64,
    /// Number of rows in the map of pairs.
    pub rows: usize,
    /// Lengths by owner, sorted, on all CPUs. Owners are dropped like pairs.
    pub owners: Vec<OwnerWaits>,
    /// Number of waits whose lengths did not fit into the map of lengths.
    pub unplaced_waits: u64,
    /// Number of rows in the map of lengths.
    pub length_rows: usize,
}

/// Waits in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitDelta {
    /// Nanoseconds by pair, sorted; without zeros.
    pub pairs: Vec<(WaitPair, u64)>,
    /// Nanoseconds of pairs that did not fit into the map.
    pub unplaced: u64,
    /// Lengths by owner, sorted; including owners without a wait in the window.
    pub owners: Vec<OwnerWaits>,
    /// Number of waits whose lengths did not fit into the map of lengths.
    pub unplaced_waits: u64,
}

/// Reads the waits of a session that counts them.
#[derive(Debug)]
pub struct WaitReader;

impl From<WaitKey> for WaitPair {
    fn from(key: WaitKey) -> Self {
        Self {
            waiting: key.waiting,
            tgid: key.tgid,
            running: key.running,
        }
    }
}

impl WaitDelta {
    /// The window between two readings.
    #[must_use]
    pub fn between(earlier: &WaitReading, later: &WaitReading) -> Self {
        let gain = |(pair, now): &(WaitPair, u64)| {
            let before = earlier.pairs.binary_search_by_key(pair, |(pair, _)| *pair);
            let before = before.map_or(0, |at| earlier.pairs[at].1);
            // A smaller value is that of a pair that was dropped and started again at 0.
            let gain = if *now >= before { now - before } else { *now };
            (gain > 0).then_some((*pair, gain))
        };
        let owners = later.owners.iter().map(|now| {
            let key = |waits: &OwnerWaits| (waits.cgroup, waits.tgid);
            let before = earlier.owners.binary_search_by_key(&key(now), key);
            let before = before.map(|at| earlier.owners[at].lengths);
            let lengths = before.map_or(now.lengths, |before| now.lengths.since(&before));
            OwnerWaits { lengths, ..*now }
        });
        Self {
            pairs: later.pairs.iter().filter_map(gain).collect(),
            unplaced: later.unplaced.saturating_sub(earlier.unplaced),
            owners: owners.collect(),
            unplaced_waits: later.unplaced_waits.saturating_sub(earlier.unplaced_waits),
        }
    }
}

#[cfg(test)]
mod tests {
    use probe_common::WAIT_BUCKETS;

    use super::*;

    fn lengths(counts: &[(usize, u64)]) -> WaitTimes {
        let mut times = WaitTimes::default();
        for (bucket, count) in counts {
            times.counts[*bucket] = *count;
            times.nanos += 1000 * count;
        }
        times
    }

    fn owner(tgid: u32, counts: &[(usize, u64)]) -> OwnerWaits {
        OwnerWaits {
            cgroup: CgroupId(7),
            tgid,
            lengths: lengths(counts),
        }
    }

    #[test]
    fn lengths_are_subtracted_by_owner() {
        let reading = |owners: &[OwnerWaits], unplaced_waits| WaitReading {
            owners: owners.to_vec(),
            unplaced_waits,
            ..WaitReading::default()
        };
        let later = reading(
            &[
                owner(1, &[(0, 6), (31, 2)]),
                owner(2, &[(4, 9)]),
                owner(3, &[(4, 9)]),
            ],
            8,
        );
        let earlier = reading(
            &[
                owner(1, &[(0, 2)]),
                owner(2, &[(4, 9)]),
                // Dropped and created again.
                owner(3, &[(5, 1)]),
            ],
            5,
        );
        let delta = WaitDelta::between(&earlier, &later);
        let gains = [
            owner(1, &[(0, 4), (31, 2)]),
            owner(2, &[]),
            owner(3, &[(4, 9)]),
        ];
        assert_eq!((&delta.owners[..], delta.unplaced_waits), (&gains[..], 3));
        assert_eq!(delta.owners[0].lengths.waits(), 6);
        let most = WaitTimes {
            counts: [u64::MAX; WAIT_BUCKETS],
            nanos: u64::MAX,
        };
        assert_eq!(most.plus(&most).waits(), u64::MAX);
        assert_eq!(most.plus(&most).nanos, u64::MAX);
    }

    #[test]
    fn a_window_has_pairs_that_grew_or_were_created_again() {
        let reading = |nanos: [u64; 3]| {
            let pair = |at: usize| WaitPair {
                waiting: CgroupId(7),
                tgid: 0,
                running: CgroupId(at as u64),
            };
            WaitReading {
                pairs: nanos
                    .iter()
                    .enumerate()
                    .map(|(at, it)| (pair(at), *it))
                    .collect(),
                unplaced: nanos[0],
                rows: 3,
                ..WaitReading::default()
            }
        };
        let delta = WaitDelta::between(&reading([5, 100, 9]), &reading([8, 30, 9]));
        let gains: Vec<_> = delta.pairs.iter().map(|(_, nanos)| *nanos).collect();
        assert_eq!((gains, delta.unplaced), (vec![3, 30], 3));
    }
}
