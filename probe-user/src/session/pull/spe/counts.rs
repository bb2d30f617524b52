//! Weights samples by the operations that they represent. Each reading adds the samples since the
//! previous one.

use std::collections::{BTreeMap, HashMap};

use probe_common::spe::{SpeKey, SpeRow};

use crate::snapshot::{OVERFLOW, SampleCounts, SampledKey};

/// The rows at the last reading. Only this process frees rows of the map, so it knows which rows
/// were inserted again. So these rows need no creation time, unlike rows of USAGE.
#[derive(Default)]
pub(super) struct WeighedRows {
    rows: HashMap<SpeKey, WeighedRow>,
    /// Number of the last reading.
    pub(super) readings: u64,
}

/// A row at the last reading, with the weighted counts of its samples.
struct WeighedRow {
    row: SpeRow,
    counts: SampleCounts,
    /// Number of the last reading that found more samples in it.
    grew: u64,
}

impl WeighedRow {
    /// Adds the weighted counts of the samples since the last reading.
    fn add(&mut self, key: &SpeKey, row: &SpeRow, weights: &BTreeMap<u32, f64>) {
        let weight = weights.get(&key.cpu.into()).copied().unwrap_or(0.0);
        self.counts
            .add(&SampleCounts::between(&self.row, row, weight));
        if row.samples > self.row.samples {
            self.row = *row;
        }
    }
}

impl WeighedRows {
    /// Adds the samples since the last reading, and returns the weighted counts of all rows.
    /// `weights` has the operations per sample, by CPU.
    pub(super) fn add(
        &mut self,
        raw: &HashMap<SpeKey, SpeRow>,
        weights: &BTreeMap<u32, f64>,
    ) -> HashMap<SampledKey, SampleCounts> {
        self.readings += 1;
        let now = self.readings;
        let rows = raw.iter().map(|(key, row)| {
            let last = self.rows.entry(*key).or_insert(WeighedRow {
                row: SpeRow::ZERO,
                counts: SampleCounts {
                    made: now,
                    ..SampleCounts::default()
                },
                grew: now,
            });
            if row.samples > last.row.samples {
                last.grew = now;
            }
            last.add(key, row, weights);
            ((*key).into(), last.counts)
        });
        rows.collect()
    }

    /// The rows to free; empty while less than three quarters of `max_rows` are taken. They are
    /// rows without a sample since the last reading, the longest idle first, until half of the map
    /// is free. New rows then fit until the next reading.
    pub(super) fn idle(&self, max_rows: usize) -> Vec<SpeKey> {
        if self.rows.len() < (max_rows / 4 * 3).max(1) {
            return Vec::new();
        }
        let rows = self.rows.iter();
        // Overflow rows are in another map, which cannot fill up.
        let mut idle: Vec<_> = rows
            .filter(|(key, last)| last.grew < self.readings && key.cgroup != OVERFLOW)
            .map(|(key, last)| (last.grew, *key))
            .collect();
        idle.sort_unstable();
        idle.truncate(self.rows.len() - max_rows / 2);
        idle.into_iter().map(|(_, key)| key).collect()
    }

    /// Removes freed rows and returns their weighted counts. Call it before [`Self::add`] of a
    /// reading that may have new rows with the same keys.
    pub(super) fn take_freed(
        &mut self,
        freed: Vec<(SpeKey, SpeRow)>,
        weights: &BTreeMap<u32, f64>,
    ) -> Vec<(SampledKey, SampleCounts)> {
        let counts = freed.into_iter().filter_map(|(key, row)| {
            let mut last = self.rows.remove(&key)?;
            last.add(&key, &row, weights);
            Some((key.into(), last.counts))
        });
        counts.collect()
    }

    /// Removes freed rows, so that a later row with the same key counts as a new row.
    pub(super) fn forget(&mut self, freed: &[SpeKey]) {
        for key in freed {
            self.rows.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use probe_common::{
        CgroupId,
        spe::{Class, SpeAccess},
    };
    use proptest::prelude::*;

    use super::*;

    const KEY: SpeKey = SpeKey {
        cgroup: CgroupId(7),
        tgid: 0,
        cpu: 0,
        access: SpeAccess::new(Class::Load, None),
    };

    fn row(samples: u64) -> SpeRow {
        SpeRow {
            samples,
            ..SpeRow::ZERO
        }
    }

    proptest! {
        /// Rows grow, are freed and inserted again with fewer or more samples, and sometimes seem
        /// to decrease. Every sample is weighted exactly once.
        #[test]
        fn every_sample_is_weighted_once(
            steps in prop::collection::vec((0..1000_u16, any::<bool>(), 0..50_u64), 1..30),
        ) {
            let mut weighed = WeighedRows::default();
            let (mut now, mut all, mut ended) = (0, 0.0, 0.0);
            let mut made = None;
            for (delta, freed, back) in steps {
                now += u64::from(delta);
                all += 2.0 * f64::from(delta);
                let mut read = |samples| {
                    let raw = HashMap::from([(KEY, row(samples))]);
                    weighed.add(&raw, &[(0, 2.0)].into())[&KEY.into()]
                };
                let counts = read(now);
                prop_assert_eq!(ended + counts.operations, all);
                prop_assert_eq!(counts.variance, 2.0 * counts.operations);
                prop_assert!(made.is_none_or(|made| made == counts.made));
                let gone_back = read(now.saturating_sub(back));
                prop_assert_eq!(gone_back.operations, counts.operations);
                prop_assert_eq!(gone_back.made, counts.made);
                made = Some(counts.made);
                if freed {
                    weighed.forget(&[KEY]);
                    ended += counts.operations;
                    (now, made) = (0, None);
                }
            }
        }

        /// Samples go to more rows than the map has room for, but only to a few in each reading.
        /// Idle rows make room, busy rows stay, and every sample with a row is counted once.
        #[test]
        fn idle_rows_make_room(
            readings in prop::collection::vec(
                prop::collection::vec((0..64_u16, 1..100_u32), 0..16),
                1..40,
            ),
        ) {
            const ROOM: usize = 24;
            let weights = (0..64).map(|cpu| (cpu, 2.0)).collect();
            let mut weighed = WeighedRows::default();
            let mut map: HashMap<SpeKey, SpeRow> = HashMap::new();
            let (mut all, mut ended) = (0.0, 0.0);
            let mut busy: HashSet<SpeKey> = HashSet::new();
            for samples in readings {
                let known: Vec<SpeKey> = map.keys().copied().collect();
                let idle = weighed.idle(ROOM);
                prop_assert!(idle.iter().all(|key| !busy.contains(key)));
                let remaining: Vec<_> = known.iter().filter(|key| !idle.contains(key)).collect();
                let full = known.len() >= ROOM / 4 * 3;
                prop_assert_eq!(remaining.len() == known.len(), !full || known.len() == busy.len());
                let has_room = remaining.len() <= ROOM / 2;
                prop_assert!(!full || has_room || remaining.iter().all(|it| busy.contains(it)));
                busy.clear();
                let mut sample = |map: &mut HashMap<SpeKey, SpeRow>, samples: &[(u16, u32)]| {
                    for (cpu, n) in samples {
                        let key = SpeKey { cpu: *cpu, ..KEY };
                        if map.len() < ROOM || map.contains_key(&key) {
                            map.entry(key).or_default().samples += u64::from(*n);
                            all += 2.0 * f64::from(*n);
                            busy.insert(key);
                        }
                    }
                };
                // Rows are freed between two samples.
                let (before, after) = samples.split_at(samples.len() / 2);
                sample(&mut map, before);
                let freed = idle.iter().map(|key| (*key, map.remove(key).unwrap())).collect();
                sample(&mut map, after);
                let freed = weighed.take_freed(freed, &weights);
                ended += freed.iter().map(|(_, counts)| counts.operations).sum::<f64>();
                busy.retain(|key| map.contains_key(key));
                let live = weighed.add(&map, &weights);
                let counted: f64 = live.values().map(|counts| counts.operations).sum();
                prop_assert_eq!(counted + ended, all);
                for (key, counts) in freed {
                    prop_assert!(live.get(&key).is_none_or(|live| live.made > counts.made));
                }
            }
        }
    }
}
