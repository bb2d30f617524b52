//! The maps of the kernel's SPE accounting: rows of samples by owner and data source, and what
//! became of every byte that SPE wrote.

use super::{Access, BadKind};
use crate::{CgroupId, words::words};

/// Buckets of the latency histogram: 0 and 1 by themselves, then two for each power of two, split
/// at one and a half times it. Together they hold all that 16 bits do.
pub const LATENCY_BUCKETS: usize = 32;

words! {
    /// Key of a row. With the CPU in it no row is ever written by two CPUs, so plain adds are
    /// enough.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SpeKey {
        /// Whom the samples belong to; [`SpeKey::UNATTRIBUTED`] where that is not known.
        pub cgroup: CgroupId,
        /// Process id in the initial pid namespace; 0 unless counting by process.
        pub tgid: u32,
        /// CPU number.
        pub cpu: u16,
        /// What was done, and where the data came from.
        pub access: Access,
    }
}

impl SpeKey {
    /// Whom samples of unknown threads belong to.
    pub const UNATTRIBUTED: CgroupId = CgroupId(u64::MAX - 3);
}

words! {
    /// A latency in cycles, summed over samples.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LatencySum {
        /// Sum.
        pub cycles: u64,
        /// Sum of squares, for the error of the mean.
        pub squares: u64,
    }
}

impl LatencySum {
    /// Adds one sample's.
    #[inline(always)]
    pub const fn add(&mut self, cycles: u16) {
        let cycles = cycles as u64;
        self.cycles = self.cycles.wrapping_add(cycles);
        self.squares = self.squares.wrapping_add(cycles.wrapping_mul(cycles));
    }
}

words! {
    /// Value of a row: samples since sampling began. With key and the kernel's own 56 bytes a row
    /// takes 248 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeRow {
        /// Samples.
        pub samples: u64,
        /// Those that needed a translation table walk.
        pub walks: u64,
        /// Dispatch to completion.
        pub total: LatencySum,
        /// Cycles from dispatch to issue.
        pub issue: u64,
        /// Cycles of address translation.
        pub translation: u64,
        /// Samples by total latency; one without that latency is in none. They wrap: user space
        /// reads a row more often than a CPU can take 2^32 samples.
        pub histogram: [u32; LATENCY_BUCKETS],
    }
}

impl SpeRow {
    /// The bucket of a total latency.
    #[must_use]
    #[inline(always)]
    pub const fn bucket(cycles: u16) -> usize {
        if cycles < 2 {
            return cycles as usize;
        }
        let octave = cycles.ilog2();
        (2 * octave + (cycles as u32 >> (octave - 1) & 1)) as usize
    }

    /// The lowest and the highest latency of a bucket.
    #[must_use]
    pub const fn latencies(bucket: usize) -> (u32, u32) {
        #[expect(clippy::cast_possible_truncation, reason = "below 32")]
        let bucket = (bucket % LATENCY_BUCKETS) as u32;
        if bucket < 2 {
            return (bucket, bucket);
        }
        let half = 1 << (bucket / 2 - 1);
        let low = (2 + (bucket & 1)) * half;
        (low, low + half - 1)
    }
}

/// Why a record belongs to nobody that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unattributed {
    /// It names no thread, and there is no timeline of switches.
    NoThread = 0,
    /// Nobody knows the thread that it names.
    UnknownThread = 1,
    /// It is older than the last two changes of the thread's owner.
    TooOld = 2,
    /// It names no thread, and the timeline does not reach back to it.
    BeforeTimeline = 3,
}

impl Unattributed {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::NoThread,
        Self::UnknownThread,
        Self::TooOld,
        Self::BeforeTimeline,
    ];

    /// The reason as a metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoThread => "no_thread",
            Self::UnknownThread => "unknown_thread",
            Self::TooOld => "too_old",
            Self::BeforeTimeline => "before_timeline",
        }
    }
}

words! {
    /// What became of everything that SPE wrote on a CPU. Only programs running there write it.
    ///
    /// `bytes` are those of the records, `padding`, `undecoded` and `skipped`; `records` is the sum
    /// of all rows' samples, unattributed and overflowed ones included, and of `invalid`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeCpu {
        /// Id of the event whose chunks come.
        pub event: u64,
        /// Where its last chunk ended in the AUX buffer.
        pub next: u64,
        /// Chunks handed over.
        pub chunks: u64,
        /// Their bytes.
        pub bytes: u64,
        /// Records that were decoded.
        pub records: u64,
        /// Bytes of padding between records; what fills a record's cell up is the record's.
        pub padding: u64,
        /// Bytes that are no record that can be decoded.
        pub undecoded: u64,
        /// Their stretches, by [`BadKind`] of the first byte that is none.
        pub bad: [u64; BadKind::ALL.len()],
        /// Bytes that were not looked at, to bound the time with interrupts off.
        pub skipped: u64,
        /// Loads and stores with a zero address or timestamp.
        pub invalid: u64,
        /// Records without a known owner, by [`Unattributed`].
        pub unattributed: [u64; Unattributed::ALL.len()],
        /// Records that the row map had no room for: they are in the overflow rows.
        pub overflowed: u64,
        /// 0: user space adds the bytes of chunks that no program was shown.
        pub missed_bytes: u64,
        /// Bytes of chunks at whose end the program was not called: read at the end of the next
        /// one.
        pub late_bytes: u64,
        /// Chunks flagged TRUNCATED: the hardware lost data and was stopped.
        pub truncated: u64,
        /// Chunks flagged PARTIAL: their last record may be cut.
        pub partial: u64,
        /// Chunks flagged COLLISION: at least one sample in them was dropped because the one before
        /// it was in flight.
        pub collided: u64,
        /// Chunks that could not be read.
        pub unreadable: u64,
        /// Nanoseconds spent on chunks, interrupts off.
        pub nanos: u64,
        /// The longest of them since user space reset it.
        pub longest: u64,
        /// Entries that the timeline of switches took.
        pub switches: u64,
        /// Threads that the task map had no room for.
        pub unknown_threads: u64,
        /// Exits that were not told to user space: the thread stays in the task map.
        pub lost_exits: u64,
        /// Records that the table of pages did not take in: the kernel refused a new page.
        pub unpaged: u64,
        /// Loads and stores with an address and an owner, where the table of cache lines is kept.
        #[cfg_attr(feature = "serde", serde(default))]
        pub lined: u64,
        /// Those of them that the table did not take in: the kernel refused a new row.
        #[cfg_attr(feature = "serde", serde(default))]
        pub unlined: u64,
    }
}

impl SpeCpu {
    /// All that SPE wrote, as far as this account knows.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.bytes + self.missed_bytes
    }
}

/// Entries of the SETTINGS map, each one word that user space may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SpeSetting {
    /// Which of the two clocks holds.
    Clock = 0,
    /// Nanoseconds that a chunk may take: what does not fit is skipped.
    Nanos = 1,
}

impl SpeSetting {
    /// How many there are.
    pub const COUNT: u32 = 2;
}

words! {
    /// Key of the table of pages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PageKey {
        /// Virtual page number.
        pub page: u64,
        /// Process.
        pub tgid: u64,
    }
}

words! {
    /// Value of the table of pages; several CPUs add to it atomically.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PageRow {
        /// Samples.
        pub samples: u64,
        /// Those with a total latency.
        pub timed: u64,
        /// Cycles from dispatch to completion.
        pub cycles: u64,
        /// `CLOCK_MONOTONIC` nanoseconds when the page came into the table: the kernel drops pages
        /// that were not accessed lately. 0 for sums.
        pub made: u64,
    }
}

impl PageRow {
    /// The row of one sample.
    #[must_use]
    #[inline(always)]
    pub const fn of_sample(total: Option<u16>) -> Self {
        let mut row = Self {
            samples: 1,
            timed: 0,
            cycles: 0,
            made: 0,
        };
        if let Some(cycles) = total {
            row.timed = 1;
            row.cycles = cycles as u64;
        }
        row
    }
}
