//! Tests of the eviction of addresses.

use probe_common::CgroupId;
use proptest::prelude::*;

use super::*;

proptest! {
    /// The addresses with the most samples stay and take half of the room. The samples of all other
    /// addresses are counted as pushed out.
    #[test]
    fn the_rarest_addresses_are_evicted(
        sizes in prop::collection::vec(1..20_u64, 0..60),
        pages in prop::collection::vec(1..20_u64, 0..9),
    ) {
        const ROOM: usize = 10;
        let mut totals = EventSampleTotals::new(1);
        let instructions = sizes.iter().map(|samples| (false, samples));
        let addresses = instructions.chain(pages.iter().map(|samples| (true, samples)));
        for (address, (page, samples)) in (0..).zip(addresses) {
            let key = SampledAddress {
                cgroup: CgroupId(7),
                address,
                tgid: 0,
                event: 0,
                page,
                image: 0,
            };
            let counts = AddressCounts {
                samples: *samples,
                made: 1,
                ..AddressCounts::default()
            };
            totals.addresses.insert(key, AddressTotals { counts, shown: 0 });
        }
        prop_assert!(!totals.evict_addresses(true, ROOM));
        prop_assert_eq!(totals.evict_addresses(false, ROOM), sizes.len() > ROOM);
        let remaining: Vec<u64> = totals
            .addresses
            .iter()
            .filter(|(key, _)| !key.page)
            .map(|(_, it)| it.counts.samples)
            .collect();
        let lost = sizes.iter().sum::<u64>() - remaining.iter().sum::<u64>();
        prop_assert_eq!(totals.pushed_out[0], lost);
        prop_assert_eq!(totals.addresses.len() - remaining.len(), pages.len());
        if sizes.len() > ROOM {
            let mut sorted = sizes.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(remaining.len(), ROOM / 2);
            prop_assert_eq!(remaining.iter().sum::<u64>(), sorted[..ROOM / 2].iter().sum::<u64>());
        }
    }
}

/// On a machine that builds programs, addresses of ended programs fill all room.
#[test]
fn addresses_of_earlier_windows_are_evicted_first() {
    const ROOM: usize = 10;
    let mut totals = EventSampleTotals::new(1);
    let sample = |totals: &mut EventSampleTotals, address, samples| {
        let key = AddressKey {
            address,
            ..AddressKey::ZERO
        };
        let row = AddressRow {
            samples,
            ..AddressRow::ZERO
        };
        totals.add_address(&key, &row, 0, 1.0);
    };
    (0..10).for_each(|address| sample(&mut totals, address, 1_000));
    assert_eq!(totals.show_addresses().len(), 10);
    // One of the earlier addresses gets two more samples, and four new addresses get one each.
    sample(&mut totals, 3, 2);
    (20..24).for_each(|address| sample(&mut totals, address, 1));
    assert!(totals.evict_addresses(false, ROOM));
    let mut remaining: Vec<u64> = totals.addresses.keys().map(|key| key.address).collect();
    remaining.sort_unstable();
    assert_eq!(remaining, [3, 20, 21, 22, 23]);
}
