//! The fields that every event of a recording asks for: task, time and CPU of each record.

use bytes::{Buf as _, BufMut as _};
use perf_event_open_sys::bindings;

use crate::sys::records::Events;

/// `perf_event_attr.sample_type` of every event here; with `sample_id_all` it determines the layout
/// of the trailer of every record.
pub(super) const SAMPLE_TYPE: u64 = (bindings::PERF_SAMPLE_TID
    | bindings::PERF_SAMPLE_TIME
    | bindings::PERF_SAMPLE_CPU
    | bindings::PERF_SAMPLE_IDENTIFIER) as u64;

/// Size of the trailer: pid and tid, time, CPU and padding, identifier.
const TRAILER: usize = 32;

/// The records of a recording's rings.
pub(super) type StampedEvents<'a> = Events<'a, TRAILER>;

/// Task, time and CPU, from the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// ns of perf's clock.
    pub(super) time: u64,
    pub(super) cpu: u32,
}

impl Stamp {
    pub(super) fn of(trailer: &[u8; TRAILER]) -> Self {
        let mut trailer = &trailer[..];
        Self {
            pid: trailer.get_u32_ne(),
            tid: trailer.get_u32_ne(),
            time: trailer.get_u64_ne(),
            cpu: trailer.get_u32_ne(),
        }
    }

    /// The trailer of a record of the event with this id.
    pub(super) fn trailer(self, id: u64) -> Vec<u8> {
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

/// Records as the kernel makes them, for the tests of the stages behind this one.
#[cfg(test)]
pub(super) mod build {
    use super::Stamp;
    use crate::sys::records;
    pub(in super::super) use crate::sys::records::body::{words, words32};

    pub(in super::super) fn record(kind: u32, body: &[u8], stamp: Stamp) -> Vec<u8> {
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
        assert_eq!(Stamp::of(trailer.first_chunk().unwrap()), stamp);
        assert_eq!(trailer.len(), TRAILER);
    }
}
