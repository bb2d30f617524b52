//! Memory accesses that SPE sampled between two snapshots.

use std::collections::HashMap;

use probe_common::spe::{Class, PageKey, PageRow, SpeKey};

use super::{CacheLines, MemLevel, Owner, SampleKind, SampleWindow};
use crate::{
    machine::topology::Topology,
    snapshot::{GrowingRow as _, SpeReading},
};

impl SampleWindow {
    /// Adds what SPE sampled between two readings.
    pub(super) fn add_spe(
        &mut self,
        before: &SpeReading,
        now: &SpeReading,
        topology: Option<&Topology>,
    ) {
        let freed = now.freed.iter().map(|(key, counts)| (key, counts));
        for (key, counts) in now.rows.iter().chain(freed) {
            let delta = counts.since(before.rows.get(key));
            let owner = Owner::from(key);
            let kind = SampleKind::spe(key.access.class(), level(now, key));
            let of_owner = self.usage.entry(owner).or_default();
            of_owner.entry(kind).or_default().add(&delta);
            // An owner that was sampled before keeps a row, as with counters.
            if delta.samples == 0 {
                continue;
            }
            if let Some(topology) = topology {
                // A CPU of no known socket counts as one of socket 0.
                let socket = topology.socket(key.cpu.into()).unwrap_or(0);
                let of_owner = self.on_socket.entry((socket, owner)).or_default();
                of_owner.entry(kind).or_default().add(&delta);
            }
        }
        let pages_before: HashMap<PageKey, PageRow> = before.pages.iter().copied().collect();
        self.pages = now
            .pages
            .iter()
            .map(|(key, row)| (*key, row.since(pages_before.get(key))))
            .filter(|(_, row)| row.samples > 0)
            .collect();
        self.lines = CacheLines::between(before, now);
        self.spe = Some(Box::new(now.health.clone()));
    }
}

/// The memory level of a row, by the data-source table of its CPU.
fn level(now: &SpeReading, key: &SpeKey) -> MemLevel {
    let Some(number) = key.access.source() else {
        return MemLevel::Unknown;
    };
    let table = now.tables.get(&u32::from(key.cpu));
    table
        .filter(|_| key.access.class() == Class::Load)
        .and_then(|table| table.load(number))
        .map_or(MemLevel::Number(number), |origin| {
            MemLevel::By(origin.source)
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_that_came_back_are_told_by_their_age(before in 1..1000_u64, now in 0..1000_u64) {
            let page = |samples, made| PageRow::from_words(&[samples, samples, 9 * samples, made]);
            prop_assert_eq!(page(now, 7).since(Some(&page(before, 5))), page(now, 0));
            let delta = page(now.saturating_sub(before), 0);
            prop_assert_eq!(page(now, 5).since(Some(&page(before, 5))), delta);
        }
    }
}
