//! An AUX buffer that the kernel overwrites for ever: user space maps it, so that it exists, and
//! never reads it.

use std::{io, os::fd::BorrowedFd};

use perf_event_open_sys::bindings;
use rustix::mm::ProtFlags;

use super::{
    records::{Event, Events},
    ring::{Mapping, Records},
};

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
    /// Entries that the log had no room for, or that are damaged.
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
    /// Sums the records of a ring up.
    fn of(records: &[u8]) -> Self {
        let mut sum = Self::default();
        let mut events = Events::<0>::new(records);
        for (event, _) in events.by_ref() {
            match event {
                Event::Aux { size, flags, .. } => {
                    let set = |flag: u32| u64::from(flags & u64::from(flag) != 0);
                    sum.bytes += size;
                    sum.truncated += set(bindings::PERF_AUX_FLAG_TRUNCATED);
                    sum.partial += set(bindings::PERF_AUX_FLAG_PARTIAL);
                    sum.collided += set(bindings::PERF_AUX_FLAG_COLLISION);
                }
                Event::Lost(count) => sum.lost += count,
                _ => {}
            }
        }
        // Whatever they said is missing.
        sum.lost += u64::from(events.damaged > 0);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::records;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let mut record = Vec::new();
        records::put(&mut record, (kind, 0), &records::body::words(words), &[]);
        record
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
        // What ends in the middle of a record says nothing, and that is counted.
        let damaged = Logged {
            lost: 1,
            ..Logged::default()
        };
        assert_eq!(Logged::of(&log.concat()[..30]), damaged);
    }
}
