//! Rows that were freed between two snapshots. The later one has them all.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use probe_common::{UsageKey, UsageRow};

use super::lifecycle::Ended;

/// In place of a process id: processes that ended and are not told apart any more.
pub const ENDED: u32 = u32::MAX;

/// What was freed since the last snapshot.
#[derive(Default)]
pub(crate) struct Freed {
    /// As the rows were at their end.
    pub(super) rows: Vec<(UsageKey, UsageRow)>,
    /// Sums of more rows than are kept, by cgroup, CPU and group.
    sums: HashMap<UsageKey, UsageRow>,
    /// Whose rows they were.
    pub(super) owners: Vec<Arc<Ended>>,
    /// The programs' clock at the last snapshot, in ns.
    snapshot: u64,
}

impl Freed {
    /// All of it; from now on it is empty.
    pub(super) fn take(&mut self) -> Self {
        let snapshot = self.snapshot;
        let mut taken = mem::take(self);
        self.snapshot = snapshot;
        taken.rows.extend(taken.sums.drain());
        taken
    }

    /// A snapshot was made.
    pub(super) fn snapshot_at(&mut self, at: Duration) {
        self.snapshot = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Adds rows of `owners`. Where they become more than `limit`, the shorter half of the processes is summed, and true
    /// is returned.
    pub(super) fn add(
        &mut self,
        rows: impl IntoIterator<Item = (UsageKey, UsageRow)>,
        owners: impl IntoIterator<Item = Arc<Ended>>,
        limit: usize,
    ) -> bool {
        self.rows.extend(rows);
        self.owners.extend(owners);
        if self.rows.len() <= limit {
            return false;
        }
        let snapshot = self.snapshot;
        // Of rows that the last snapshot has, a window takes the difference: they stay as they are. There
        // are no more of them than the map has room for.
        let can_be_summed =
            |(key, row): &(UsageKey, UsageRow)| key.tgid != 0 && row.made > snapshot;
        let mut times: HashMap<u32, u64> = HashMap::new();
        for (key, row) in self.rows.iter().filter(|row| can_be_summed(row)) {
            *times.entry(key.tgid).or_default() += row.enabled;
        }
        let mut sorted: Vec<u64> = times.values().copied().collect();
        sorted.sort_unstable();
        // Those that ran longest are still told apart.
        let Some(&longest) = sorted.get(sorted.len() / 2) else {
            return false;
        };
        let sums = self.rows.extract_if(.., |row| {
            can_be_summed(row) && times[&row.0.tgid] <= longest
        });
        for (key, row) in sums {
            let key = UsageKey { tgid: ENDED, ..key };
            let sum = self.sums.entry(key).or_insert(UsageRow::ZERO);
            for (sum, count) in sum.counts.iter_mut().zip(row.counts) {
                *sum = sum.wrapping_add(count);
            }
            sum.enabled += row.enabled;
            sum.running += row.running;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use probe_common::{CgroupId, GROUP_COUNTERS};

    use super::*;

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
            made,
        };
        (key, row)
    }

    #[test]
    fn more_processes_than_are_kept_become_a_sum() {
        let mut freed = Freed::default();
        freed.snapshot_at(Duration::from_nanos(100));
        assert!(!freed.add([row(1, 50, 1), row(2, 150, 1)], [], 4));
        let more = [row(3, 150, 1), row(4, 160, 9), row(0, 170, 1)];
        assert!(freed.add(more, [], 4));
        assert!(!freed.add([row(5, 180, 1)], [], 4));
        let mut taken: Vec<_> = freed.take().rows;
        taken.sort_by_key(|(key, _)| key.tgid);
        let found: Vec<_> = taken
            .iter()
            .map(|(key, row)| (key.tgid, row.counts[0]))
            .collect();
        // A cgroup's row, one that was there at the last snapshot, one that ran longer than others, one that
        // came after the sum, and the sum.
        assert_eq!(found, [(0, 1), (1, 1), (4, 1), (5, 1), (ENDED, 2)]);
        assert!(freed.take().rows.is_empty());
    }
}
