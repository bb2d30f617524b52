//! The maps of samples that events raise when their counters overflow: rows by owner, the table of
//! addresses, and what became of the samples of each CPU.
//!
//! Rows and addresses have a generation. User space begins a new one at each reading, waits until
//! the runs that began before have finished, and then reads those of the generation before: nothing
//! adds to them any more.

mod data_source;
mod table;

pub use self::{
    data_source::{DataSource, Said},
    table::{AddressSlot, TRIES},
};
use crate::{
    CgroupId,
    spe::{LATENCY_BUCKETS, LatencySum},
    words::words,
};

/// Events that can be sampled at once.
pub const SAMPLED_EVENTS: usize = 8;

words! {
    /// Key of a row. With the CPU in it no row is ever written by two CPUs, so plain adds are
    /// enough.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SampleKey {
        /// Whom the samples belong to.
        pub cgroup: CgroupId,
        /// Process id in the initial pid namespace; 0 unless counting by process.
        pub tgid: u32,
        /// CPU number.
        pub cpu: u16,
        /// Number of the event.
        pub event: u8,
        /// A [`DataSource`].
        pub source: u8,
        /// See the module's description.
        pub generation: u64,
    }
}

words! {
    /// Value of a row.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SampleRow {
        /// Samples.
        pub samples: u64,
        /// The sum of their periods: the events that they stand for by what the kernel says.
        pub periods: u64,
        /// The sum of the squares of the periods, with [`Self::squares_high`] above it.
        pub squares: u64,
        /// In units of 2^64.
        pub squares_high: u64,
        /// Samples whose data source says that the address needed a page walk.
        #[cfg_attr(feature = "serde", serde(default))]
        pub walks: u64,
        /// Sum of the weights (latencies in cycles), where samples have one.
        pub weight: LatencySum,
        /// Samples by weight, in the buckets of [`crate::spe::SpeRow::bucket`]; one without a
        /// weight is in none.
        pub histogram: [u32; LATENCY_BUCKETS],
    }
}

impl SampleRow {
    /// Adds a sample that stands for `period` events, but for its weight.
    #[inline(always)]
    pub const fn add(&mut self, period: u64) {
        self.samples += 1;
        self.periods = self.periods.wrapping_add(period);
        // A period is below 2^63; above 2^32 the square is not held.
        let period = if period > u32::MAX as u64 {
            u32::MAX as u64
        } else {
            period
        };
        let square = period * period;
        self.squares = self.squares.wrapping_add(square);
        if self.squares < square {
            self.squares_high += 1;
        }
    }

    /// A weight as far as its histogram goes.
    #[must_use]
    #[inline(always)]
    pub const fn clamped(weight: u64) -> u16 {
        if weight > u16::MAX as u64 {
            u16::MAX
        } else {
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            let weight = weight as u16;
            weight
        }
    }
}

words! {
    /// Key of the table of addresses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AddressKey {
        /// Whom the samples belong to.
        pub cgroup: CgroupId,
        /// Of an instruction; of a data page, the address of its first byte.
        pub address: u64,
        /// Process whose address it is; 0: the kernel's, which is the same in all processes, unless
        /// counting by process.
        pub tgid: u32,
        /// Number of the event.
        pub event: u8,
        /// 1: a data page.
        pub page: u8,
        /// CPU number: what a sample stands for differs from CPU to CPU.
        pub cpu: u16,
        /// See the module's description.
        pub generation: u64,
    }
}

impl AddressKey {
    /// Whether it is one of the kernel's: those are in the upper half on x86-64 and Arm.
    #[must_use]
    #[inline(always)]
    pub const fn is_kernel(address: u64) -> bool {
        address >> 63 != 0
    }
}

words! {
    /// Value of the table of addresses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AddressRow {
        /// Samples.
        pub samples: u32,
        /// Of a data page: samples with a weight.
        pub timed: u32,
        /// The sum of their periods.
        pub periods: u64,
        /// Sum of these weights.
        pub cycles: u64,
        /// `CLOCK_MONOTONIC` nanoseconds of the first of them: the process may execute another
        /// program later.
        pub first: u64,
    }
}

words! {
    /// What became of the samples of an event on a CPU. Only programs running there write it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SampleCpu {
        /// All samples, whatever became of them.
        pub samples: u64,
        /// The sum of their periods.
        pub periods: u64,
        /// Samples of events of memory accesses that are no access, or took less time than asked
        /// for: they are in no row.
        #[cfg_attr(feature = "serde", serde(default))]
        pub others: u64,
        /// Runs that measured their own duration: one in [`Self::MEASURE_EVERY`].
        pub measured: u64,
        /// Nanoseconds that these took.
        pub nanos: u64,
        /// Samples whose instruction found no room in the table of addresses.
        pub unplaced: u64,
        /// Samples whose data page found none.
        pub unpaged: u64,
        /// Rows that the kernel refused since the map was full.
        pub full: u64,
        /// Rows that it refused since it had no memory at hand, or the map was locked.
        pub refused: u64,
        /// Runs that have done what they do: fewer than [`Self::samples`] while one is under way.
        #[cfg_attr(feature = "serde", serde(default))]
        pub finished: u64,
        /// Samples for which the rows had no room.
        pub overflow: SampleRow,
    }
}

impl SampleCpu {
    /// One run in this many measures its own duration.
    pub const MEASURE_EVERY: u64 = 16;
}

/// Entries of the map of settings, each one word that user space may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SampleSetting {
    /// The generation of new rows.
    Generation = 0,
    /// The last generation whose addresses were read: their slots are free.
    Read = 1,
}

impl SampleSetting {
    /// How many there are.
    pub const COUNT: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_carried() {
        let mut row = SampleRow::ZERO;
        let period = 1_u64 << 31;
        for _ in 0..9 {
            row.add(period);
        }
        assert_eq!((row.samples, row.periods), (9, 9 * period));
        let squares = u128::from(row.squares_high) << 64 | u128::from(row.squares);
        assert_eq!(squares, 9 * u128::from(period) * u128::from(period));
    }
}
