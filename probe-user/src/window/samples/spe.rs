//! SPE's pages, cache lines and accounting between two snapshots.

use std::collections::HashMap;

use probe_common::spe::{Class, PageKey, PageRow, SpeAccess};

use super::{CacheLines, MemLevel, SampleWindow};
use crate::snapshot::{GrowingRow as _, SpeReading};

impl SampleWindow {
    /// Adds SPE's pages, cache lines and accounting.
    pub(super) fn add_spe(&mut self, before: &SpeReading, now: &SpeReading) {
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

/// The memory level of an access, by the data-source table of its CPU.
pub(super) fn level(spe: &SpeReading, cpu: u16, access: SpeAccess) -> MemLevel {
    let Some(number) = access.source() else {
        return MemLevel::Unknown;
    };
    let table = spe.tables.get(&u32::from(cpu));
    table
        .filter(|_| access.class() == Class::Load)
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
        fn pages_added_again_are_known_by_generation(before in 1..1000_u64, now in 0..1000_u64) {
            let page = |samples, made| PageRow::from_words(&[samples, samples, 9 * samples, made]);
            prop_assert_eq!(page(now, 7).since(Some(&page(before, 5))), page(now, 0));
            let delta = page(now.saturating_sub(before), 0);
            prop_assert_eq!(page(now, 5).since(Some(&page(before, 5))), delta);
        }
    }
}
