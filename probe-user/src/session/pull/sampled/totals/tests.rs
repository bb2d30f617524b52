//! Which addresses give way.

use probe_common::CgroupId;
use proptest::prelude::*;

use super::*;

proptest! {
    /// Who has most samples stays, half of the room is used, and all else is counted.
    #[test]
    fn the_rarest_addresses_give_way(
        sizes in prop::collection::vec(1..20_u64, 0..60),
        pages in prop::collection::vec(1..20_u64, 0..9),
    ) {
        const ROOM: usize = 10;
        let mut totals = SampleTotals::new(1);
        let all = sizes.iter().map(|it| (false, it)).chain(pages.iter().map(|it| (true, it)));
        for (address, (page, samples)) in (0..).zip(all) {
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
            totals.addresses.insert(key, KeptAddress { counts, shown: 0 });
        }
        prop_assert!(!totals.push_out(true, ROOM));
        prop_assert_eq!(totals.push_out(false, ROOM), sizes.len() > ROOM);
        let left = totals.addresses.iter().filter(|(key, _)| !key.page);
        let left: Vec<u64> = left.map(|(_, it)| it.counts.samples).collect();
        let lost = sizes.iter().sum::<u64>() - left.iter().sum::<u64>();
        prop_assert_eq!(totals.pushed_out[0], lost);
        prop_assert_eq!(totals.addresses.len() - left.len(), pages.len());
        if sizes.len() > ROOM {
            let mut sorted = sizes.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(left.len(), ROOM / 2);
            prop_assert_eq!(left.iter().sum::<u64>(), sorted[..ROOM / 2].iter().sum::<u64>());
        }
    }
}

/// On a machine that builds programs the addresses of those that ended fill all room.
#[test]
fn addresses_of_the_last_window_stay_before_those_of_earlier_ones() {
    const ROOM: usize = 10;
    let mut totals = SampleTotals::new(1);
    let sample = |totals: &mut SampleTotals, address, samples| {
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
    // Of one of these there are more, and of some others there is one each.
    sample(&mut totals, 3, 2);
    (20..24).for_each(|address| sample(&mut totals, address, 1));
    assert!(totals.push_out(false, ROOM));
    let mut left: Vec<u64> = totals.addresses.keys().map(|key| key.address).collect();
    left.sort_unstable();
    assert_eq!(left, [3, 20, 21, 22, 23]);
}
