//! Rows that were freed between two snapshots. They are part of the second snapshot.

use std::{collections::HashMap, hash, mem};

use aya::Pod;
use probe_common::{Plain, UsageKey, UsageRow};

use crate::{
    session::{SessionError, object::Hash},
    snapshot::{ENDED, GrowingRow, SampleCounts, SampledKey},
};

/// A row that can be freed.
pub(crate) trait FreeableRow: GrowingRow {
    type Key: Copy + Eq + hash::Hash;

    /// The process of the row; 0 if the row is of no single process.
    fn process(key: &Self::Key) -> u32;
    /// The same key with another process.
    fn with_process(key: Self::Key, tgid: u32) -> Self::Key;
    /// The size by which processes are ranked. Processes whose rows have the largest total size
    /// keep their own rows the longest.
    fn size(&self) -> u64;
    /// Adds another row, and keeps this row's generation.
    fn add(&mut self, other: &Self);
}

impl FreeableRow for UsageRow {
    type Key = UsageKey;

    fn process(key: &UsageKey) -> u32 {
        key.tgid
    }

    fn with_process(key: UsageKey, tgid: u32) -> UsageKey {
        UsageKey { tgid, ..key }
    }

    fn size(&self) -> u64 {
        self.enabled
    }

    fn add(&mut self, other: &Self) {
        let Self {
            counts,
            enabled,
            running,
            estimated,
            made: _,
        } = other;
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum = sum.wrapping_add(*count);
        }
        self.enabled += enabled;
        self.running += running;
        self.estimated += estimated;
    }
}

impl FreeableRow for SampleCounts {
    type Key = SampledKey;

    fn process(key: &SampledKey) -> u32 {
        key.tgid
    }

    fn with_process(key: SampledKey, tgid: u32) -> SampledKey {
        SampledKey { tgid, ..key }
    }

    fn size(&self) -> u64 {
        self.samples
    }

    fn add(&mut self, other: &Self) {
        self.add(other);
    }
}

/// Rows that were freed since the last snapshot.
pub(crate) struct FreedRows<R: FreeableRow> {
    /// The rows with their last values.
    pub(super) rows: Vec<(R::Key, R)>,
    /// Sums of rows beyond the limit, by their keys with the process [`ENDED`].
    sums: HashMap<R::Key, R>,
    /// Largest generation of a row that can be in the last snapshot.
    snapshot: u64,
}

impl<R: FreeableRow> Default for FreedRows<R> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            sums: HashMap::new(),
            snapshot: 0,
        }
    }
}

impl<R: FreeableRow> FreedRows<R> {
    /// Takes all freed rows for a snapshot, which has rows with generations up to `snapshot`.
    pub(super) fn take(&mut self, snapshot: u64) -> Vec<(R::Key, R)> {
        self.snapshot = snapshot;
        let mut rows = mem::take(&mut self.rows);
        rows.extend(self.sums.drain());
        rows
    }

    /// Drops the rows whose keys `keep` rejects.
    pub(super) fn retain(&mut self, keep: impl Fn(&R::Key) -> bool) {
        self.rows.retain(|(key, _)| keep(key));
        self.sums.retain(|key, _| keep(key));
    }

    /// The processes of the rows that were not summed.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().map(|(key, _)| R::process(key))
    }

    /// Adds rows. If there are more than `limit`, sums the rows of the processes with the smallest
    /// rows, a half of all. Returns whether it summed rows.
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
        // Rows that are in the last snapshot are not summed: a window subtracts their values there.
        let can_be_summed =
            |(key, row): &(R::Key, R)| R::process(key) != 0 && row.generation() > snapshot;
        let mut process_sizes: HashMap<u32, u64> = HashMap::new();
        for (key, row) in self.rows.iter().filter(|row| can_be_summed(row)) {
            *process_sizes.entry(R::process(key)).or_default() += row.size();
        }
        let mut sorted_sizes: Vec<u64> = process_sizes.values().copied().collect();
        sorted_sizes.sort_unstable();
        // The processes with the largest total sizes keep their own rows.
        let Some(&median) = sorted_sizes.get(sorted_sizes.len() / 2) else {
            return false;
        };
        let sums = self.rows.extract_if(.., |row| {
            can_be_summed(row) && process_sizes[&R::process(&row.0)] <= median
        });
        for (key, row) in sums {
            let key = R::with_process(key, ENDED);
            self.sums.entry(key).or_default().add(&row);
        }
        true
    }
}

/// Removes the rows of `rows` from a map for whose keys `has_ended` is true, and stores their last
/// values in `rows`. Returns the removed keys.
pub(super) fn free_ended<'a, K: Plain<Raw: Pod> + 'a, V: Plain<Raw: Pod> + 'a>(
    map: &Hash<K, V>,
    rows: impl Iterator<Item = (&'a K, &'a mut V)>,
    has_ended: impl Fn(&K) -> bool,
) -> Result<Vec<K>, SessionError> {
    let mut freed = Vec::new();
    for (key, row) in rows.filter(|(key, _)| has_ended(key)) {
        if let Some(last) = map.take(key)? {
            *row = last;
        }
        freed.push(*key);
    }
    Ok(freed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use probe_common::{
        CgroupId, GROUP_COUNTERS,
        spe::{Class, SpeAccess, SpeKey},
    };

    use super::*;

    fn row(tgid: u32, made: u64, nanos: u64) -> (UsageKey, UsageRow) {
        let key = UsageKey {
            cgroup: CgroupId(7),
            tgid,
            cpu: 0,
            group: 0,
        };
        let row = UsageRow {
            counts: [1; GROUP_COUNTERS],
            enabled: nanos,
            running: nanos,
            estimated: 10 * nanos,
            made,
        };
        (key, row)
    }

    #[test]
    fn rows_beyond_the_limit_are_summed_by_cgroup() {
        let mut freed: FreedRows<UsageRow> = FreedRows::default();
        freed.take(100);
        assert!(!freed.add([row(1, 50, 1), row(2, 150, 1)], 4));
        let next = [row(3, 150, 1), row(4, 160, 9), row(0, 170, 1)];
        assert!(freed.add(next, 4));
        assert!(!freed.add([row(5, 180, 1)], 4));
        let mut taken: Vec<_> = freed.take(200);
        taken.sort_by_key(|(key, _)| key.tgid);
        let counts: Vec<_> = taken
            .iter()
            .map(|(key, row)| (key.tgid, row.counts[0]))
            .collect();
        // The cgroup's own row; process 1, which is in the last snapshot; process 4, which ran
        // longest; process 5, which was added after the summing; and the sum of processes 2 and 3.
        assert_eq!(counts, [(0, 1), (1, 1), (4, 1), (5, 1), (ENDED, 2)]);
        let sum = taken.last().unwrap().1;
        assert_eq!((sum.enabled, sum.running, sum.estimated), (2, 2, 20));
        assert!(freed.take(200).is_empty());
    }

    /// More processes than the map has rows, in two cgroups, freed over many pulls of one window.
    #[test]
    fn no_sample_is_lost_in_a_sum() {
        const LIMIT: usize = 64;
        let counts = |tgid: u32, made: u64| {
            let key = SpeKey {
                cgroup: CgroupId(7 + u64::from(tgid % 2)),
                tgid,
                cpu: u16::from(tgid.is_multiple_of(3)),
                access: SpeAccess::new(Class::ALL[tgid as usize % 4], None),
            };
            let mut counts = SampleCounts {
                samples: tgid.into(),
                operations: 5.0 * f64::from(tgid),
                made,
                ..SampleCounts::default()
            };
            counts.histogram[4] = tgid.into();
            (SampledKey::from(key), counts)
        };
        let mut freed: FreedRows<SampleCounts> = FreedRows::default();
        freed.take(3);
        let (mut all, mut calls_without_sums) = (Vec::new(), 0);
        for pull in 0..100 {
            let ended = (0..20).map(|n| counts(1 + pull * 20 + n, 4 + u64::from(pull)));
            all.extend(ended.clone());
            calls_without_sums += usize::from(!freed.add(ended, LIMIT));
            assert!(freed.rows.len() <= LIMIT);
        }
        assert!(calls_without_sums > 0, "rows within the limit were summed");
        let sums = |rows: &[(SampledKey, SampleCounts)]| {
            let mut sums: BTreeMap<SampledKey, SampleCounts> = BTreeMap::new();
            for (key, counts) in rows {
                let sum = sums.entry(SampledKey { tgid: 0, ..*key });
                sum.or_default().add(counts);
            }
            sums
        };
        assert_eq!(sums(&freed.take(200)), sums(&all));
    }
}
