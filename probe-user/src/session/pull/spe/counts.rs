//! What the samples of a row stand for: each reading adds those since the one before.

use std::collections::HashMap;

use probe_common::spe::{SpeKey, SpeRow};

use crate::{session::pull::freed::Row, snapshot::SpeCounts};

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

/// The rows as of the last reading. Only this process frees rows of the map, so it knows which were
/// made anew: a time in each, as rows of USAGE have, would double the memory of a row.
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
}

impl Weighed {
    /// Adds what the samples since the last reading stand for, on each CPU as many operations as
    /// `weights` says, to what those before did.
    pub(super) fn add(
        &mut self,
        raw: &HashMap<SpeKey, SpeRow>,
        weights: &[f64],
    ) -> HashMap<SpeKey, SpeCounts> {
        self.readings += 1;
        let made = self.readings;
        let rows = raw.iter().map(|(key, row)| {
            let last = self.rows.entry(*key).or_insert(Last {
                row: SpeRow::ZERO,
                counts: SpeCounts {
                    made,
                    ..SpeCounts::default()
                },
            });
            let weight = weights.get(usize::from(key.cpu)).copied().unwrap_or(0.0);
            last.counts.add(&SpeCounts::between(&last.row, row, weight));
            if row.samples > last.row.samples {
                last.row = *row;
            }
            (*key, last.counts)
        });
        rows.collect()
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
        /// Rows grow, are freed and are made anew, with fewer samples than before or with more, and
        /// seem to go back otherwise: every sample stands for as much as its weight says, once.
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
                let mut read = |samples| weighed.add(&HashMap::from([(KEY, row(samples))]), &[2.0])[&KEY];
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
    }
}
