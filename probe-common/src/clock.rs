//! The CLOCK map: times of the programs' clock, for counts that a later pmuscope process continues.

use crate::pod::pod;

pod! {
    /// Times of the programs' clock, in nanoseconds. The program `clock`, which user space runs to
    /// read the time, writes `now`; user space writes the rest.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ProgramClock {
        /// Time of the last run of `clock`.
        pub now: u64,
        /// When counting into these maps began.
        pub began: u64,
        /// When the maps were last read.
        pub pulled: u64,
        /// Number of times another process took the maps over.
        pub handovers: u64,
        /// CPU time that was charged to no owner while counters were exchanged.
        pub gap: u64,
        /// Time between the last reading by one process and the start of the next. Nothing was
        /// sampled then, and no uncore counter was read.
        pub unattended: u64,
    }
}
