//! The CLOCK map: times of the programs' clock, for counts that continue across processes.

use crate::pod::pod;

pod! {
    /// Times of the programs' clock, in nanoseconds. The program writes `now`, user space the rest.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ProgramClock {
        /// At the last run of the program.
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
