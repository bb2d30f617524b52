//! The maps of samples taken at counter overflows: rows by owner ([`SampleKey`], [`SampleRow`]),
//! the table of addresses ([`AddressSlot`]), and the sample accounting of each CPU ([`SampleCpu`]).
//!
//! Rows and addresses have a generation. User space starts a new generation at each reading, waits
//! until all runs of the program that began in the previous generation have finished, and then
//! reads that generation, which no longer changes.

mod data_source;
mod table;

pub use self::{
    data_source::{DataSource, MemoryAccess},
    table::{AddressSlot, TRIES},
};
use crate::{
    CgroupId,
    pod::pod,
    spe::{LATENCY_BUCKETS, LatencySum},
};

/// Events that can be sampled at once.
pub const SAMPLED_EVENTS: usize = 8;

pod! {
    /// Key of a row. It includes the CPU, so no row is written by two CPUs and plain adds suffice.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SampleKey {
        /// Owner of the samples.
        pub cgroup: CgroupId,
        /// Process id in the initial pid namespace; 0 unless counting by process.
        pub tgid: u32,
        /// CPU number.
        pub cpu: u16,
        /// Index of the event.
        pub event: u8,
        /// A [`DataSource`].
        pub source: u8,
        /// Generation (module documentation).
        pub generation: u64,
    }
}

pod! {
    /// Value of a row.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SampleRow {
        /// Samples.
        pub samples: u64,
        /// Sum of the samples' periods: the number of events that the samples stand for. The period
        /// of a sample is what the event counted since its last sample on this CPU, or what the
        /// kernel reports if the event also counts what it does not sample.
        pub periods: u64,
        /// Sum of the squared periods, low 64 bits.
        pub squares: u64,
        /// Sum of the squared periods, high 64 bits.
        pub squares_high: u64,
        /// Samples whose data source reports a page walk.
        #[cfg_attr(feature = "serde", serde(default))]
        pub walks: u64,
        /// Sum of the weights (latencies in cycles), where samples have one.
        pub weight: LatencySum,
        /// Samples by weight, in the buckets of [`crate::spe::SpeRow::bucket`]. Samples without a
        /// weight are in no bucket.
        pub histogram: [u32; LATENCY_BUCKETS],
    }
}

impl SampleRow {
    /// Adds a sample of this period, without its weight.
    #[inline(always)]
    pub const fn add(&mut self, period: u64) {
        self.samples += 1;
        self.periods = self.periods.wrapping_add(period);
        // A period is below 2^63. Above 2^32 it is clamped, so that its square fits 64 bits.
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

    /// A weight, clamped to the range of the histogram.
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

pod! {
    /// Key of the table of addresses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AddressKey {
        /// Owner of the samples.
        pub cgroup: CgroupId,
        /// Address of an instruction, or of the first byte of a data page.
        pub address: u64,
        /// Process to which the address belongs. 0 for a kernel address, which is the same in all
        /// processes, unless counting by process.
        pub tgid: u32,
        /// Index of the event.
        pub event: u8,
        /// 1: a data page.
        pub page: u8,
        /// CPU number: the scaling factor of a multiplexed event differs between CPUs.
        pub cpu: u16,
        /// Generation (module documentation).
        pub generation: u64,
    }
}

impl AddressKey {
    /// Whether the address is the kernel's: in the upper half on x86-64 and Arm.
    #[must_use]
    #[inline(always)]
    pub const fn is_kernel(address: u64) -> bool {
        address >> 63 != 0
    }
}

pod! {
    /// Value of the table of addresses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AddressRow {
        /// Samples.
        pub samples: u32,
        /// Samples with a weight; 0 for an instruction.
        pub timed: u32,
        /// Sum of the periods.
        pub periods: u64,
        /// Sum of the weights.
        pub cycles: u64,
        /// `CLOCK_MONOTONIC` nanoseconds of the first sample: the process may execute another
        /// program later.
        pub first: u64,
    }
}

pod! {
    /// Sample accounting of an event on a CPU. Only programs that run on that CPU write it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SampleCpu {
        /// All samples, including dropped ones.
        pub samples: u64,
        /// Sum of the samples' periods, as in [`SampleRow::periods`].
        pub periods: u64,
        /// Sum of the samples' periods as the kernel reports them.
        #[cfg_attr(feature = "serde", serde(default))]
        pub reported: u64,
        /// Count of the event at its last sample.
        #[cfg_attr(feature = "serde", serde(default))]
        pub last_count: u64,
        /// Samples of memory-access events that are not accesses or are below the requested
        /// latency: they are in no row.
        #[cfg_attr(feature = "serde", serde(default))]
        pub others: u64,
        /// Runs that measured their own duration: one in [`Self::MEASURE_EVERY`].
        pub measured: u64,
        /// Nanoseconds that the measured runs took.
        pub nanos: u64,
        /// Samples whose instruction did not fit into the table of addresses.
        pub unplaced: u64,
        /// Samples whose data page did not fit into the table of addresses.
        pub unpaged: u64,
        /// Rows that the kernel refused because the map was full.
        pub full: u64,
        /// Rows that the kernel refused because memory was short or the map was locked.
        pub refused: u64,
        /// Finished runs: fewer than [`Self::samples`] while a run is in progress.
        #[cfg_attr(feature = "serde", serde(default))]
        pub finished: u64,
        /// The row of the samples for which the map of rows had no room.
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
    /// The last generation whose addresses were read. Its slots are free.
    Read = 1,
}

impl SampleSetting {
    /// Number of settings.
    pub const COUNT: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_carry_into_the_high_word() {
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
