//! Kinds of undecodable bytes, and their counts.

use crate::pod::Field;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum BadKind {
    /// A byte that begins no packet.
    Header = 0,
    /// An extended header whose second byte names no packet.
    ExtendedHeader = 1,
    /// The record has no end: the next record, or too many bytes, came first.
    Unterminated = 2,
    /// The data end within the record.
    CutShort = 3,
}

impl BadKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::Header,
        Self::ExtendedHeader,
        Self::Unterminated,
        Self::CutShort,
    ];

    /// The kind as a metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::ExtendedHeader => "extended_header",
            Self::Unterminated => "unterminated",
            Self::CutShort => "cut_short",
        }
    }
}

/// A record or stretch of bytes that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Offset in the data of the byte at which decoding stopped.
    pub at: usize,
    /// Why decoding stopped.
    pub kind: BadKind,
}

impl core::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let what = match self.kind {
            BadKind::Header => "a byte that begins no packet",
            BadKind::ExtendedHeader => "an extended header that names no packet",
            BadKind::Unterminated => "a record without an end",
            BadKind::CutShort => "a record cut short by the end of the data",
        };
        write!(
            f,
            "SPE data at byte {}: {what}; the record is left out",
            self.at
        )
    }
}

impl core::error::Error for BadRecord {}

/// Bad records by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BadCounts([u64; BadKind::ALL.len()]);

impl BadCounts {
    /// Counts one bad record of this kind.
    pub const fn add(&mut self, kind: BadKind) {
        let count = &mut self.0[kind as usize];
        *count = count.wrapping_add(1);
    }

    /// Number of bad records of this kind.
    #[must_use]
    pub const fn get(&self, kind: BadKind) -> u64 {
        self.0[kind as usize]
    }

    /// Number of bad records of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }
}

impl core::ops::AddAssign for BadCounts {
    fn add_assign(&mut self, other: Self) {
        Field::add(&mut self.0, &other.0);
    }
}
