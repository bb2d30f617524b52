//! Messages of the eBPF programs about rare events (not dmesg): their rate limits and losses.

use crate::{SLOTS, pod::pod};

/// The subject of a message. Each kind has its own rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LogKind {
    /// The map of counts refused a row.
    RowRefused,
    /// A counter went back.
    CounterBack,
    /// A switch was missed.
    SwitchMissed,
    /// An SPE chunk could not be read.
    ChunkUnreadable,
    /// The lifecycle record of a cgroup or process was lost.
    EventLost,
}

impl LogKind {
    /// All of them, by number.
    pub const ALL: [Self; 5] = [
        Self::RowRefused,
        Self::CounterBack,
        Self::SwitchMissed,
        Self::ChunkUnreadable,
        Self::EventLost,
    ];

    /// Maximum number of messages of a kind that a CPU sends within a second.
    pub const MAX_PER_SECOND: u64 = 4;
}

pod! {
    /// The messages of one kind on one CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogLimit {
        /// Start of the current rate-limit second, in `CLOCK_MONOTONIC` nanoseconds.
        pub since: u64,
        /// Messages sent since then.
        pub sent: u64,
        /// Messages suppressed by the limit.
        pub suppressed: u64,
        /// Suppressed messages that a later message has reported.
        pub reported: u64,
        /// Messages dropped because the ring was full.
        pub dropped: u64,
    }
}

pod! {
    /// The messages of one CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogCpu {
        /// By [`LogKind`].
        pub kinds: [LogLimit; LogKind::ALL.len()],
        /// The counters at the last check. A counter below its reading here went back.
        pub readings: [u64; SLOTS],
    }
}
