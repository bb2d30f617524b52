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
    /// The first slot of the multiplexed group.
    ROTATED: u64;
    /// Bit n is set if slot n is the last of its group.
    GROUP_ENDS: u64;
    /// Bit n is set if slot n counts the nanoseconds of a clock.
    CLOCKS: u64;
    /// A few bits for each slot: the number of its scheduler counter; 0 if the slot has an event.
    SCHEDULER_SLOTS: u64;
    /// 1 if the ledger of waits is kept.
    WITH_LEDGER: u8;
    /// 0 if rows are keyed only by cgroup; 1 if all rows are also keyed by process; 2 if all rows
    /// except those of samples are also keyed by process.
    BY_PROCESS: u8;
    /// 1 if a command's processes are followed.
    FOLLOW_COMMAND: u8;
    /// The cgroup whose markers are observed; 0 if those of followed processes are observed.
    MARKER_CGROUP: u64;
    /// Bytes of markers in the ring from which on its reader is woken.
    MARKER_WAKE_FROM: u64;
    /// Log2 of the kernel's page size.
    SPE_PAGE_SHIFT: u64;
    /// Log2 of the size of a data page.
    SPE_DATA_PAGE_SHIFT: u64;
    /// 1 if the table of pages is filled.
    SPE_WITH_PAGES: u64;
    /// 1 if the table of cache lines is filled.
    SPE_WITH_LINES: u64;
    /// 1 if the timeline of switches is recorded.
    SPE_WITH_TIMELINE: u64;
    /// Log2 of the size of a data page of sampled events.
    SAMPLE_PAGE_SHIFT: u64;
    /// Number of slots of each CPU in a table of addresses.
    SAMPLE_SLOTS: u64;
    /// 1 if the table of sampled instructions is filled.
    SAMPLE_WITH_ADDRESSES: u64;
    /// 1 if the table of sampled data pages is filled.
    SAMPLE_WITH_PAGES: u64;
    /// Bit n is set if event n counts nothing but what it samples.
    SAMPLE_COUNTED: u64;
    /// Bit n is set if event n is precise.
    SAMPLE_PRECISE: u64;
    /// Bit n is set if samples of event n may have a weight and a data source.
    SAMPLE_WEIGHED: u64;
    /// Bit n is set if the table of data pages is filled, and samples of event n may have a data
    /// address.
    SAMPLE_ADDRESSED: u64;
    /// Bit n is set if event n samples memory accesses: its other samples are left out.
    SAMPLE_ACCESSES: u64;
    /// The minimum weight of a memory access that is recorded.
    SAMPLE_LEAST_WEIGHT: u64;
}
