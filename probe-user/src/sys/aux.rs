//! An AUX buffer in overwrite mode: user space maps it so that it exists, and never reads it.

use std::{io, os::fd::BorrowedFd};

use perf_event_open_sys::bindings;
use rustix::mm::ProtFlags;

use super::{
    records::{PerfRecord, PerfRecords},
    ring::{RecordRing, SharedMapping},
};

/// The mapped AUX buffer of an event, and the ring of records about it, if one was asked for.
pub(crate) struct AuxBuffer {
    log: RecordRing,
    _aux: SharedMapping,
}

/// Sums of the records since the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuxTotals {
    /// Bytes written into the buffer.
    pub(crate) bytes: u64,
    /// Chunks flagged TRUNCATED; the next two count PARTIAL and COLLISION.
    pub(crate) truncated: u64,
    pub(crate) partial: u64,
    pub(crate) collided: u64,
    /// Records that did not fit the ring, and one more if any is damaged.
    pub(crate) lost: u64,
}

impl AuxBuffer {
    /// Maps a buffer of `size` bytes, a power of two of pages, for a disabled event. `log` is the
    /// size of the ring in bytes: the kernel writes one record per chunk, or none if `log` is 0.
    /// The event wakes no reader.
    pub(crate) fn new(event: BorrowedFd<'_>, size: usize, log: usize) -> io::Result<Self> {
        let log = RecordRing::map(event, log)?;
        let _aux = log.map_aux(event, size, ProtFlags::READ)?;
        Ok(Self { log, _aux })
    }

    /// Sums the records since the last call. The event must have a `sample_type` of 0.
    pub(crate) fn take_totals(&mut self) -> AuxTotals {
        let mut bytes = Vec::new();
        if self.log.size() > 0 {
            self.log.take(&mut bytes);
        }
        AuxTotals::from_records(&bytes)
    }
}

impl AuxTotals {
    /// Sums the records of a ring.
    fn from_records(records: &[u8]) -> Self {
        let mut sum = Self::default();
        let mut parsed = PerfRecords::<0>::new(records);
        for (record, _) in parsed.by_ref() {
            match record {
                PerfRecord::Aux { size, flags, .. } => {
                    let set = |flag: u32| u64::from(flags & u64::from(flag) != 0);
                    sum.bytes += size;
                    sum.truncated += set(bindings::PERF_AUX_FLAG_TRUNCATED);
                    sum.partial += set(bindings::PERF_AUX_FLAG_PARTIAL);
                    sum.collided += set(bindings::PERF_AUX_FLAG_COLLISION);
                }
                PerfRecord::Lost(count) => sum.lost += count,
                _ => {}
            }
        }
        // The content of damaged records is unknown.
        sum.lost += u64::from(parsed.damaged > 0);
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
        let expected = AuxTotals {
            bytes: 4160,
            truncated: 1,
            partial: 1,
            collided: 1,
            lost: 3,
        };
        assert_eq!(AuxTotals::from_records(&log.concat()), expected);
        // A record that is cut off counts as one loss.
        let damaged = AuxTotals {
            lost: 1,
            ..AuxTotals::default()
        };
        assert_eq!(AuxTotals::from_records(&log.concat()[..30]), damaged);
    }
}
