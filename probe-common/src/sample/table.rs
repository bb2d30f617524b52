//! The tables of addresses: each CPU has slots of its own in an array, so that a sample takes no
//! lock and no memory. A slot is one line of the CPU's caches.

use super::{AddressKey, AddressRow};
use crate::words::words;

/// Slots that are tried for an address, one behind the other.
pub const TRIES: u32 = 8;

words! {
    /// A slot.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AddressSlot {
        /// The address that has it.
        pub key: AddressKey,
        /// What is known of it.
        pub row: AddressRow,
    }
}

impl AddressKey {
    /// The generation of the first samples: slots with all bytes zero are free then.
    pub const FIRST: u64 = 2;

    /// The number of the slot that is tried first, among any power of two of them.
    #[must_use]
    #[inline(always)]
    pub const fn hash(&self) -> u32 {
        /// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let whose = self.cgroup.0 ^ (self.tgid as u64) << 32 ^ (self.event as u64) << 24;
        let mixed = (whose.wrapping_mul(GOLDEN) ^ self.address).wrapping_mul(GOLDEN);
        (mixed >> 32) as u32
    }
}

impl AddressSlot {
    /// Adds to the address if the slot is its own, or free, and is its own then. False where it is
    /// another's: the next one is tried, up to [`TRIES`].
    ///
    /// A slot is free once user space has read the generation in which it was taken, `read` being
    /// the last one that it has. Slots become free while samples are added, so an address may have
    /// two: whoever reads adds them up.
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
        let own = self.key == *key;
        if own {
            self.row.gain(gained);
        }
        own
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
