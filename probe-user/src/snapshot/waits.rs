//! For whom owners wait: nanoseconds by owner of the wait and by who ran meanwhile.

use std::collections::{BTreeMap, HashMap};

use probe_common::{CgroupId, WaitKey};
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

/// Waits since the session began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitReading {
    /// Nanoseconds by pair, in their order, on all CPUs. Pairs with an ended cgroup or process are
    /// freed, after their last values were in a reading.
    pub pairs: Vec<(WaitPair, u64)>,
    /// Nanoseconds for which the map had no room.
    pub unplaced: u64,
    /// Rows of the map.
    pub rows: usize,
}

/// Waits in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitDelta {
    /// Nanoseconds by pair, in their order; none of 0.
    pub pairs: Vec<(WaitPair, u64)>,
    /// Nanoseconds for which the map had no room.
    pub unplaced: u64,
}

/// Rows of the kernel's map, as a pull reads them.
#[derive(Debug, Default)]
pub struct WaitRowsRead {
    /// The rows.
    pub rows: Vec<(WaitKey, u64)>,
    /// Nanoseconds for which the map had no room.
    pub unplaced: u64,
}

/// Sums rows of the kernel's map over CPUs.
#[derive(Debug, Default)]
pub struct WaitReader;

impl WaitReader {
    /// The sums by pair.
    #[must_use]
    pub fn read(&self, read: &WaitRowsRead) -> WaitReading {
        let mut sums: BTreeMap<WaitPair, u64> = BTreeMap::new();
        for (key, nanos) in &read.rows {
            *sums.entry((*key).into()).or_default() += nanos;
        }
        WaitReading {
            pairs: sums.into_iter().collect(),
            unplaced: read.unplaced,
            rows: read.rows.len(),
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
        let before: HashMap<_, _> = earlier.pairs.iter().copied().collect();
        let gain = |(pair, now): &(WaitPair, u64)| {
            let before = before.get(pair).copied().unwrap_or(0);
            // A row that was freed and made again begins at 0.
            let gain = if *now >= before { now - before } else { *now };
            (gain > 0).then_some((*pair, gain))
        };
        Self {
            pairs: later.pairs.iter().filter_map(gain).collect(),
            unplaced: later.unplaced.saturating_sub(earlier.unplaced),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_summed_over_cpus() {
        let row = |running: CgroupId, tgid: u32, cpu: u32, nanos: u64| {
            let key = WaitKey {
                waiting: CgroupId(7),
                running,
                tgid,
                cpu,
            };
            (key, nanos)
        };
        let read = WaitRowsRead {
            rows: vec![
                row(CgroupId(8), 0, 0, 10),
                row(CgroupId(8), 0, 1, 20),
                row(CgroupId::IDLE, 42, 0, 3),
                row(CgroupId(8), 42, 1, 60),
            ],
            unplaced: 5,
        };
        let reading = WaitReader.read(&read);
        let found: Vec<_> = reading
            .pairs
            .iter()
            .map(|(pair, nanos)| (pair.tgid, pair.running.0, *nanos))
            .collect();
        assert_eq!(found, [(0, 8, 30), (42, 0, 3), (42, 8, 60)]);
        assert_eq!((reading.unplaced, reading.rows), (5, 4));
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
            }
        };
        let delta = WaitDelta::between(&reading([5, 100, 9]), &reading([8, 30, 9]));
        let gains: Vec<_> = delta.pairs.iter().map(|(_, nanos)| *nanos).collect();
        assert_eq!((gains, delta.unplaced), (vec![3, 30], 3));
    }
}
