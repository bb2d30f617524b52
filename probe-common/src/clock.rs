//! The CLOCK map: the programs' clock, and the times of a count that outlives its process.

use crate::words::words;

words! {
    /// Times of the programs' clock, in nanoseconds. The program writes the first, user space the
    /// rest.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Clock {
        /// At the last run of the program.
        pub now: u64,
        /// When counting into these maps began.
        pub began: u64,
        /// When the maps were read last. Nobody has read what is not in them since.
        pub pulled: u64,
        /// How often another process took the maps over.
        pub handovers: u64,
        /// Time of CPUs that was counted for nobody, since counters were exchanged at these times.
        pub gap: u64,
        /// Time between the last reading by a process and the start of the next: nothing was
        /// sampled, and no uncore counter read.
        pub unattended: u64,
    }
}
