//! An AUX buffer that the kernel overwrites for ever: user space maps it, so that it exists, and
//! never reads it.

use std::{io, os::fd::BorrowedFd};

use perf_event_open_sys::bindings;
use rustix::mm::ProtFlags;

use super::ring::{Mapping, Records};

/// The mapped buffer of an event, and the kernel's log of what it wrote there, where one is kept.
pub(crate) struct AuxBuffer {
    log: Records,
    _aux: Mapping,
}

/// What a log says since it was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Logged {
    /// Bytes that were written into the buffer.
    pub(crate) bytes: u64,
    /// Chunks that were flagged TRUNCATED, PARTIAL, and COLLISION.
    pub(crate) truncated: u64,
    pub(crate) partial: u64,
    pub(crate) collided: u64,
    /// Entries that the log had no room for.
    pub(crate) lost: u64,
}

impl AuxBuffer {
    /// Makes a buffer of `size` bytes, a power of two of pages, for a disabled event. Without a log
    /// (`log` of 0 bytes) the kernel writes no record of what it did there; with one, it writes one
    /// per chunk. It wakes nobody, because nobody waits.
    pub(crate) fn new(event: BorrowedFd<'_>, size: usize, log: usize) -> io::Result<Self> {
        let log = Records::map(event, log)?;
        let _aux = log.map_aux(event, size, ProtFlags::READ)?;
        Ok(Self { log, _aux })
    }

    /// What was written since the last call. Of an event with a `sample_type` of 0.
    pub(crate) fn logged(&mut self) -> Logged {
        let mut bytes = Vec::new();
        if self.log.size() > 0 {
            self.log.take(&mut bytes);
        }
        Logged::of(&bytes)
    }
}

impl Logged {
    /// Sums the records of a ring up (`linux/perf_event.h`, `enum perf_event_type`): 8 bytes of
    /// type, misc and size; of an AUX record the offset, size and flags follow, of a LOST one an id
    /// and the number.
    fn of(mut records: &[u8]) -> Self {
        let mut sum = Self::default();
        while let Some((kind, size)) = head(records) {
            let Some((record, rest)) = records.split_at_checked(size.max(8)) else {
                break;
            };
            records = rest;
            match kind {
                bindings::PERF_RECORD_AUX => {
                    let flags = word(record, 24);
                    let set = |flag: u32| u64::from(flags & u64::from(flag) != 0);
                    sum.bytes += word(record, 16);
                    sum.truncated += set(bindings::PERF_AUX_FLAG_TRUNCATED);
                    sum.partial += set(bindings::PERF_AUX_FLAG_PARTIAL);
                    sum.collided += set(bindings::PERF_AUX_FLAG_COLLISION);
                }
                bindings::PERF_RECORD_LOST => sum.lost += word(record, 16),
                _ => {}
            }
        }
        sum
    }
}

/// Type and size of the record that begins here.
fn head(records: &[u8]) -> Option<(u32, usize)> {
    let kind = records.first_chunk::<4>()?;
    let size = records.get(6..8)?.first_chunk::<2>()?;
    Some((u32::from_ne_bytes(*kind), u16::from_ne_bytes(*size).into()))
}

/// The word at an offset; 0 where the record ends before.
fn word(record: &[u8], at: usize) -> u64 {
    let bytes = record.get(at..).and_then(<[u8]>::first_chunk::<8>);
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = u16::try_from(8 + 8 * words.len()).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_log_is_summed_up() {
        let log = [
            record(bindings::PERF_RECORD_AUX, &[0, 4096, 2]),
            record(bindings::PERF_RECORD_ITRACE_START, &[7]),
            record(bindings::PERF_RECORD_AUX, &[4096, 64, 2 | 1 | 4]),
            record(bindings::PERF_RECORD_LOST, &[9, 3]),
            record(bindings::PERF_RECORD_AUX, &[4160, 0, 2 | 8]),
        ];
        let expected = Logged {
            bytes: 4160,
            truncated: 1,
            partial: 1,
            collided: 1,
            lost: 3,
        };
        assert_eq!(Logged::of(&log.concat()), expected);
        // What ends in the middle of a record is left alone.
        assert_eq!(Logged::of(&log.concat()[..30]), Logged::default());
    }
}
