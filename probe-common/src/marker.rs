//! The MARKERS ring: calls of the marker functions of `include/pmuscope.h` and of `tags`, with the
//! forks, execs and exits of the observed processes.

use crate::pod::pod;

/// Maximum size of a name in bytes, including the terminating zero; longer names are truncated.
pub const MARKER_NAME: usize = 128;

/// Bytes before the name in a record.
pub const MARKER_HEADER: usize = 40;

/// The length in place of a name that could not be read: it is not in the process's memory.
pub const UNREADABLE: u32 = u32::MAX;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MarkerKind {
    /// `tag_addr(name, start, end)`.
    Tag = 0,
    /// `start(name)`.
    Start = 1,
    /// `stop()`.
    Stop = 2,
    /// A process forked; `start` is the child's id.
    Fork = 3,
    /// The process executes another program.
    Exec = 4,
    /// The thread ends; `end` is 1 if it is the last thread of its process.
    Exit = 5,
}

impl MarkerKind {
    /// The kinds that programs call, with the names of the functions.
    pub const FUNCTIONS: [(Self, &'static str); 3] = [
        (Self::Tag, "pmuscope_tag_addr"),
        (Self::Start, "pmuscope_start"),
        (Self::Stop, "pmuscope_stop"),
    ];
}

/// A record of the ring, truncated after `len` bytes of the name.
#[repr(C)]
pub struct Marker {
    /// ns of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The first address of a tag's range; of a fork, the child's id.
    pub start: u64,
    /// The first address after a tag's range; of an exit, 1 for the last thread.
    pub end: u64,
    /// Process id in the initial pid namespace.
    pub tgid: u32,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// A [`MarkerKind`].
    pub kind: u32,
    /// Bytes of the name that follow, or [`UNREADABLE`].
    pub len: u32,
    /// The name, not terminated.
    pub name: [u8; MARKER_NAME],
}

const _: () = assert!(size_of::<Marker>() == MARKER_HEADER + MARKER_NAME);

/// A record as user space reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerRecord<'a> {
    /// ns of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Process id in the initial pid namespace.
    pub tgid: u32,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// What happened.
    pub what: MarkerEvent<'a>,
}

/// What happened, with the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerEvent<'a> {
    /// `tag_addr(name, start, end)`.
    Tag {
        /// None where the name could not be read.
        name: Option<&'a [u8]>,
        /// The first address of the range.
        start: u64,
        /// The first address after the range.
        end: u64,
    },
    /// `start(name)`.
    Start {
        /// None where the name could not be read.
        name: Option<&'a [u8]>,
    },
    /// `stop()`.
    Stop,
    /// The process forked this child.
    Fork(u32),
    /// The process executes another program.
    Exec,
    /// The thread ends.
    Exit {
        /// Whether it is the last thread of its process.
        last: bool,
    },
}

impl<'a> MarkerRecord<'a> {
    /// The record that the kernel wrote as `bytes`; None for an invalid one.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let (start, end) = (u64_at(8)?, u64_at(16)?);
        let name = match u32_at(36)? {
            UNREADABLE => None,
            len => Some(bytes.get(MARKER_HEADER..MARKER_HEADER + len as usize)?),
        };
        let what = match u32_at(32)? {
            0 => MarkerEvent::Tag { name, start, end },
            1 => MarkerEvent::Start { name },
            2 => MarkerEvent::Stop,
            3 => MarkerEvent::Fork(u32::try_from(start).ok()?),
            4 => MarkerEvent::Exec,
            5 => MarkerEvent::Exit { last: end != 0 },
            _ => return None,
        };
        Some(Self {
            time: u64_at(0)?,
            tgid: u32_at(24)?,
            tid: u32_at(28)?,
            what,
        })
    }
}

pod! {
    /// The record counts of a CPU.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MarkerCpu {
        /// Records written to the ring.
        pub written: u64,
        /// Records lost because the ring was full.
        pub lost: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, len: u32, name: &[u8]) -> ([u8; MARKER_HEADER + 8], usize) {
        let mut bytes = [0; MARKER_HEADER + 8];
        let longs = [7_u64, 0x1000, 0x2000].map(u64::to_ne_bytes);
        bytes[..24].copy_from_slice(longs.as_flattened());
        let words = [10_u32, 11, kind, len].map(u32::to_ne_bytes);
        bytes[24..40].copy_from_slice(words.as_flattened());
        bytes[40..40 + name.len()].copy_from_slice(name);
        (bytes, MARKER_HEADER + name.len())
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let (bytes, size) = record(0, 5, b"array");
        let tag = MarkerEvent::Tag {
            name: Some(b"array"),
            start: 0x1000,
            end: 0x2000,
        };
        let expected = |what| MarkerRecord {
            time: 7,
            tgid: 10,
            tid: 11,
            what,
        };
        assert_eq!(MarkerRecord::parse(&bytes[..size]), Some(expected(tag)));
        let (bytes, size) = record(1, UNREADABLE, b"");
        let start = MarkerEvent::Start { name: None };
        assert_eq!(MarkerRecord::parse(&bytes[..size]), Some(expected(start)));
        let (bytes, size) = record(3, 0, b"");
        let fork = MarkerEvent::Fork(0x1000);
        assert_eq!(MarkerRecord::parse(&bytes[..size]), Some(expected(fork)));
    }

    #[test]
    fn invalid_bytes_give_no_record() {
        let (bytes, _) = record(0, 9, b"array");
        assert_eq!(MarkerRecord::parse(&bytes), None, "the name is cut");
        assert_eq!(MarkerRecord::parse(&bytes[..39]), None);
        let (bytes, size) = record(6, 0, b"");
        assert_eq!(MarkerRecord::parse(&bytes[..size]), None);
    }
}
