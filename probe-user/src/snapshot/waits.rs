//! Waits of owners: for whom, in nanoseconds by who ran meanwhile; and how long each was.

use std::collections::HashMap;

use probe_common::{CgroupId, WAIT_BUCKETS, WaitKey, WaitTimes};
use serde::{Deserialize, Serialize};

/// Who waited, and who ran on that CPU meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WaitPair {
    /// Cgroup of the wait.
    pub waiting: CgroupId,
    /// Process of the wait; 0 unless counting by process.
    pub tgid: u32,
    /// Cgroup of who ran, [`CgroupId::IDLE`], or one of those that mean nobody in particular.
    pub running: CgroupId,
}

/// Waits that ended, by their lengths. Without those of which a part is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitLengths {
    /// Waits by their lengths ([`WaitTimes::bucket`]).
    pub counts: [u64; WAIT_BUCKETS],
    /// Sum of their lengths in nanoseconds.
    pub nanos: u64,
}

/// The lengths of an owner's waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerWaits {
    /// Its cgroup.
    pub cgroup: CgroupId,
    /// Its process; 0 unless counting by process.
    pub tgid: u32,
    /// The lengths.
    pub lengths: WaitLengths,
}

/// Waits since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReading {
    /// Nanoseconds by pair, in their order, on all CPUs. A pair with an ended cgroup or process, or
    /// an idle one, leaves after its last value was in a reading, and begins again at 0.
    pub pairs: Vec<(WaitPair, u64)>,
    /// Nanoseconds for which the map had no room.
    pub unplaced: u64,
    /// Rows of the map.
    pub rows: usize,
    /// Lengths by owner, in their order, on all CPUs. They leave as pairs do.
    pub owners: Vec<OwnerWaits>,
    /// Waits for whose lengths their map had no room.
    pub unplaced_waits: u64,
    /// Rows of that map.
    pub length_rows: usize,
}

/// Waits in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitDelta {
    /// Nanoseconds by pair, in their order; none of 0.
    pub pairs: Vec<(WaitPair, u64)>,
    /// Nanoseconds for which the map had no room.
    pub unplaced: u64,
    /// Lengths by owner, in their order; also of owners without a wait in the window.
    pub owners: Vec<OwnerWaits>,
    /// Waits for whose lengths their map had no room.
    pub unplaced_waits: u64,
}

/// Reads the waits of a session that counts them.
#[derive(Debug)]
pub struct WaitReader;

impl From<&WaitTimes> for WaitLengths {
    fn from(times: &WaitTimes) -> Self {
        let WaitTimes { counts, nanos } = *times;
        Self { counts, nanos }
    }
}

impl From<WaitLengths> for WaitTimes {
    fn from(lengths: WaitLengths) -> Self {
        let WaitLengths { counts, nanos } = lengths;
        Self { counts, nanos }
    }
}

impl WaitLengths {
    /// How many there are.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }

    /// These and others.
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        let mut sum = *self;
        for (sum, more) in sum.counts.iter_mut().zip(more.counts) {
            *sum = sum.saturating_add(more);
        }
        sum.nanos = sum.nanos.saturating_add(more.nanos);
        sum
    }

    /// Those since an earlier reading. A row that was freed and made again begins at 0.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut gain = *self;
        let pairs = gain.counts.iter_mut().zip(earlier.counts);
        let counts = pairs.map(|(now, before)| {
            *now = now.checked_sub(before)?;
            Some(())
        });
        let is_same = counts.collect::<Option<Vec<()>>>().is_some();
        match (is_same, gain.nanos.checked_sub(earlier.nanos)) {
            (true, Some(nanos)) => Self { nanos, ..gain },
            _ => *self,
        }
    }
}

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
            // A row that was freed and made again begins at 0.
            let gain = if *now >= before { now - before } else { *now };
            (gain > 0).then_some((*pair, gain))
        };
        let by_owner = earlier.owners.iter();
        let by_owner: HashMap<_, _> = by_owner.map(|it| ((it.cgroup, it.tgid), it)).collect();
        let owners = later.owners.iter().map(|now| {
            let before = by_owner.get(&(now.cgroup, now.tgid));
            let lengths = before.map_or(now.lengths, |before| now.lengths.since(&before.lengths));
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
    use super::*;

    fn lengths(counts: &[(usize, u64)]) -> WaitLengths {
        let mut all = WaitLengths::default();
        for (bucket, count) in counts {
            all.counts[*bucket] = *count;
            all.nanos += 1000 * count;
        }
        all
    }

    fn owner(tgid: u32, counts: &[(usize, u64)]) -> OwnerWaits {
        OwnerWaits {
            cgroup: CgroupId(7),
            tgid,
            lengths: lengths(counts),
        }
    }

    #[test]
    fn lengths_have_windows() {
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
                // Dropped, and begun again.
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
        let most = WaitLengths {
            counts: [u64::MAX; WAIT_BUCKETS],
            nanos: u64::MAX,
        };
        assert_eq!(most.plus(&most).waits(), u64::MAX);
        assert_eq!(most.plus(&most).nanos, u64::MAX);
    }

    #[test]
    fn a_window_has_what_grew_and_what_was_made_again() {
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
