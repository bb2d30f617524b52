//! The kernel log: what became of the messages that programs have about rare events.

use crate::{SLOTS, words::words};

/// What a message is about. Each kind has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LogKind {
    /// The map of counts took no row.
    RowRefused,
    /// A counter went back.
    CounterBack,
    /// A switch was missed.
    SwitchMissed,
    /// A chunk of SPE could not be read.
    ChunkUnreadable,
    /// The record of a cgroup or process that came or went was lost.
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

    /// The most messages of a kind that a CPU sends within a second.
    pub const MOST: u64 = 4;
}

words! {
    /// The messages of one kind on one CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogLimit {
        /// `CLOCK_MONOTONIC` nanoseconds at which the second began that the limit is for.
        pub since: u64,
        /// Messages since then.
        pub sent: u64,
        /// Messages that the limit kept back.
        pub suppressed: u64,
        /// Those of them that a later message has reported.
        pub reported: u64,
        /// Messages that the ring had no room for.
        pub dropped: u64,
    }
}

words! {
    /// The messages of one CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogCpu {
        /// By [`LogKind`].
        pub kinds: [LogLimit; LogKind::ALL.len()],
        /// The counters' last readings, while they are read again.
        pub readings: [u64; SLOTS],
    }
}
