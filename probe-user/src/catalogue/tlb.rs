//! The reach of a core's TLB, by the platforms' tables, and the cost of a page walk.

use serde::Deserialize;

/// A `[platform.tlb]` table: the data TLB of a core.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// The document that states it.
    pub source: String,
    /// Entries by page size.
    pub entries: Vec<TlbEntries>,
}

/// Entries for one page size in the last level of a core's TLB. If no document says that the last
/// level holds pages of this size, they are those of the first level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbEntries {
    /// The page size in bytes.
    pub page: u64,
    /// The number of entries.
    pub entries: u32,
}

impl TlbSpec {
    /// The entries for pages of this size in bytes; `None` if no document states them.
    #[must_use]
    pub fn entries_for(&self, page: u64) -> Option<TlbEntries> {
        self.entries.iter().copied().find(|it| it.page == page)
    }
}

impl TlbEntries {
    /// Bytes that can be accessed without a walk.
    #[must_use]
    pub fn reach(self) -> u64 {
        u64::from(self.entries).saturating_mul(self.page)
    }
}

/// Bits of an address that one level of a page table with pages of 4 KiB translates.
const LEVEL_BITS: u32 = 9;

/// Bits of the offset in a page of 4 KiB.
const PAGE_BITS: u32 = 12;

/// Levels of the page table for addresses of 48 bits.
const LEVELS: u32 = 4;

/// Memory accesses of a load whose translation and data are in no cache: one for each level of the
/// page table, and one for the data. Pages of 4 KiB need four levels, larger pages fewer. In a
/// virtual machine each level may need a walk of the host's table. After John `McCalpin`, "What
/// good are Large Pages?".
///
/// `None` for a page size in bytes that a table with pages of 4 KiB cannot have.
#[must_use]
pub fn walk_trips(page: u64) -> Option<u32> {
    let bits = page.checked_ilog2().filter(|_| page.is_power_of_two())?;
    let extra_bits = bits.checked_sub(PAGE_BITS)?;
    let skipped = extra_bits / LEVEL_BITS;
    (extra_bits % LEVEL_BITS == 0 && skipped < LEVELS - 1).then(|| LEVELS - skipped + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Platform;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// `McCalpin`'s article says that most cores map 2 MiB with small pages (512 x 4 KiB), and at
    /// least 64 MiB with large ones (32 x 2 MiB). Sandy Bridge has exactly these numbers.
    #[test]
    fn reach_matches_mccalpin() {
        let tlb = Platform::named("snb").unwrap().spec().tlb.as_ref().unwrap();
        let reach = |page| tlb.entries_for(page).map(TlbEntries::reach);
        assert_eq!(reach(4 * KIB), Some(2 * MIB));
        assert_eq!(reach(2 * MIB), Some(64 * MIB));
        assert_eq!(reach(64 * KIB), None);
        // The level 2 TLB of Knights Corner: 64 x 2 MiB, not 64 x 4 KiB.
        let reach_of = |page, entries| TlbEntries { page, entries }.reach();
        assert_eq!(
            (reach_of(2 * MIB, 64), reach_of(4 * KIB, 64)),
            (128 * MIB, 256 * KIB)
        );
        assert_eq!(reach_of(u64::MAX, 2), u64::MAX);
    }

    #[test]
    fn the_cost_of_a_walk_matches_mccalpin() {
        let trips = [4 * KIB, 2 * MIB, 1024 * MIB].map(walk_trips);
        assert_eq!(trips, [Some(5), Some(4), Some(3)]);
        for other in [0, 2 * KIB, 64 * KIB, 3 * MIB, 512 * 1024 * MIB, 1 << 63] {
            assert_eq!(walk_trips(other), None, "{other}");
        }
    }

    #[test]
    fn every_table_names_its_source_and_has_small_pages_first() {
        let specs = Platform::all().iter().map(|platform| platform.spec());
        let mut tables = 0;
        for spec in specs {
            let Some(tlb) = &spec.tlb else { continue };
            tables += 1;
            assert!(tlb.source.len() > 20, "{}", spec.name);
            let pages: Vec<u64> = tlb.entries.iter().map(|it| it.page).collect();
            assert!(pages.is_sorted() && pages.len() >= 2, "{}", spec.name);
            let powers = pages.iter().all(|page| page.is_power_of_two());
            assert!(powers && tlb.entries.iter().all(|it| it.entries > 0));
            let reaches: Vec<u64> = tlb.entries.iter().map(|it| it.reach()).collect();
            assert!(reaches.is_sorted(), "{}: {reaches:?}", spec.name);
        }
        assert!(tables >= 7, "{tables}");
    }
}
