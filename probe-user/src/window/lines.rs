//! What SPE sampled of cache lines between two snapshots.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use probe_common::spe::{LineKey, LineRow, SourceTable};

use crate::snapshot::SpeReading;

/// Samples of cache lines.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// What each row gained; but the bytes are all that were touched since the row came into the
    /// table. Rows without a sample are left out.
    pub rows: Vec<(LineKey, LineRow)>,
    /// Loads and stores that have an address and an owner. What `rows` have less of them was
    /// dropped from the table, or did not come into it.
    pub samples: u64,
    /// Data-source tables by CPU: where there is none, it is not known whose data a load got.
    pub tables: Arc<BTreeMap<u32, SourceTable>>,
}

impl Lines {
    /// The difference of two readings.
    pub(super) fn between(before: &SpeReading, now: &SpeReading) -> Self {
        let earlier: HashMap<LineKey, LineRow> = before.lines.iter().copied().collect();
        let rows = now.lines.iter();
        let rows = rows.map(|(key, row)| (*key, delta(earlier.get(key), row)));
        let lined = |reading: &SpeReading| reading.health.sum.lined;
        Self {
            rows: rows.filter(|(_, row)| row.samples() > 0).collect(),
            samples: lined(now).saturating_sub(lined(before)),
            tables: Arc::clone(&now.tables),
        }
    }
}

/// A row that was dropped from the table and came back was made again: it counts as a whole.
fn delta(earlier: Option<&LineRow>, now: &LineRow) -> LineRow {
    let same = earlier.filter(|earlier| earlier.made == now.made);
    let before = same.copied().unwrap_or_default();
    LineRow {
        loads: now.loads.saturating_sub(before.loads),
        stores: now.stores.saturating_sub(before.stores),
        atomics: now.atomics.saturating_sub(before.atomics),
        peers: now.peers.saturating_sub(before.peers),
        timed: now.timed.saturating_sub(before.timed),
        cycles: now.cycles.saturating_sub(before.cycles),
        read: now.read,
        written: now.written,
        made: 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_that_came_back_are_told_by_their_age(
            before in prop::array::uniform6(0..1000_u64),
            now in prop::array::uniform6(0..1000_u64),
            bytes in any::<[u64; 2]>(),
        ) {
            let row = |counts: [u64; 6], made| {
                let [loads, stores, atomics, peers, timed, cycles] = counts;
                let [read, written] = bytes;
                LineRow { loads, stores, atomics, peers, timed, cycles, read, written, made }
            };
            prop_assert_eq!(delta(None, &row(now, 5)), row(now, 0));
            prop_assert_eq!(delta(Some(&row(before, 5)), &row(now, 7)), row(now, 0));
            let gained = std::array::from_fn(|at| now[at].saturating_sub(before[at]));
            prop_assert_eq!(delta(Some(&row(before, 5)), &row(now, 5)), row(gained, 0));
        }
    }
}
