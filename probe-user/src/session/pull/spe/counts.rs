//! What the samples of a row stand for: each reading adds those since the one before.

use std::collections::{BTreeMap, HashMap};

use probe_common::spe::{SpeKey, SpeRow};

use crate::{
    session::pull::freed::Row,
    snapshot::{OVERFLOW, SpeCounts},
};

impl Row for SpeCounts {
    type Key = SpeKey;

    fn process(key: &SpeKey) -> u32 {
        key.tgid
    }

    fn of_process(key: SpeKey, tgid: u32) -> SpeKey {
        SpeKey { tgid, ..key }
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn size(&self) -> u64 {
        self.samples
    }

    fn add(&mut self, other: &Self) {
        self.add(other);
    }
}

/// The rows as of the last reading. Only this process frees rows of the map, so it knows which of
/// them were made again. A time in each row, as in USAGE, would double the memory of a row.
#[derive(Default)]
pub(super) struct Weighed {
    rows: HashMap<SpeKey, Last>,
    /// Number of the last reading.
    pub(super) readings: u64,
}

/// A row at the last reading, and what it stood for by then.
struct Last {
    row: SpeRow,
    counts: SpeCounts,
    /// Number of the last reading that found more samples in it.
    grew: u64,
}

impl Last {
    /// Adds what the samples since the last reading stand for.
    fn add(&mut self, key: &SpeKey, row: &SpeRow, weights: &BTreeMap<u32, f64>) {
        let weight = weights.get(&key.cpu.into()).copied().unwrap_or(0.0);
        self.counts.add(&SpeCounts::between(&self.row, row, weight));
        if row.samples > self.row.samples {
            self.row = *row;
        }
    }
}

impl Weighed {
    /// Adds what the samples since the last reading stand for, on each CPU as many operations as
    /// `weights` says, to what those before did.
    pub(super) fn add(
        &mut self,
        raw: &HashMap<SpeKey, SpeRow>,
        weights: &BTreeMap<u32, f64>,
    ) -> HashMap<SpeKey, SpeCounts> {
        self.readings += 1;
        let now = self.readings;
        let rows = raw.iter().map(|(key, row)| {
            let last = self.rows.entry(*key).or_insert(Last {
                row: SpeRow::ZERO,
                counts: SpeCounts {
                    made: now,
                    ..SpeCounts::default()
                },
                grew: now,
            });
            if row.samples > last.row.samples {
                last.grew = now;
            }
            last.add(key, row, weights);
            (*key, last.counts)
        });
        rows.collect()
    }

    /// The rows to free where so many of `max_rows` are taken that new ones may find no room before
    /// the next reading. They are rows that got no sample since the last reading, those that were
    /// idle for longest first, and as many as leave half of the map free.
    pub(super) fn idle(&self, max_rows: usize) -> Vec<SpeKey> {
        if self.rows.len() < (max_rows / 4 * 3).max(1) {
            return Vec::new();
        }
        let idle = self.rows.iter();
        // Rows of the overflow are in no map that can be full.
        let idle = idle.filter(|(key, last)| last.grew < self.readings && key.cgroup != OVERFLOW);
        let mut idle: Vec<_> = idle.map(|(key, last)| (last.grew, *key)).collect();
        idle.sort_unstable();
        idle.truncate(self.rows.len() - max_rows / 2);
        idle.into_iter().map(|(_, key)| key).collect()
    }

    /// What these rows stood for when they were freed. To be called before [`Self::add`] of a
    /// reading that may have rows of the same keys.
    pub(super) fn end(
        &mut self,
        freed: Vec<(SpeKey, SpeRow)>,
        weights: &BTreeMap<u32, f64>,
    ) -> Vec<(SpeKey, SpeCounts)> {
        let ended = freed.into_iter().filter_map(|(key, row)| {
            let mut last = self.rows.remove(&key)?;
            last.add(&key, &row, weights);
            Some((key, last.counts))
        });
        ended.collect()
    }

    /// These rows were freed: what has one of their keys from now on is another row.
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
        spe::{Access, Class},
    };
    use proptest::prelude::*;

    use super::*;

    const KEY: SpeKey = SpeKey {
        cgroup: CgroupId(7),
        tgid: 0,
        cpu: 0,
        access: Access::new(Class::Load, None),
    };

    fn row(samples: u64) -> SpeRow {
        SpeRow {
            samples,
            ..SpeRow::ZERO
        }
    }

    proptest! {
        /// Rows grow, are freed and are made again, with fewer samples than before or with more,
        /// and seem to go back otherwise: every sample stands for as much as its weight says, once.
        #[test]
        fn every_sample_is_weighed_once(
            steps in prop::collection::vec((0..1000_u16, any::<bool>(), 0..50_u64), 1..30),
        ) {
            let mut weighed = Weighed::default();
            let (mut now, mut all, mut ended) = (0, 0.0, 0.0);
            let mut made = None;
            for (delta, freed, back) in steps {
                now += u64::from(delta);
                all += 2.0 * f64::from(delta);
                let mut read = |samples| {
                    weighed.add(&HashMap::from([(KEY, row(samples))]), &[(0, 2.0)].into())[&KEY]
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

        /// Samples come to a few of more rows than there is room for: rows that were idle make
        /// room, busy ones stay, and every sample that had a row is counted once.
        #[test]
        fn idle_rows_make_room(
            readings in prop::collection::vec(
                prop::collection::vec((0..64_u16, 1..100_u32), 0..16),
                1..40,
            ),
        ) {
            const ROOM: usize = 24;
            let weights = (0..64).map(|cpu| (cpu, 2.0)).collect();
            let mut weighed = Weighed::default();
            let mut map: HashMap<SpeKey, SpeRow> = HashMap::new();
            let (mut all, mut ended) = (0.0, 0.0);
            let mut busy: HashSet<SpeKey> = HashSet::new();
            for samples in readings {
                let known: Vec<SpeKey> = map.keys().copied().collect();
                let idle = weighed.idle(ROOM);
                prop_assert!(idle.iter().all(|key| !busy.contains(key)));
                let left = known.iter().filter(|key| !idle.contains(key));
                let left: Vec<_> = left.collect();
                let full = known.len() >= ROOM / 4 * 3;
                prop_assert_eq!(left.len() == known.len(), !full || known.len() == busy.len());
                let has_room = left.len() <= ROOM / 2;
                prop_assert!(!full || has_room || left.iter().all(|it| busy.contains(it)));
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
                // Rows are freed in the midst of it.
                let (before, after) = samples.split_at(samples.len() / 2);
                sample(&mut map, before);
                let freed = idle.iter().map(|key| (*key, map.remove(key).unwrap())).collect();
                sample(&mut map, after);
                let freed = weighed.end(freed, &weights);
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
