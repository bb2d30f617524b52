//! The globals of the object that are settings of a session. `offsets` has the globals that are
//! offsets in kernel structures.

use std::marker::PhantomData;

use aya::{EbpfLoader, Pod};

/// A global, which is frozen when the object is loaded.
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
    /// The least severe level of messages that programs send; 0: none.
    AYA_LOG_LEVEL: u8;
    /// Slots in use.
    EVENTS: u64;
    /// The first slot of the rotated group.
    ROTATED: u64;
    /// Bit n: slot n is the last of its group.
    GROUP_ENDS: u64;
    /// Bit n: slot n counts the nanoseconds of a clock.
    CLOCKS: u64;
    /// Some bits for each slot: the number of its scheduler counter; 0 for an event.
    SCHEDULER_SLOTS: u64;
    /// 1: the ledger of waits is kept.
    WITH_LEDGER: u8;
    /// 0: rows are keyed by cgroup. 1: all rows are keyed by process too. 2: all rows except those
    /// of samples are.
    BY_PROCESS: u8;
    /// 1: a command's processes are followed.
    FOLLOW_COMMAND: u8;
    /// The observed cgroup, for markers; 0: followed processes are observed.
    MARKER_CGROUP: u64;
    /// Bytes of markers at which the reader is woken.
    MARKER_WAKE_FROM: u64;
    /// Log2 of the kernel's page size.
    SPE_PAGE_SHIFT: u64;
    /// Log2 of the size of a data page.
    SPE_DATA_PAGE_SHIFT: u64;
    /// 1: the table of pages is filled.
    SPE_WITH_PAGES: u64;
    /// 1: the table of cache lines is filled.
    SPE_WITH_LINES: u64;
    /// 1: the timeline of switches is recorded.
    SPE_WITH_TIMELINE: u64;
    /// Log2 of the size of a data page of sampled events.
    SAMPLE_PAGE_SHIFT: u64;
    /// Slots of each CPU in a table of addresses.
    SAMPLE_SLOTS: u64;
    /// 1: the table of sampled instructions is filled.
    SAMPLE_WITH_ADDRESSES: u64;
    /// 1: the table of sampled data pages is filled.
    SAMPLE_WITH_PAGES: u64;
    /// Bit n: event n counts nothing but what it samples.
    SAMPLE_COUNTED: u64;
    /// Bit n: event n is precise.
    SAMPLE_PRECISE: u64;
    /// Bit n: samples of event n may have a weight and a data source.
    SAMPLE_WEIGHED: u64;
    /// Bit n: samples of event n may have a data address, and the table of data pages is filled.
    SAMPLE_ADDRESSED: u64;
    /// Bit n: only memory accesses of event n count; its other samples are left out.
    SAMPLE_ACCESSES: u64;
    /// The minimum weight of an access.
    SAMPLE_LEAST_WEIGHT: u64;
}
