//! The table of cache lines: accesses to each line by owner and CPU.

use super::{Operation, Record};
use crate::{CgroupId, pod::pod};

/// Log2 of the bytes of a cache line. It is 64 bytes on every core whose data sources are known
/// (`CTR_EL0.DminLine` of Neoverse, Olympus, `AmpereOne`, HIP12).
pub const LINE_SHIFT: u32 = 6;

pod! {
    /// Key of the table. It includes the CPU, so no row is written by two CPUs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct LineKey {
        /// The address without its low [`LINE_SHIFT`] bits.
        pub line: u64,
        /// Address space: the process of a virtual address, [`LineKey::KERNEL`] or
        /// [`LineKey::PHYSICAL`].
        pub space: u64,
        /// Owner of the access.
        pub cgroup: CgroupId,
        /// Process id in the initial pid namespace; 0 unless counting by process.
        pub tgid: u32,
        /// CPU number.
        pub cpu: u32,
    }
}

impl LineKey {
    /// The kernel's own addresses, which are the same in all processes.
    pub const KERNEL: u64 = 0;
    /// Physical addresses: the same memory in all processes.
    pub const PHYSICAL: u64 = u64::MAX;

    /// Line, address space and first byte in the line of an access by a process; None if the record
    /// has no address.
    #[must_use]
    #[inline(always)]
    pub fn locate(record: &Record, tgid: u32) -> Option<(u64, u64, u32)> {
        let (address, space) = match record.physical_address() {
            Some(physical) => (physical.address(), Self::PHYSICAL),
            None => {
                let address = record.virtual_address()?.address();
                let kernel = address >> 63 != 0;
                let space = if kernel {
                    Self::KERNEL
                } else {
                    u64::from(tgid)
                };
                (address, space)
            }
        };
        let byte = (address & ((1 << LINE_SHIFT) - 1)) as u32;
        Some((address >> LINE_SHIFT, space, byte))
    }
}

pod! {
    /// Value of the table: samples since the row was added.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LineRow {
        /// Accesses that only read.
        pub loads: u64,
        /// Stores, and atomics that return no value.
        pub stores: u64,
        /// Atomics that return a value: they read and write.
        pub atomics: u64,
        /// Accesses whose data came from another core, by the core's data-source table.
        pub peers: u64,
        /// Accesses with a total latency.
        pub timed: u64,
        /// Cycles from dispatch to completion.
        pub cycles: u64,
        /// Bit n: an access that only reads began at byte n.
        pub read: u64,
        /// Bit n: an access that writes began at byte n.
        pub written: u64,
        /// `CLOCK_MONOTONIC` nanoseconds when the row was added to the table: the kernel evicts
        /// rows that were not accessed recently. 0 for sums.
        pub made: u64,
    }
}

impl LineRow {
    /// Adds a load or store that begins at this byte of the line. Bit n of `peers` means that a
    /// load with data source n got its data from another core.
    #[inline(always)]
    pub fn add(&mut self, record: &Record, byte: u32, peers: u64) {
        let Some(Operation::LoadStore(access)) = record.operation() else {
            return;
        };
        let bit = 1_u64 << (byte & 63);
        if access.is_store() {
            self.stores += 1;
            self.written |= bit;
        } else {
            if access.is_atomic() {
                self.atomics += 1;
                self.written |= bit;
            } else {
                self.loads += 1;
                self.read |= bit;
            }
            // A store's data source means nothing.
            if let Some(source) = record.data_source()
                && source < 64
                && peers >> source & 1 != 0
            {
                self.peers += 1;
            }
        }
        if let Some(cycles) = record.total_latency() {
            self.timed += 1;
            self.cycles += u64::from(cycles);
        }
    }

    /// All accesses.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.loads.saturating_add(self.writes())
    }

    /// Accesses that write.
    #[must_use]
    pub const fn writes(&self) -> u64 {
        self.stores.saturating_add(self.atomics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(payload: u64, source: Option<u64>) -> Record {
        let mut record = Record::EMPTY;
        record.set_operation(1, payload);
        record.set_total_latency(10);
        if let Some(source) = source {
            record.set_data_source(source);
        }
        record
    }

    #[test]
    fn writes_are_distinguished_from_reads() {
        let mut row = LineRow::ZERO;
        // A load from another core, a load from its own cache, a load without a source.
        for (byte, source) in [(0, Some(9)), (8, Some(0)), (63, None)] {
            row.add(&access(0x00, source), byte, 1 << 9);
        }
        // A store's source means nothing; an atomic that returns a value is a load that writes.
        row.add(&access(0x01, Some(9)), 16, 1 << 9);
        row.add(&access(0x06, Some(9)), 24, 1 << 9);
        // A load with acquire order and a load exclusive only read.
        row.add(&access(0x12, None), 32, 0);
        row.add(&access(0x0a, Some(u64::MAX)), 32, u64::MAX);
        let counts = (row.loads, row.stores, row.atomics, row.peers);
        assert_eq!(counts, (5, 1, 1, 2));
        assert_eq!((row.samples(), row.writes()), (7, 2));
        assert_eq!((row.timed, row.cycles), (7, 70));
        assert_eq!(row.read, 1 | 1 << 8 | 1 << 63 | 1 << 32);
        assert_eq!(row.written, 1 << 16 | 1 << 24);
        let mut branch = Record::EMPTY;
        branch.set_operation(2, 0);
        let before = row;
        row.add(&branch, 5, u64::MAX);
        assert_eq!(row, before);
    }

    #[test]
    fn a_physical_address_is_the_same_line_in_every_process() {
        let mut record = Record::EMPTY;
        assert_eq!(LineKey::locate(&record, 7), None);
        record.set_virtual_address(0x7f00_0000_1047);
        assert_eq!(LineKey::locate(&record, 7), Some((0x1fc_0000_0041, 7, 7)));
        // The tag is not part of the address; kernel addresses belong to no process.
        record.set_virtual_address(0x12ff_0000_0000_0080);
        let kernel = (0xffff_0000_0000_0080_u64 >> LINE_SHIFT, LineKey::KERNEL, 0);
        assert_eq!(LineKey::locate(&record, 7), Some(kernel));
        record.set_physical_address(1 << 63 | 0x8000_007f);
        let physical = (0x8000_007f_u64 >> LINE_SHIFT, LineKey::PHYSICAL, 63);
        assert_eq!(LineKey::locate(&record, 7), Some(physical));
    }
}
