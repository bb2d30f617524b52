//! The tables of addresses, as the program of sampled events fills them and user space reads them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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

/// Adds a sample as the program does. False where there is no slot for the sample.
fn add(table: &mut [AddressSlot], key: &AddressKey, read: u64) -> bool {
    let gained = AddressRow {
        samples: 1,
        periods: 3,
        ..AddressRow::ZERO
    };
    let slots = u32::try_from(table.len()).unwrap();
    (0..TRIES).any(|tried| {
        let at = key.hash().wrapping_add(tried) & (slots - 1);
        table[at as usize].add(key, &gained, read, || key.generation * 10)
    })
}

fn slots_of(table: &[AddressSlot], generation: u64) -> Vec<AddressSlot> {
    let slots = table.iter().copied();
    slots.filter(|it| it.key.generation == generation).collect()
}

proptest! {
    /// User space reads every sample of a generation that found a slot, whenever it finishes
    /// reading the previous generation.
    #[test]
    fn every_sample_is_stored_or_refused(
        generations in prop::collection::vec(
            (prop::collection::vec((0..40_u64, 0..3_u32, 0..2_u8), 0..120), 0..120_usize),
            1..6,
        ),
        slots in prop::sample::select(vec![1_u32, 4, 32, 256, 2048]),
    ) {
        let mut table = vec![AddressSlot::ZERO; slots as usize];
        for (generation, (samples, reads_at)) in (AddressKey::FIRST..).zip(&generations) {
            let before = slots_of(&table, generation - 1);
            let mut expected: BTreeMap<AddressKey, (u32, u64)> = BTreeMap::new();
            let mut refused = 0;
            for (at, sample) in samples.iter().enumerate() {
                let key = key(*sample, generation);
                let read = if at < *reads_at { generation - 2 } else { generation - 1 };
                if at == *reads_at {
                    // Until now user space reads the previous generation, which must not change.
                    prop_assert_eq!(slots_of(&table, generation - 1), before.clone());
                }
                if add(&mut table, &key, read) {
                    let (samples, periods) = expected.entry(key).or_default();
                    *samples += 1;
                    *periods += 3;
                } else {
                    refused += 1;
                }
            }
            let mut found: BTreeMap<AddressKey, (u32, u64)> = BTreeMap::new();
            for slot in slots_of(&table, generation) {
                let (samples, periods) = found.entry(slot.key).or_default();
                *samples += slot.row.samples;
                *periods += slot.row.periods;
                prop_assert_eq!(slot.row.first, generation * 10);
            }
            prop_assert_eq!(&found, &expected);
            let stored: u32 = expected.values().map(|(samples, _)| samples).sum();
            prop_assert_eq!(stored as usize + refused, samples.len());
            // A table with ample room refuses no sample.
            prop_assert!(slots < 2048 || refused == 0, "{} refused", refused);
        }
    }
}

/// Each generation has as many samples as a CPU takes between two readings, each at its own
/// address; the table has twice as many slots. User space finishes reading a generation when a
/// hundredth of the next one has been added.
#[test]
fn a_half_full_table_loses_at_most_one_percent_of_a_generation() {
    const SAMPLES: u64 = 4096;
    let mut table = vec![AddressSlot::ZERO; 2 * usize::try_from(SAMPLES).unwrap()];
    let mut address = 0_u64;
    for generation in AddressKey::FIRST..AddressKey::FIRST + 8 {
        let mut lost = 0;
        for at in 0..SAMPLES {
            // Pseudo-random addresses.
            address = address
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = key((address >> 20, 7, 0), generation);
            let read = generation - if at < SAMPLES / 100 { 2 } else { 1 };
            lost += u64::from(!add(&mut table, &key, read));
        }
        assert!(
            lost <= SAMPLES / 100,
            "{lost} lost of generation {generation}"
        );
    }
}
