//! The tables of addresses: each CPU has its own slots in an array, so that a sample takes no lock
//! and allocates nothing. A slot is one cache line.

use super::{AddressKey, AddressRow};
use crate::pod::pod;

/// Consecutive slots that are tried for an address (linear probing).
pub const TRIES: u32 = 8;

pod! {
    /// A slot of a table: one address with its samples.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AddressSlot {
        /// The address.
        pub key: AddressKey,
        /// The samples of the address.
        pub row: AddressRow,
    }
}

impl AddressKey {
    /// The generation of the first samples. It makes slots of all-zero bytes free.
    pub const FIRST: u64 = 2;

    /// Hash of the key; its low bits are the first slot to try, for any power of two of slots.
    #[must_use]
    #[inline(always)]
    pub const fn hash(&self) -> u32 {
        /// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let owner = self.cgroup.0 ^ (self.tgid as u64) << 32 ^ (self.event as u64) << 24;
        let mixed = (owner.wrapping_mul(GOLDEN) ^ self.address).wrapping_mul(GOLDEN);
        (mixed >> 32) as u32
    }
}

impl AddressSlot {
    /// Adds `gained` if the slot has this key or is free; a free slot takes the key. False if the
    /// slot has another key: the caller tries the next slot, up to [`TRIES`] slots.
    ///
    /// A slot is free once user space has read its generation; `read` is the last generation read.
    /// Slots become free while samples are added, so an address may have two slots:
    /// the reader adds them up.
    #[inline(always)]
    pub fn add(
        &mut self,
        key: &AddressKey,
        gained: &AddressRow,
        read: u64,
        now: impl Fn() -> u64,
    ) -> bool {
        if self.key.generation <= read {
            self.row = *gained;
            self.row.first = now();
            self.key = *key;
            return true;
        }
        let is_same = self.key == *key;
        if is_same {
            self.row.gain(gained);
        }
        is_same
    }
}

impl AddressRow {
    #[inline(always)]
    const fn gain(&mut self, gained: &Self) {
        self.samples = self.samples.wrapping_add(gained.samples);
        self.timed = self.timed.wrapping_add(gained.timed);
        self.periods = self.periods.wrapping_add(gained.periods);
        self.cycles = self.cycles.wrapping_add(gained.cycles);
    }
}
