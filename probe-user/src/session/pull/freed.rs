//! Rows that were freed between two snapshots. The later one has them all.

use std::{collections::HashMap, hash::Hash, mem};

use probe_common::{UsageKey, UsageRow};

use crate::snapshot::ENDED;

/// A row of a map that can be freed.
pub(crate) trait Row: Copy + Default {
    type Key: Copy + Eq + Hash;

    /// The process that the row belongs to; 0: no single process.
    fn process(key: &Self::Key) -> u32;
    /// The same key of another process.
    fn of_process(key: Self::Key, tgid: u32) -> Self::Key;
    /// Tells it from a row of the same key that was freed before: a later row has a larger number.
    fn made(&self) -> u64;
    /// The processes with the largest sum of this keep rows of their own the longest.
    fn size(&self) -> u64;
    /// `made` stays.
    fn add(&mut self, other: &Self);
}

impl Row for UsageRow {
    type Key = UsageKey;

    fn process(key: &UsageKey) -> u32 {
        key.tgid
    }

    fn of_process(key: UsageKey, tgid: u32) -> UsageKey {
        UsageKey { tgid, ..key }
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn size(&self) -> u64 {
        self.enabled
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.wrapping_add(count);
        }
        self.enabled += other.enabled;
        self.running += other.running;
    }
}

/// What was freed since the last snapshot.
pub(crate) struct Freed<R: Row> {
    /// As the rows were at their end.
    pub(super) rows: Vec<(R::Key, R)>,
    /// Sums of more rows than are kept, by all of their keys but the process.
    sums: HashMap<R::Key, R>,
    /// Rows that were made later are not in the last snapshot.
    snapshot: u64,
}

impl<R: Row> Default for Freed<R> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            sums: HashMap::new(),
            snapshot: 0,
        }
    }
}

impl<R: Row> Freed<R> {
    /// Takes all rows, for a snapshot of the rows that were made up to `snapshot`.
    pub(super) fn take(&mut self, snapshot: u64) -> Vec<(R::Key, R)> {
        self.snapshot = snapshot;
        let mut rows = mem::take(&mut self.rows);
        rows.extend(self.sums.drain());
        rows
    }

    /// Adds rows. Where they become more than `limit`, the shorter half of the processes is summed,
    /// and true is returned.
    pub(super) fn add(
        &mut self,
        rows: impl IntoIterator<Item = (R::Key, R)>,
        limit: usize,
    ) -> bool {
        self.rows.extend(rows);
        if self.rows.len() <= limit {
            return false;
        }
        let snapshot = self.snapshot;
        // Of rows that the last snapshot has, a window takes the difference: they stay as they are.
        // There are no more of them than the map has room for.
        let can_be_summed =
            |(key, row): &(R::Key, R)| R::process(key) != 0 && row.made() > snapshot;
        let mut sizes: HashMap<u32, u64> = HashMap::new();
        for (key, row) in self.rows.iter().filter(|row| can_be_summed(row)) {
            *sizes.entry(R::process(key)).or_default() += row.size();
        }
        let mut sorted: Vec<u64> = sizes.values().copied().collect();
        sorted.sort_unstable();
        // Those that have most are still told apart.
        let Some(&largest) = sorted.get(sorted.len() / 2) else {
            return false;
        };
        let sums = self.rows.extract_if(.., |row| {
            can_be_summed(row) && sizes[&R::process(&row.0)] <= largest
        });
        for (key, row) in sums {
            let key = R::of_process(key, ENDED);
            self.sums.entry(key).or_default().add(&row);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use probe_common::{
        CgroupId, GROUP_COUNTERS,
        spe::{Access, Class, SpeKey},
    };

    use super::*;
    use crate::snapshot::SpeCounts;

    fn row(tgid: u32, made: u64, ran: u64) -> (UsageKey, UsageRow) {
        let key = UsageKey {
            cgroup: CgroupId(7),
            tgid,
            cpu: 0,
            group: 0,
        };
        let row = UsageRow {
            counts: [1; GROUP_COUNTERS],
            enabled: ran,
            running: ran,
            estimated: 0,
            made,
        };
        (key, row)
    }

    #[test]
    fn more_processes_than_are_kept_become_a_sum() {
        let mut freed: Freed<UsageRow> = Freed::default();
        freed.take(100);
        assert!(!freed.add([row(1, 50, 1), row(2, 150, 1)], 4));
        let more = [row(3, 150, 1), row(4, 160, 9), row(0, 170, 1)];
        assert!(freed.add(more, 4));
        assert!(!freed.add([row(5, 180, 1)], 4));
        let mut taken: Vec<_> = freed.take(200);
        taken.sort_by_key(|(key, _)| key.tgid);
        let found: Vec<_> = taken
            .iter()
            .map(|(key, row)| (key.tgid, row.counts[0]))
            .collect();
        // A cgroup's row, one that was there at the last snapshot, one that ran longer than others,
        // one that came after the sum, and the sum.
        assert_eq!(found, [(0, 1), (1, 1), (4, 1), (5, 1), (ENDED, 2)]);
        assert!(freed.take(200).is_empty());
    }

    /// More lives of processes than the map has rows, freed over many pulls of one window, by two
    /// cgroups.
    #[test]
    fn no_sample_is_lost_in_a_sum() {
        const LIMIT: usize = 64;
        let counts = |tgid: u32, made: u64| {
            let key = SpeKey {
                cgroup: CgroupId(7 + u64::from(tgid % 2)),
                tgid,
                cpu: u16::from(tgid.is_multiple_of(3)),
                access: Access::new(Class::ALL[tgid as usize % 4], None),
            };
            let mut counts = SpeCounts {
                samples: tgid.into(),
                operations: 5.0 * f64::from(tgid),
                made,
                ..SpeCounts::default()
            };
            counts.histogram[4] = tgid.into();
            (key, counts)
        };
        let mut freed: Freed<SpeCounts> = Freed::default();
        freed.take(3);
        let (mut lives, mut whole) = (Vec::new(), 0);
        for pull in 0..100 {
            let ended = (0..20).map(|n| counts(1 + pull * 20 + n, 4 + u64::from(pull)));
            lives.extend(ended.clone());
            whole += usize::from(!freed.add(ended, LIMIT));
            assert!(freed.rows.len() <= LIMIT);
        }
        assert!(whole > 0, "it sums no sooner than it must");
        let sums = |rows: &[(SpeKey, SpeCounts)]| {
            let mut sums: BTreeMap<SpeKey, SpeCounts> = BTreeMap::new();
            for (key, counts) in rows {
                let sum = sums.entry(SpeKey { tgid: 0, ..*key });
                sum.or_default().add(counts);
            }
            sums
        };
        assert_eq!(sums(&freed.take(200)), sums(&lives));
    }
}
