//! Accesses to cache lines that SPE sampled between two snapshots.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use probe_common::spe::{LineKey, LineRow, SourceTable};

use crate::snapshot::{GrowingRow as _, SpeReading};

/// Samples of cache lines.
#[derive(Clone, Debug, Default)]
pub struct CacheLines {
    /// Deltas of each row, except for `read` and `written`: masks of the bytes touched since the
    /// row was added to the table. Rows without a sample in the window are left out.
    pub rows: Vec<(LineKey, LineRow)>,
    /// Number of sampled loads and stores with an address and an owner. Those missing in `rows`
    /// were evicted from the table or never added to it.
    pub samples: u64,
    /// Data-source tables by CPU. On a CPU without a table, it is unknown which loads got their
    /// data from another core.
    pub tables: Arc<BTreeMap<u32, SourceTable>>,
}

impl CacheLines {
    /// The difference of two readings.
    pub(super) fn between(before: &SpeReading, now: &SpeReading) -> Self {
        let earlier: HashMap<LineKey, LineRow> = before.lines.iter().copied().collect();
        let rows = now
            .lines
            .iter()
            .map(|(key, row)| (*key, row.since(earlier.get(key))));
        let line_samples = |reading: &SpeReading| reading.health.sum.lined;
        Self {
            rows: rows.filter(|(_, row)| row.samples() > 0).collect(),
            samples: line_samples(now).saturating_sub(line_samples(before)),
            tables: Arc::clone(&now.tables),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_added_again_are_known_by_their_generation(
            before in prop::array::uniform6(0..1000_u64),
            now in prop::array::uniform6(0..1000_u64),
            bytes in any::<[u64; 2]>(),
        ) {
            let row = |counts: [u64; 6], made| {
                let [loads, stores, atomics, peers, timed, cycles] = counts;
                let [read, written] = bytes;
                LineRow { loads, stores, atomics, peers, timed, cycles, read, written, made }
            };
            prop_assert_eq!(row(now, 5).since(None), row(now, 0));
            prop_assert_eq!(row(now, 7).since(Some(&row(before, 5))), row(now, 0));
            let gained = std::array::from_fn(|at| now[at].saturating_sub(before[at]));
            prop_assert_eq!(row(now, 5).since(Some(&row(before, 5))), row(gained, 0));
        }
    }
}
