//! The maps of the kernel's SPE accounting: rows of samples by owner and data source ([`SpeKey`],
//! [`SpeRow`]), and the accounting of every byte that SPE wrote ([`SpeCpu`]).

use super::{BadKind, SpeAccess};
use crate::{CgroupId, pod::pod};

/// Buckets of the latency histogram: one each for 0 and 1, then two for each power of two, split at
/// one and a half times that power. Together they cover all 16-bit values.
pub const LATENCY_BUCKETS: usize = 32;

pod! {
    /// Key of a row. It includes the CPU, so no row is written by two CPUs and plain adds suffice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SpeKey {
        /// Owner of the samples; [`SpeKey::UNATTRIBUTED`] if unknown.
        pub cgroup: CgroupId,
        /// Process id in the initial pid namespace; 0 unless counting by process.
        pub tgid: u32,
        /// CPU number.
        pub cpu: u16,
        /// Class of operation and data source.
        pub access: SpeAccess,
    }
}

impl SpeKey {
    /// Owner of the samples of unknown threads.
    pub const UNATTRIBUTED: CgroupId = CgroupId(u64::MAX - 3);
}

pod! {
    /// A latency in cycles, summed over samples.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LatencySum {
        /// Sum of the latencies.
        pub cycles: u64,
        /// Sum of the squared latencies, for the error of the mean.
        pub squares: u64,
    }
}

impl LatencySum {
    /// Adds the latency of a sample.
    #[inline(always)]
    pub const fn add(&mut self, cycles: u16) {
        let cycles = cycles as u64;
        self.cycles = self.cycles.wrapping_add(cycles);
        self.squares = self.squares.wrapping_add(cycles.wrapping_mul(cycles));
    }
}

pod! {
    /// Value of a row: samples since sampling began. A row takes 248 bytes, including its key and
    /// the kernel's own 56 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeRow {
        /// Samples.
        pub samples: u64,
        /// Samples that needed a translation table walk.
        pub walks: u64,
        /// Latency from dispatch to completion.
        pub total: LatencySum,
        /// Cycles from dispatch to issue.
        pub issue: u64,
        /// Cycles of address translation.
        pub translation: u64,
        /// Samples by total latency; a sample without a latency is in no bucket. The counts wrap:
        /// user space reads a row more often than a CPU can take 2^32 samples.
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

/// Why the owner of a record is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unattributed {
    /// The record names no thread, and it has no time or there is no timeline of switches.
    NoThread = 0,
    /// The thread that the record names is unknown.
    UnknownThread = 1,
    /// The record is older than the last two changes of the thread's owner.
    TooOld = 2,
    /// The record names no thread, and the timeline does not reach back to it.
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

pod! {
    /// Accounting of everything that SPE wrote on a CPU. Only programs that run on that CPU write
    /// it.
    ///
    /// `bytes` is the sum of the records' bytes, `padding`, `undecoded` and `skipped`; `records` is
    /// the sum of all rows' samples, including unattributed and overflowed ones, and of `invalid`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeCpu {
        /// Id of the event that writes the chunks.
        pub event: u64,
        /// End of that event's last chunk in the AUX buffer.
        pub next: u64,
        /// Chunks handed over to the program.
        pub chunks: u64,
        /// Bytes of these chunks, and late bytes.
        pub bytes: u64,
        /// Decoded records.
        pub records: u64,
        /// Bytes of padding between records; padding that fills up a record's cell counts as part
        /// of the record.
        pub padding: u64,
        /// Bytes that could not be decoded.
        pub undecoded: u64,
        /// Stretches of undecoded bytes, by [`BadKind`] of the first bad byte.
        pub bad: [u64; BadKind::ALL.len()],
        /// Bytes that were not looked at, to bound the time with interrupts off.
        pub skipped: u64,
        /// Loads and stores with a zero address or timestamp.
        pub invalid: u64,
        /// Records without a known owner, by [`Unattributed`].
        pub unattributed: [u64; Unattributed::ALL.len()],
        /// Records in the overflow rows, because the row map was full.
        pub overflowed: u64,
        /// Bytes of chunks that no program saw. 0 in the map: user space adds them.
        pub missed_bytes: u64,
        /// Bytes of chunks without a call of the program at their end: they were read at the end of
        /// the next chunk.
        pub late_bytes: u64,
        /// Chunks flagged TRUNCATED: the hardware lost data and was stopped.
        pub truncated: u64,
        /// Chunks flagged PARTIAL: their last record may be incomplete.
        pub partial: u64,
        /// Chunks flagged COLLISION: at least one of their samples was dropped because the previous
        /// sample was in flight.
        pub collided: u64,
        /// Chunks that could not be read.
        pub unreadable: u64,
        /// Nanoseconds spent on chunks, interrupts off.
        pub nanos: u64,
        /// Longest time spent on a chunk since user space reset it, in nanoseconds.
        pub longest: u64,
        /// Entries added to the timeline of switches.
        pub switches: u64,
        /// Threads that did not fit into the task map.
        pub unknown_threads: u64,
        /// Thread exits not reported to user space: the thread stays in the task map.
        pub lost_exits: u64,
        /// Records missing in the table of pages, because the kernel refused a new page.
        pub unpaged: u64,
        /// Loads and stores with an address and an owner, if the table of cache lines is kept.
        #[cfg_attr(feature = "serde", serde(default))]
        pub lined: u64,
        /// Loads and stores missing in the table of cache lines, because the kernel refused a new
        /// row.
        #[cfg_attr(feature = "serde", serde(default))]
        pub unlined: u64,
    }
}

impl SpeCpu {
    /// All bytes that SPE is known to have written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.bytes + self.missed_bytes
    }
}

/// Entries of the SETTINGS map, each one word that user space may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SpeSetting {
    /// Which of the two clocks is valid.
    Clock = 0,
    /// Time limit of a chunk in nanoseconds: bytes that would take longer are skipped.
    Nanos = 1,
}

impl SpeSetting {
    /// Number of settings.
    pub const COUNT: u32 = 2;
}

pod! {
    /// Key of the table of pages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PageKey {
        /// Virtual page number.
        pub page: u64,
        /// Process id in the initial pid namespace.
        pub tgid: u64,
    }
}

pod! {
    /// Value of the table of pages; several CPUs add to it atomically.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PageRow {
        /// Samples.
        pub samples: u64,
        /// Samples with a total latency.
        pub timed: u64,
        /// Cycles from dispatch to completion.
        pub cycles: u64,
        /// `CLOCK_MONOTONIC` nanoseconds when the page was added to the table: the kernel evicts
        /// pages that were not accessed recently. 0 for sums.
        pub made: u64,
    }
}

impl PageRow {
    /// The row of one sample.
    #[must_use]
    #[inline(always)]
    pub const fn from_sample(total: Option<u16>) -> Self {
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
