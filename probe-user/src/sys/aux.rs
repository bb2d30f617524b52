//! An AUX buffer in overwrite mode: it exists only while user space maps it, but user space never
//! reads it.

use std::{io, os::fd::BorrowedFd};

use perf_event_open_sys::bindings;
use rustix::mm::ProtFlags;

use super::{
    records::{PerfRecord, PerfRecords},
    ring::{RecordRing, SharedMapping},
};

/// The mapped AUX buffer of an event, and the ring of records about it, which may have size 0.
pub(crate) struct AuxBuffer {
    ring: RecordRing,
    _aux: SharedMapping,
}

/// Sums of the records since the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuxTotals {
    /// Number of bytes written into the buffer.
    pub(crate) bytes: u64,
    /// Number of chunks flagged `PERF_AUX_FLAG_TRUNCATED`.
    pub(crate) truncated: u64,
    /// Number of chunks flagged `PERF_AUX_FLAG_PARTIAL`.
    pub(crate) partial: u64,
    /// Number of chunks flagged `PERF_AUX_FLAG_COLLISION`.
    pub(crate) collided: u64,
    /// Number of records that did not fit the ring, plus one if there are damaged records.
    pub(crate) lost: u64,
}

impl AuxBuffer {
    /// Maps a buffer of `size` bytes, a power of two of pages, for a disabled event. `ring_size` is
    /// the size of the ring in bytes: the kernel writes one record per chunk, or none if it is 0.
    /// The event wakes no reader.
    pub(crate) fn new(event: BorrowedFd<'_>, size: usize, ring_size: usize) -> io::Result<Self> {
        let ring = RecordRing::map(event, ring_size)?;
        let _aux = ring.map_aux(event, size, ProtFlags::READ)?;
        Ok(Self { ring, _aux })
    }

    /// Sums the records since the last call. The event must have a `sample_type` of 0.
    pub(crate) fn take_totals(&mut self) -> AuxTotals {
        let mut bytes = Vec::new();
        if self.ring.size() > 0 {
            self.ring.take(&mut bytes);
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
                    let is_set = |flag: u32| u64::from(flags & u64::from(flag) != 0);
                    sum.bytes += size;
                    sum.truncated += is_set(bindings::PERF_AUX_FLAG_TRUNCATED);
                    sum.partial += is_set(bindings::PERF_AUX_FLAG_PARTIAL);
                    sum.collided += is_set(bindings::PERF_AUX_FLAG_COLLISION);
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
    fn records_about_chunks_are_summed() {
        // Offset, size and flags: 2 (OVERWRITE), 1 (TRUNCATED), 4 (PARTIAL), 8 (COLLISION).
        let records = [
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
        assert_eq!(AuxTotals::from_records(&records.concat()), expected);
        // A record that is cut off counts as one loss.
        let damaged = AuxTotals {
            lost: 1,
            ..AuxTotals::default()
        };
        assert_eq!(AuxTotals::from_records(&records.concat()[..30]), damaged);
    }
}
