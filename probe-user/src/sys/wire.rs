//! Attributes that all events with a ring share, so that each record has task, time and CPU. Also
//! the attributes of the dummy event that tracks processes.

use bytes::{Buf as _, BufMut as _};
use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::{perf::ATTR_SIZE, records::PerfRecords};

/// `perf_event_attr.sample_type` of every event here; with `sample_id_all` it determines the layout
/// of the trailer of every record.
pub(crate) const SAMPLE_TYPE: u64 = (bindings::PERF_SAMPLE_TID
    | bindings::PERF_SAMPLE_TIME
    | bindings::PERF_SAMPLE_CPU
    | bindings::PERF_SAMPLE_IDENTIFIER) as u64;

/// Size of the trailer: pid and tid, time, CPU and padding, identifier.
const TRAILER: usize = 32;

/// The records of a ring, with their trailers.
pub(crate) type StampedRecords<'a> = PerfRecords<'a, TRAILER>;

/// Attributes that all these events share. They determine the trailer of the records.
pub(crate) fn base_attr() -> perf_event_attr {
    let mut attr = perf_event_attr {
        sample_type: SAMPLE_TYPE,
        ..Default::default()
    };
    attr.size = ATTR_SIZE;
    attr.set_sample_id_all(1);
    attr.set_disabled(1);
    attr
}

/// Attributes of the dummy event that tracks processes: names, forks, exits, and mappings of code
/// but not of data.
pub(crate) fn tracking_attr() -> perf_event_attr {
    let mut attr = base_attr();
    attr.type_ = bindings::PERF_TYPE_SOFTWARE;
    attr.config = u64::from(bindings::PERF_COUNT_SW_DUMMY);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_build_id(1);
    attr
}

/// Task, time and CPU of a record, from its trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// ns of perf's clock.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
}

impl Stamp {
    pub(crate) fn parse(trailer: &[u8; TRAILER]) -> Self {
        let mut trailer = &trailer[..];
        Self {
            pid: trailer.get_u32_ne(),
            tid: trailer.get_u32_ne(),
            time: trailer.get_u64_ne(),
            cpu: trailer.get_u32_ne(),
        }
    }

    /// The trailer of a record of the event with this id.
    pub(crate) fn trailer(self, id: u64) -> Vec<u8> {
        let mut trailer = Vec::with_capacity(TRAILER);
        trailer.put_u32_ne(self.pid);
        trailer.put_u32_ne(self.tid);
        trailer.put_u64_ne(self.time);
        trailer.put_u32_ne(self.cpu);
        trailer.put_u32_ne(0);
        trailer.put_u64_ne(id);
        trailer
    }
}

/// Records as the kernel writes them, for tests.
#[cfg(test)]
pub(crate) mod build {
    use super::Stamp;
    use crate::sys::records;
    pub(crate) use crate::sys::records::body::{words, words32};

    pub(crate) fn record(kind: u32, body: &[u8], stamp: Stamp) -> Vec<u8> {
        let mut record = Vec::new();
        records::put(&mut record, (kind, 0), body, &stamp.trailer(7));
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_read_as_it_was_written() {
        let stamp = Stamp {
            pid: 3,
            tid: 4,
            time: 5,
            cpu: 6,
        };
        let trailer = stamp.trailer(7);
        assert_eq!(Stamp::parse(trailer.first_chunk().unwrap()), stamp);
        assert_eq!(trailer.len(), TRAILER);
    }
}
