//! A file of a PMU's `format/` directory: the bits of a config word that a term fills.
//!
//! The file holds text such as `config1:0-7,32-35`. By the kernel's ABI document
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-format) the value's lowest bit goes to
//! the lowest bit named, so the ranges form a mask.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use thiserror::Error;

/// A config word of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// `config`
    Config,
    /// `config1`
    Config1,
    /// `config2`
    Config2,
    /// `config3`, since Linux 6.3
    Config3,
    /// `config4`, since Linux 6.18
    Config4,
}

impl Word {
    /// All five words, in their order.
    pub const ALL: [Self; 5] = [
        Self::Config,
        Self::Config1,
        Self::Config2,
        Self::Config3,
        Self::Config4,
    ];

    /// The word of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name() == name)
    }

    /// The word's name in `format/` files and in terms.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Config1 => "config1",
            Self::Config2 => "config2",
            Self::Config3 => "config3",
            Self::Config4 => "config4",
        }
    }
}

/// The bits that a term fills; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldFormat {
    word: Word,
    mask: u64,
}

impl FieldFormat {
    /// The word that holds the bits.
    #[must_use]
    pub fn word(self) -> Word {
        self.word
    }

    /// The bits of the word, as a mask.
    #[must_use]
    pub fn mask(self) -> u64 {
        self.mask
    }

    /// Number of bits, 1 to 64.
    #[must_use]
    pub fn width(self) -> u32 {
        self.mask.count_ones()
    }

    /// The largest value the term takes.
    #[must_use]
    pub fn max(self) -> u64 {
        u64::MAX >> (64 - self.width())
    }

    /// Spreads `value` over the bits of the term; `None` if it does not fit.
    #[must_use]
    pub fn scatter(self, value: u64) -> Option<u64> {
        if value > self.max() {
            return None;
        }
        let mut word = 0;
        for (i, bit) in bits(self.mask).enumerate() {
            word |= (value >> i & 1) << bit;
        }
        Some(word)
    }

    /// Extracts the value that [`FieldFormat::scatter`] spread over `word`; other bits are ignored.
    #[must_use]
    pub fn gather(self, word: u64) -> u64 {
        let mut value = 0;
        for (i, bit) in bits(self.mask).enumerate() {
            value |= (word >> bit & 1) << i;
        }
        value
    }
}

/// The numbers of the set bits, lowest first.
fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |bit| mask >> bit & 1 == 1)
}

/// Prints the form of the file: `config:0-7,32-35`.
impl fmt::Display for FieldFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits: Vec<u32> = bits(self.mask).collect();
        write!(f, "{}", self.word.name())?;
        for (i, run) in bits.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let separator = if i == 0 { ":" } else { "," };
            match run {
                [] => {}
                [only] => write!(f, "{separator}{only}")?,
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// Why the text of a format file is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// It does not start with a config word.
    #[error("a format starts with config, config1, config2, config3 or config4 and a colon")]
    Word,
    /// The text behind the colon is no list of bits.
    #[error("the bits of a format are numbers or rising ranges from 0 to 63, separated by commas")]
    Bits,
}

impl FromStr for FieldFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let (word, ranges) = text.split_once(':').ok_or(FormatError::Word)?;
        let word = Word::named(word).ok_or(FormatError::Word)?;
        let mut mask = 0;
        for part in ranges.split(',') {
            for bit in range(part).ok_or(FormatError::Bits)? {
                mask |= 1 << bit;
            }
        }
        Ok(Self { word, mask })
    }
}

/// Parses a bit or a range of bits. The range is never empty.
fn range(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let bit = |digits: &str| -> Option<u32> {
        let is_number = digits.bytes().all(|b| b.is_ascii_digit());
        digits
            .parse()
            .ok()
            .filter(|bit| is_number && *bit < u64::BITS)
    };
    let (first, last) = (bit(first)?, bit(last)?);
    (first <= last).then_some(first..=last)
}
