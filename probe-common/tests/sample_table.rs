//! The tables of addresses, as the program of sampled events fills them and user space reads them.

use std::collections::BTreeMap;

use probe_common::{
    CgroupId,
    sample::{AddressKey, AddressRow, AddressSlot, TRIES},
};
use proptest::prelude::*;

fn key((address, tgid, event): (u64, u32, u8), generation: u64) -> AddressKey {
    AddressKey {
        cgroup: CgroupId(u64::from(tgid) + 7),
        address: 0x40_0000 + address * 4,
        tgid,
        event,
        page: 0,
        cpu: 0,
        generation,
    }
}

fn of(table: &[AddressSlot], generation: u64) -> Vec<AddressSlot> {
    let slots = table.iter().copied();
    slots.filter(|it| it.key.generation == generation).collect()
}

proptest! {
    /// What user space reads of each generation is what was added in it, less what found no
    /// slot, and no address is there twice.
    #[test]
    fn nothing_is_lost_unsaid(
        generations in prop::collection::vec(
            prop::collection::vec((0..40_u64, 0..3_u32, 0..2_u8), 0..120),
            1..6,
        ),
        slots in prop::sample::select(vec![1_u32, 4, 32, 256]),
    ) {
        let mut table = vec![AddressSlot::ZERO; slots as usize];
        for (generation, samples) in (AddressKey::FIRST..).zip(&generations) {
            let before = of(&table, generation - 1);
            let mut truth: BTreeMap<AddressKey, AddressRow> = BTreeMap::new();
            let mut refused = 0;
            for sample in samples {
                let key = key(*sample, generation);
                let gained = AddressRow { samples: 1, periods: 3, ..AddressRow::ZERO };
                let added = (0..TRIES).any(|tried| {
                    let at = key.hash().wrapping_add(tried) & (slots - 1);
                    table[at as usize].add(&key, &gained, || generation * 10)
                });
                if added {
                    let row = truth.entry(key).or_default();
                    row.samples += 1;
                    row.periods += 3;
                    row.first = generation * 10;
                } else {
                    refused += 1;
                }
            }
            let found = of(&table, generation);
            let by_key: BTreeMap<_, _> = found.iter().map(|it| (it.key, it.row)).collect();
            prop_assert_eq!(by_key.len(), found.len());
            prop_assert_eq!(&by_key, &truth);
            let kept: u32 = truth.values().map(|it| it.samples).sum();
            prop_assert_eq!(kept as usize + refused, samples.len());
            // User space may be reading these yet.
            prop_assert_eq!(of(&table, generation - 1), before);
        }
    }
}
