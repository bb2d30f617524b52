//! Totals of the kernel's maps of waits, over all CPUs ([`RowTotals`]). Reading a map frees the
//! rows of ended owners, and idle rows if the map fills up.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
    mem,
};

use probe_common::{CgroupId, UsageKey, WaitKey, WaitTimes};

use crate::snapshot::WaitPair;

/// Key of a map's row on one CPU.
pub(super) trait WaitRow: Copy + Eq + Hash {
    /// The key of a total: the row's key without the CPU.
    type TotalKey: Copy + Ord + Hash;
    type Value: Copy + Default;

    fn total_key(&self) -> Self::TotalKey;

    /// The increase since an earlier reading of the same row.
    fn gain(now: &Self::Value, before: &Self::Value) -> Self::Value;

    fn add(sum: &mut Self::Value, gain: &Self::Value);

    fn is_zero(gain: &Self::Value) -> bool;
}

/// The totals of a map, over all rows that it ever had.
#[derive(Debug)]
pub(super) struct RowTotals<K: WaitRow> {
    /// The last values of the rows in the map.
    last: HashMap<K, K::Value>,
    totals: BTreeMap<K::TotalKey, K::Value>,
    /// Totals that increased since the last snapshot.
    gained: HashSet<K::TotalKey>,
}

impl<K: WaitRow> Default for RowTotals<K> {
    fn default() -> Self {
        Self {
            last: HashMap::new(),
            totals: BTreeMap::new(),
            gained: HashSet::new(),
        }
    }
}

impl<K: WaitRow> RowTotals<K> {
    /// Adds the increase of each row. Frees rows of ended owners; with more than `free_from` rows,
    /// also rows that did not increase. `take` removes a row and returns its last value.
    pub(super) fn add<E>(
        &mut self,
        rows: impl IntoIterator<Item = (K, K::Value), IntoIter: ExactSizeIterator>,
        free_from: usize,
        has_ended: impl Fn(&K) -> bool,
        mut take: impl FnMut(&K) -> Result<Option<K::Value>, E>,
    ) -> Result<(), E> {
        let rows = rows.into_iter();
        let frees_idle = rows.len() > free_from;
        let before = mem::take(&mut self.last);
        for (key, now) in rows {
            let before = before.get(&key).copied().unwrap_or_default();
            let mut gain = K::gain(&now, &before);
            let is_idle = frees_idle && K::is_zero(&gain);
            if has_ended(&key) || is_idle {
                // The row may have grown since it was read.
                if let Some(last) = take(&key)? {
                    gain = K::gain(&last, &before);
                }
            } else {
                self.last.insert(key, now);
            }
            if !K::is_zero(&gain) {
                self.gained.insert(key.total_key());
                K::add(self.totals.entry(key.total_key()).or_default(), &gain);
            }
        }
        Ok(())
    }

    /// All totals for a snapshot, sorted. Drops those that have no row and did not increase since
    /// the snapshot before.
    pub(super) fn totals(&mut self) -> impl Iterator<Item = (K::TotalKey, K::Value)> {
        let mut shown = mem::take(&mut self.gained);
        shown.extend(self.last.keys().map(WaitRow::total_key));
        self.totals.retain(|total_key, _| shown.contains(total_key));
        self.totals
            .iter()
            .map(|(total_key, total)| (*total_key, *total))
    }

    /// The number of rows in the map after the last reading.
    pub(super) fn rows(&self) -> usize {
        self.last.len()
    }
}

impl WaitRow for WaitKey {
    type TotalKey = WaitPair;
    type Value = u64;

    fn total_key(&self) -> WaitPair {
        (*self).into()
    }

    fn gain(now: &u64, before: &u64) -> u64 {
        now.saturating_sub(*before)
    }

    fn add(sum: &mut u64, gain: &u64) {
        *sum = sum.saturating_add(*gain);
    }

    fn is_zero(gain: &u64) -> bool {
        *gain == 0
    }
}

impl WaitRow for UsageKey {
    /// Cgroup and process.
    type TotalKey = (CgroupId, u32);
    type Value = WaitTimes;

    fn total_key(&self) -> (CgroupId, u32) {
        (self.cgroup, self.tgid)
    }

    fn gain(now: &WaitTimes, before: &WaitTimes) -> WaitTimes {
        now.since(before)
    }

    fn add(sum: &mut WaitTimes, gain: &WaitTimes) {
        *sum = sum.plus(gain);
    }

    fn is_zero(gain: &WaitTimes) -> bool {
        *gain == WaitTimes::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const FREE_FROM: usize = 100;

    fn key(running: u64, cpu: u32) -> WaitKey {
        WaitKey {
            waiting: CgroupId(7),
            running: CgroupId(running),
            cpu,
            ..WaitKey::default()
        }
    }

    /// A map whose rows grow while they are freed, with the totals and windows of its readings.
    #[derive(Default)]
    struct WaitMap {
        map: HashMap<WaitKey, u64>,
        totals: RowTotals<WaitKey>,
        reading: BTreeMap<WaitPair, u64>,
        /// Increases of all windows, by the cgroup that ran.
        sums: HashMap<u64, u64>,
    }

    impl WaitMap {
        fn set(&mut self, rows: &[(u64, u32, u64)]) {
            let rows = rows.iter();
            self.map
                .extend(rows.map(|(running, cpu, nanos)| (key(*running, *cpu), *nanos)));
        }

        /// Reads all rows for a snapshot, and frees those of the running cgroup `ended`. Rows of
        /// the running cgroup `late` grow by 1 while they are freed.
        fn pull(&mut self, ended: Option<u64>, late: Option<u64>) {
            self.free(ended, late);
            let reading: BTreeMap<_, _> = self.totals.totals().collect();
            for (pair, now) in &reading {
                let before = self.reading.get(pair).copied().unwrap_or(0);
                *self.sums.entry(pair.running.0).or_default() += now - before;
            }
            self.reading = reading;
        }

        /// Reads all rows between two snapshots.
        fn free(&mut self, ended: Option<u64>, late: Option<u64>) {
            let rows: Vec<_> = self.map.iter().map(|(key, nanos)| (*key, *nanos)).collect();
            let has_ended = |key: &WaitKey| Some(key.running.0) == ended;
            let map = &mut self.map;
            let take = |key: &WaitKey| -> Result<Option<u64>, Infallible> {
                let growth = u64::from(Some(key.running.0) == late);
                Ok(map.remove(key).map(|nanos| nanos + growth))
            };
            self.totals.add(rows, FREE_FROM, has_ended, take).unwrap();
        }
    }

    /// A reading between two snapshots frees a row of an ended owner and rows of idle owners.
    #[test]
    fn windows_have_the_waits_of_rows_that_were_freed_in_between() {
        let mut waits = WaitMap::default();
        for id in 0..=FREE_FROM as u64 {
            waits.set(&[(id, 0, 100)]);
        }
        waits.pull(None, None);
        waits.set(&[(1, 0, 130)]);
        // Frees the row of cgroup 1, which ended, and all rows that did not increase.
        waits.free(Some(1), None);
        assert!(waits.map.is_empty());
        waits.free(None, None);
        waits.set(&[(2, 0, 150)]);
        waits.pull(None, None);
        assert_eq!((waits.sums[&1], waits.sums[&2]), (130, 100 + 150));
    }

    /// Windows have every nanosecond exactly once, whichever rows are freed, and whenever.
    #[test]
    fn windows_have_all_waits_of_freed_rows() {
        let mut waits = WaitMap::default();
        for id in 0..=FREE_FROM as u64 {
            waits.set(&[(id, 0, 100 + id), (id, 1, 50)]);
        }
        waits.pull(None, None);
        // One CPU of pair 1 continues; pair 2 grows while it is freed; pair 3 ends.
        waits.set(&[(1, 1, 70)]);
        waits.pull(Some(3), Some(2));
        assert_eq!(waits.map.keys().collect::<Vec<_>>(), [&key(1, 1)]);
        waits.set(&[(2, 0, 7), (5, 1, 11), (1, 0, 200)]);
        waits.pull(None, None);
        waits.pull(None, None);
        waits.set(&[(2, 0, 20)]);
        waits.pull(None, None);
        assert_eq!(waits.sums[&1], 101 + 70 + 200);
        assert_eq!(waits.sums[&2], 102 + 50 + 2 + 20);
        assert_eq!(waits.sums[&3], 103 + 50);
        assert_eq!(waits.sums[&5], 105 + 50 + 11);
        assert_eq!(waits.sums[&9], 109 + 50);
        // The map has so few rows that none is freed. Totals of freed rows are dropped.
        assert_eq!((waits.map.len(), waits.reading.len()), (4, 3));
    }

    /// The last wait behind an ended owner may create its row again.
    #[test]
    fn a_row_that_is_created_again_starts_at_0() {
        let mut waits = WaitMap::default();
        waits.set(&[(1, 0, 100), (1, 1, 50)]);
        waits.pull(Some(1), Some(1));
        assert_eq!(waits.sums[&1], 152);
        waits.set(&[(1, 1, 3)]);
        waits.pull(Some(1), None);
        waits.pull(None, None);
        assert_eq!((waits.sums[&1], waits.reading.len()), (155, 0));
    }

    #[test]
    fn lengths_are_added_over_cpus() {
        let row = |cpu, counts: &[(usize, u64)]| {
            let mut times = WaitTimes::default();
            for (bucket, count) in counts {
                times.counts[*bucket] = *count;
                times.nanos += 1000 * count;
            }
            let key = UsageKey {
                cgroup: CgroupId(7),
                cpu,
                ..UsageKey::default()
            };
            (key, times)
        };
        let mut rows = RowTotals::default();
        let nothing = |_: &UsageKey| -> Result<_, Infallible> { Ok(None) };
        let ended = |key: &UsageKey| key.cpu == 1;
        let first = [row(0, &[(3, 5)]), row(1, &[(3, 1), (31, 2)])];
        rows.add(first, 10, ended, nothing).unwrap();
        // The row of CPU 1 was freed, and starts at 0.
        let second = [row(0, &[(3, 6)]), row(1, &[(3, 1)])];
        rows.add(second, 10, ended, nothing).unwrap();
        let totals: Vec<_> = rows.totals().collect();
        let (_, all) = row(0, &[(3, 8), (31, 2)]);
        assert_eq!(totals, [((CgroupId(7), 0), all)]);
        assert_eq!(rows.rows(), 1);
    }
}
