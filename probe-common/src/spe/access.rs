//! The class of operation and the data source of a sample, as row keys hold them.

use super::{Operation, Record};
use crate::pod::number;

/// The class of a sampled operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Class {
    /// Reads memory. An atomic that returns a value counts as a load, though it also writes: its
    /// packet has LDST = 0 (DDI 0487, D18.2, Operation Type packet).
    Load = 0,
    /// Writes memory, or an atomic that returns no value.
    Store = 1,
    /// A branch.
    Branch = 2,
    /// None of these, or unknown.
    Other = 3,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Load, Self::Store, Self::Branch, Self::Other];

    /// The class of a record.
    #[must_use]
    #[inline(always)]
    pub fn from_record(record: &Record) -> Self {
        match record.operation() {
            Some(Operation::LoadStore(access)) if access.is_store() => Self::Store,
            Some(Operation::LoadStore(_)) => Self::Load,
            Some(Operation::Branch(_)) => Self::Branch,
            _ => Self::Other,
        }
    }

    /// Whether it is a load or store whose virtual address or timestamp is zero. No real access has
    /// such zeros; the NMO paper skips such records too (section IV).
    #[must_use]
    #[inline(always)]
    pub fn is_invalid(self, record: &Record) -> bool {
        let no_address = || {
            record
                .virtual_address()
                .is_some_and(|address| address.raw() == 0)
        };
        matches!(self, Self::Load | Self::Store) && (no_address() || record.timestamp() == Some(0))
    }

    /// The class as a metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Branch => "branch",
            Self::Other => "other",
        }
    }
}

/// Class and data-source number, packed into 16 bits of a row's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(transparent)]
pub struct SpeAccess(pub(super) u16);

number!(SpeAccess);

impl SpeAccess {
    /// No data-source packet.
    const NONE: u16 = 0x3fff;

    /// Packs class and data source. Data-source numbers above 0x3ffe, which no core has, become
    /// 0x3ffe.
    #[must_use]
    #[inline(always)]
    pub const fn new(class: Class, source: Option<u64>) -> Self {
        let source = match source {
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            Some(number) if number < Self::NONE as u64 => number as u16,
            Some(_) => Self::NONE - 1,
            None => Self::NONE,
        };
        Self((class as u16) << 14 | source)
    }

    /// The class of operation.
    #[must_use]
    pub const fn class(self) -> Class {
        match self.0 >> 14 {
            0 => Class::Load,
            1 => Class::Store,
            2 => Class::Branch,
            _ => Class::Other,
        }
    }

    /// The core's data-source number; None where the record had none.
    #[must_use]
    pub const fn source(self) -> Option<u64> {
        match self.0 & Self::NONE {
            Self::NONE => None,
            number => Some(number as u64),
        }
    }
}
