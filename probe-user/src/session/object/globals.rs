//! The globals of the object that are settings of a session. Those that are offsets in the kernel's
//! structures are in `offsets`.

use std::marker::PhantomData;

use aya::{EbpfLoader, Pod};

/// A global, frozen from the load on.
pub(super) struct Global<T>(&'static str, PhantomData<T>);

impl<T: Pod> Global<T> {
    /// The programs that are loaded find this value.
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
    /// The least urgent level of messages that programs send; 0: none.
    AYA_LOG_LEVEL: u8;
    /// Slots in use.
    EVENTS: u64;
    /// The first slot of the rotated group.
    ROTATED: u64;
    /// Bit n: slot n is the last of its group.
    GROUP_ENDS: u64;
    /// Bit n: slot n counts the nanoseconds of a clock.
    CLOCKS: u64;
    /// 1: rows are keyed by process as well; 2: those of memory accesses are not.
    BY_PROCESS: u8;
    /// 1: a command's processes are followed.
    FOLLOW_COMMAND: u8;
    /// The cgroup whose processes' markers are told; 0: those of followed processes.
    MARKER_CGROUP: u64;
    /// Bytes of markers at which the reader is woken.
    MARKER_WAKE_FROM: u64;
    /// The kernel's page size is two to the power of it.
    SPE_PAGE_SHIFT: u64;
    /// Data pages are two to the power of it.
    SPE_DATA_PAGE_SHIFT: u64;
    /// 1: the table of pages is kept.
    SPE_WITH_PAGES: u64;
    /// 1: the table of cache lines is kept.
    SPE_WITH_LINES: u64;
    /// 1: the timeline of switches is kept.
    SPE_WITH_TIMELINE: u64;
    /// Data pages of sampled events are two to the power of it.
    SAMPLE_PAGE_SHIFT: u64;
    /// Slots of each CPU in a table of addresses.
    SAMPLE_SLOTS: u64;
    /// 1: the instructions of sampled events are kept.
    SAMPLE_WITH_ADDRESSES: u64;
    /// 1: their data pages are kept.
    SAMPLE_WITH_PAGES: u64;
    /// Bit n: samples of event n may have a weight and a data source.
    SAMPLE_WEIGHED: u64;
    /// Bit n: samples of event n may have the address of data, and data pages are kept.
    SAMPLE_ADDRESSED: u64;
    /// Bit n: samples of event n are memory accesses, or are left out.
    SAMPLE_ACCESSES: u64;
    /// The least weight of an access.
    SAMPLE_LEAST_WEIGHT: u64;
}
