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
            totals.addresses.insert(key, counts);
        }
        prop_assert!(!totals.push_out(true, ROOM));
        prop_assert_eq!(totals.push_out(false, ROOM), sizes.len() > ROOM);
        let left = totals.addresses.iter().filter(|(key, _)| !key.page);
        let left: Vec<u64> = left.map(|(_, it)| it.samples).collect();
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
