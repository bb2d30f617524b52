//! The globals of the object that are settings of a session. The module `offsets` has the globals
//! that are offsets in kernel structures.

use std::marker::PhantomData;

use aya::{EbpfLoader, Pod};

/// A global of the programs. Its value is frozen when the object is loaded.
pub(super) struct Global<T>(&'static str, PhantomData<T>);

impl<T: Pod> Global<T> {
    /// Sets the value that the loaded programs see.
    pub(super) fn set<'a>(&self, loader: &mut EbpfLoader<'a>, value: &'a T) {
        loader.override_global(self.0, value, true);
    }
}

macro_rules! globals {
    ($($(#[$meta:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$meta])*
        pub(super) const $name: Global<$type> = Global(stringify!($name), PhantomData);)*

        #[cfg(test)]
        pub(super) const ALL: &[(&str, usize)] = &[$((stringify!($name), size_of::<$type>()),)*];
    };
}

globals! {
    /// The least severe level of messages that programs send; 0 if they send none.
    AYA_LOG_LEVEL: u8;
    /// Number of slots in use.
    EVENTS: u64;
    /// First slot of the group that is multiplexed in, after the slots of permanent groups;
    /// `EVENTS` without multiplexing.
    ROTATED: u64;
    /// Bit n is set if slot n is the last of its group.
    GROUP_ENDS: u64;
    /// Bit n is set if slot n counts the nanoseconds of a clock.
    CLOCKS: u64;
    /// `SchedulerCounter::BITS` bits per slot: the number of its scheduler counter; 0 if the slot
    /// has an event.
    SCHEDULER_SLOTS: u64;
    /// 1 if waiting time is attributed to the cgroups that ran meanwhile (the wait ledger).
    WITH_LEDGER: u8;
    /// 0 if rows are keyed only by cgroup; 1 if all rows are also keyed by process; 2 if all rows
    /// except those of samples are also keyed by process.
    BY_PROCESS: u8;
    /// 1 if a command's processes are followed.
    FOLLOW_COMMAND: u8;
    /// The cgroup whose markers are observed; 0 if those of followed processes are observed.
    MARKER_CGROUP: u64;
    /// Wakeup watermark of the marker ring, in bytes.
    MARKER_WAKE_FROM: u64;
    /// Log2 of the kernel's page size, in which the size of SPE's buffer is given.
    SPE_PAGE_SHIFT: u64;
    /// Log2 of the page size by which SPE's data addresses are grouped.
    SPE_DATA_PAGE_SHIFT: u64;
    /// 1 if data pages are recorded.
    SPE_WITH_PAGES: u64;
    /// 1 if cache lines are recorded.
    SPE_WITH_LINES: u64;
    /// 1 if the timeline of switches is recorded.
    SPE_WITH_TIMELINE: u64;
    /// Log2 of the page size by which data addresses of sampled events are grouped.
    SAMPLE_PAGE_SHIFT: u64;
    /// Number of slots of each CPU in a table of addresses.
    SAMPLE_SLOTS: u64;
    /// 1 if addresses of sampled instructions are recorded.
    SAMPLE_WITH_ADDRESSES: u64;
    /// 1 if sampled data pages are recorded.
    SAMPLE_WITH_PAGES: u64;
    /// Bit n is set if event n counts exactly what it samples, so its count gives the events since
    /// the last sample.
    SAMPLE_COUNTED: u64;
    /// Bit n is set if event n is precise.
    SAMPLE_PRECISE: u64;
    /// Bit n is set if samples of event n may have a weight and a data source.
    SAMPLE_WEIGHED: u64;
    /// Bit n is set if data pages are recorded, and samples of event n may have a data address.
    SAMPLE_ADDRESSED: u64;
    /// Bit n is set if event n samples memory accesses: its other samples are left out.
    SAMPLE_ACCESSES: u64;
    /// The minimum weight of a memory access that is recorded.
    SAMPLE_LEAST_WEIGHT: u64;
}
