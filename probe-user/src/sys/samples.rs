//! Records of events that sample memory accesses: samples of one layout, and losses
//! (`linux/perf_event.h`, `PERF_RECORD_SAMPLE`).

use bytes::{Buf as _, TryGetError};
use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::{
    records::{ParseRecord, RecordIter},
    wire::{self, SAMPLE_TYPE},
};

/// Fields of samples in addition to task, time and CPU.
const FIELDS: u64 = (bindings::PERF_SAMPLE_IP
    | bindings::PERF_SAMPLE_ADDR
    | bindings::PERF_SAMPLE_WEIGHT
    | bindings::PERF_SAMPLE_DATA_SRC
    | bindings::PERF_SAMPLE_CGROUP) as u64;

/// Attributes of an event with such samples; its records are stamped with `CLOCK_MONOTONIC`.
pub(crate) fn attr() -> perf_event_attr {
    let mut attr = wire::base_attr();
    attr.sample_type = SAMPLE_TYPE | FIELDS;
    use_monotonic_clock(&mut attr);
    attr
}

/// Stamps the records of an event with the kernel's `CLOCK_MONOTONIC`.
pub(crate) fn use_monotonic_clock(attr: &mut perf_event_attr) {
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
}

/// A sample of a memory access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccessSample {
    /// Address of the instruction.
    pub(crate) pc: u64,
    /// Process id; 0 for an idle CPU or a process outside of this pid namespace, `u32::MAX` if the
    /// task has ended.
    pub(crate) pid: u32,
    /// Thread id, with the same special values as `pid`.
    pub(crate) tid: u32,
    /// ns of `CLOCK_MONOTONIC`.
    pub(crate) time: u64,
    /// Virtual address of the data; 0 if unknown.
    pub(crate) address: u64,
    pub(crate) cpu: u32,
    /// Latency in cycles; 0 if unknown.
    pub(crate) weight: u64,
    /// `perf_mem_data_src`
    pub(crate) data_source: u64,
    /// Id of the cgroup (kernel 5.7).
    pub(crate) cgroup: u64,
}

/// A record of a ring of memory-access samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessRecord {
    Sample(AccessSample),
    /// Number of records lost because the ring was full.
    Lost(u64),
    /// Number of samples that the core dropped.
    Dropped(u64),
    /// The kernel stopped the event until its next tick, because of too many samples.
    Throttled,
    Other,
}

/// Iterates over the records in bytes taken from a ring of memory-access samples.
pub(crate) type AccessRecords<'a> = RecordIter<'a, AccessRecord>;

impl ParseRecord<'_> for AccessRecord {
    fn read(kind: u32, _misc: u16, body: &[u8]) -> Option<Self> {
        parse(kind, body).ok()
    }
}

fn parse(kind: u32, mut body: &[u8]) -> Result<AccessRecord, TryGetError> {
    Ok(match kind {
        bindings::PERF_RECORD_SAMPLE => AccessRecord::Sample(sample(body)?),
        bindings::PERF_RECORD_LOST => {
            let _id = body.try_get_u64_ne()?;
            AccessRecord::Lost(body.try_get_u64_ne()?)
        }
        bindings::PERF_RECORD_LOST_SAMPLES => AccessRecord::Dropped(body.try_get_u64_ne()?),
        bindings::PERF_RECORD_THROTTLE => AccessRecord::Throttled,
        _ => AccessRecord::Other,
    })
}

/// Parses a sample. Its fields are in the order of the kernel's `perf_output_sample`.
fn sample(mut body: &[u8]) -> Result<AccessSample, TryGetError> {
    let _identifier = body.try_get_u64_ne()?;
    let pc = body.try_get_u64_ne()?;
    let (pid, tid) = (body.try_get_u32_ne()?, body.try_get_u32_ne()?);
    let time = body.try_get_u64_ne()?;
    let address = body.try_get_u64_ne()?;
    let cpu = body.try_get_u32_ne()?;
    let _reserved = body.try_get_u32_ne()?;
    Ok(AccessSample {
        pc,
        pid,
        tid,
        time,
        address,
        cpu,
        weight: body.try_get_u64_ne()?,
        data_source: body.try_get_u64_ne()?,
        cgroup: body.try_get_u64_ne()?,
    })
}

/// Records as the kernel writes them.
#[cfg(test)]
pub(crate) mod build {
    use super::*;
    use crate::sys::records::{
        self,
        body::{words, words32},
    };

    pub(crate) fn sample(access: &AccessSample) -> Vec<u8> {
        let body = [
            words(&[7, access.pc]),
            words32(&[access.pid, access.tid]),
            words(&[access.time, access.address]),
            words32(&[access.cpu, 0]),
            words(&[access.weight, access.data_source, access.cgroup]),
        ];
        record(bindings::PERF_RECORD_SAMPLE, &body.concat())
    }

    /// A record; `body` includes the trailer, if any.
    pub(crate) fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        records::put(&mut record, (kind, 0), body, &[]);
        record
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{build::record, *};
    use crate::sys::records::{HEADER, body::words};

    #[test]
    fn samples_and_losses_are_read() {
        let access = AccessSample {
            pc: 1,
            pid: 2,
            tid: 3,
            time: 4,
            address: 5,
            cpu: 6,
            weight: 7,
            data_source: 8,
            cgroup: 9,
        };
        let trailer = [0; 4];
        let lost = [&[7, 12], &trailer[..]].concat();
        let dropped = [&[3], &trailer[..]].concat();
        let bytes = [
            build::sample(&access),
            record(bindings::PERF_RECORD_LOST, &words(&lost)),
            record(bindings::PERF_RECORD_LOST_SAMPLES, &words(&dropped)),
            record(bindings::PERF_RECORD_THROTTLE, &words(&[0; 7])),
            record(bindings::PERF_RECORD_UNTHROTTLE, &words(&[0; 7])),
        ];
        let bytes = bytes.concat();
        let mut samples = AccessRecords::new(&bytes);
        let items: Vec<AccessRecord> = samples.by_ref().collect();
        let expected = [
            AccessRecord::Sample(access),
            AccessRecord::Lost(12),
            AccessRecord::Dropped(3),
            AccessRecord::Throttled,
            AccessRecord::Other,
        ];
        assert_eq!((&items[..], samples.damaged), (&expected[..], 0));
    }

    proptest! {
        #[test]
        fn every_byte_is_a_record_or_damage(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            kind in 0..20_u32,
            size in 0..200_u16,
        ) {
            let mut bytes = bytes;
            if bytes.len() >= HEADER {
                bytes[..4].copy_from_slice(&kind.to_ne_bytes());
                bytes[6..8].copy_from_slice(&size.to_ne_bytes());
            }
            let mut samples = AccessRecords::new(&bytes);
            let count = samples.by_ref().count();
            prop_assert!(samples.damaged + count * HEADER <= bytes.len());
            prop_assert!(count > 0 || samples.damaged == bytes.len());
        }
    }
}
