//! Rows of the ledger of waits: reads them, and frees those of ended owners, and of pairs that no
//! longer wait for each other where there are many.

use std::{collections::HashMap, mem};

use probe_common::WaitKey;

/// The number of rows from which on idle pairs are freed. Each makes room for others.
const FREE_FROM: usize = 1 << 14;

/// What is known of the rows since the last pull.
#[derive(Debug, Default)]
pub(crate) struct LedgerRows {
    /// Their values, with what is carried.
    last: HashMap<WaitKey, u64>,
    /// Nanoseconds of freed rows that grew between their reading and their end. A later row of the
    /// same pair goes on from there.
    carried: HashMap<WaitKey, u64>,
}

impl LedgerRows {
    /// The values of these rows of the map. `take` removes a row and returns its last value. An idle
    /// pair leaves the values: it begins again at 0.
    pub(super) fn read<E>(
        &mut self,
        rows: Vec<(WaitKey, u64)>,
        has_ended: impl Fn(&WaitKey) -> bool,
        mut take: impl FnMut(&WaitKey) -> Result<Option<u64>, E>,
    ) -> Result<Vec<(WaitKey, u64)>, E> {
        let frees_idle = rows.len() > FREE_FROM;
        let mut carried = mem::take(&mut self.carried);
        let mut values = Vec::with_capacity(rows.len());
        for (key, now) in rows {
            let base = carried.remove(&key).unwrap_or(0);
            let is_idle = frees_idle && self.last.get(&key) == Some(&(base + now));
            let ended = has_ended(&key);
            let mut value = base + now;
            if ended || is_idle {
                value = base + take(&key)?.unwrap_or(now);
                if is_idle && !ended && value == base + now {
                    continue;
                }
                self.carried.insert(key, value);
            } else if base > 0 {
                self.carried.insert(key, base);
            }
            values.push((key, value));
        }
        // Rows that were freed at an earlier pull.
        for (key, base) in carried {
            if self.last.get(&key) != Some(&base) {
                self.carried.insert(key, base);
                values.push((key, base));
            }
        }
        self.last = values.iter().copied().collect();
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use probe_common::CgroupId;

    use super::*;

    fn key(running: u64) -> WaitKey {
        WaitKey {
            waiting: CgroupId(7),
            running: CgroupId(running),
            ..WaitKey::default()
        }
    }

    /// A map whose rows grow while they are freed, and how its readings see it.
    #[derive(Default)]
    struct Ledger {
        map: HashMap<WaitKey, u64>,
        rows: LedgerRows,
        reading: HashMap<WaitKey, u64>,
        /// Gains of all readings, by pair.
        sums: HashMap<WaitKey, u64>,
    }

    impl Ledger {
        /// Reads all rows; one with the id `late` grows by 1 while it is freed.
        fn pull(&mut self, ended: Option<u64>, late: Option<u64>) {
            let rows = self.map.iter().map(|(key, nanos)| (*key, *nanos)).collect();
            let has_ended = |key: &WaitKey| Some(key.running.0) == ended;
            let map = &mut self.map;
            let take = |key: &WaitKey| -> Result<Option<u64>, Infallible> {
                let more = u64::from(Some(key.running.0) == late);
                Ok(map.remove(key).map(|nanos| nanos + more))
            };
            let values = self.rows.read(rows, has_ended, take).unwrap();
            for (key, now) in &values {
                let before = self.reading.get(key).copied().unwrap_or(0);
                *self.sums.entry(*key).or_default() += now - before;
            }
            self.reading = values.into_iter().collect();
        }
    }

    /// Whatever is freed, and whenever: the windows have every nanosecond once.
    #[test]
    fn windows_have_all_waits_of_freed_rows() {
        let many = FREE_FROM as u64 + 10;
        let mut ledger = Ledger::default();
        for id in 0..many {
            ledger.map.insert(key(id), 100 + id);
        }
        ledger.pull(None, None);
        // Pair 1 goes on; pair 2 grows while it is freed; pair 3 ends.
        *ledger.map.get_mut(&key(1)).unwrap() += 50;
        ledger.pull(Some(3), Some(2));
        assert_eq!(ledger.map.keys().collect::<Vec<_>>(), [&key(1)]);
        ledger.map.insert(key(2), 7);
        ledger.map.insert(key(5), 11);
        ledger.pull(None, None);
        ledger.pull(None, None);
        ledger.map.insert(key(2), 20);
        ledger.pull(None, None);
        assert_eq!(ledger.sums[&key(1)], 151);
        assert_eq!(ledger.sums[&key(2)], 102 + 1 + 20);
        assert_eq!(ledger.sums[&key(3)], 103);
        assert_eq!(ledger.sums[&key(5)], 105 + 11);
        assert_eq!(ledger.sums[&key(9)], 109);
        // Few rows are not freed.
        assert_eq!(ledger.map.len(), 3);
    }

    /// A pair whose row is freed twice.
    #[test]
    fn a_carried_pair_is_forgotten_once_it_is_idle() {
        let mut ledger = Ledger::default();
        ledger.map.insert(key(1), 5);
        ledger.pull(Some(1), Some(1));
        assert_eq!(ledger.sums[&key(1)], 6);
        ledger.pull(None, None);
        assert!(ledger.rows.carried.is_empty() && ledger.reading.is_empty());
        ledger.map.insert(key(1), 3);
        ledger.pull(None, None);
        assert_eq!(ledger.sums[&key(1)], 9);
    }
}
