//! The CLOCK map: timestamps of `CLOCK_MONOTONIC`, and totals of handovers between processes.

use crate::pod::pod;

pod! {
    /// Timestamps of `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`) in nanoseconds, and totals of handovers
    /// between processes. The program `clock`, which user space runs to read the time, writes
    /// `now`; user space writes the rest.
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
        /// CPU time charged to no owner because counters were being replaced during handovers.
        pub gap: u64,
        /// Total time between the last pull of one process and the takeover by the next. Nothing
        /// was sampled then, and no uncore counter was read.
        pub unattended: u64,
    }
}
