//! The records that the kernel writes into a perf ring (`linux/perf_event.h`, `enum
//! perf_event_type`), as far as recording needs them, each with the trailer that `sample_id_all`
//! asks for.

use bytes::{Buf as _, TryGetError};
use perf_event_open_sys::bindings;

/// What every event here asks for in `perf_event_attr.sample_type`; it fixes the trailer's layout.
pub(super) const SAMPLE_TYPE: u64 = (bindings::PERF_SAMPLE_TID
    | bindings::PERF_SAMPLE_TIME
    | bindings::PERF_SAMPLE_CPU
    | bindings::PERF_SAMPLE_IDENTIFIER) as u64;

/// Header of a record: type, misc, size.
const HEADER: usize = 8;

/// The trailer: pid and tid, time, CPU and padding, identifier.
const TRAILER: usize = 32;

/// Who and when, from the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// ns of perf's clock.
    pub(super) time: u64,
    pub(super) cpu: u32,
}

/// A thread that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// The thread that made it.
    pub(super) parent_tid: u32,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// Bytes were added to the AUX area.
    Aux {
        offset: u64,
        size: u64,
        flags: u64,
    },
    /// The ring was full: so many records are missing before this one.
    Lost(u64),
    /// A thread has a new name.
    Comm {
        pid: u32,
        tid: u32,
        name: &'a [u8],
    },
    Fork(Task),
    Exit(Task),
    /// Anything else: mappings, starts, throttling.
    Other,
}

/// Iterates over the records in the bytes taken from a ring. Bytes that are no record end it.
pub(super) struct Events<'a> {
    rest: &'a [u8],
    /// Bytes that could not be read as records.
    pub(super) damaged: usize,
}

impl<'a> Events<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            damaged: 0,
        }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = (Event<'a>, Stamp);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((event, size)) = parse(self.rest) else {
            self.damaged += self.rest.len();
            self.rest = &[];
            return None;
        };
        self.rest = &self.rest[size..];
        Some(event)
    }
}

/// The record that the bytes begin with, and its size; none where it is shorter than its type.
fn parse(bytes: &[u8]) -> Option<((Event<'_>, Stamp), usize)> {
    let mut header = bytes;
    let kind = header.try_get_u32_ne().ok()?;
    let _misc = header.try_get_u16_ne().ok()?;
    let size = usize::from(header.try_get_u16_ne().ok()?);
    let body = bytes.get(HEADER..size)?;
    let (body, trailer) = body.split_at(body.len().checked_sub(TRAILER)?);
    Some(((event(kind, body).ok()?, stamp(trailer).ok()?), size))
}

fn event(kind: u32, mut body: &[u8]) -> Result<Event<'_>, TryGetError> {
    Ok(match kind {
        bindings::PERF_RECORD_AUX => Event::Aux {
            offset: body.try_get_u64_ne()?,
            size: body.try_get_u64_ne()?,
            flags: body.try_get_u64_ne()?,
        },
        bindings::PERF_RECORD_LOST => {
            let _id = body.try_get_u64_ne()?;
            Event::Lost(body.try_get_u64_ne()?)
        }
        bindings::PERF_RECORD_COMM => {
            let (pid, tid) = (body.try_get_u32_ne()?, body.try_get_u32_ne()?);
            let end = body.iter().position(|byte| *byte == 0);
            Event::Comm {
                pid,
                tid,
                name: &body[..end.unwrap_or(body.len())],
            }
        }
        bindings::PERF_RECORD_FORK => Event::Fork(task(body)?),
        bindings::PERF_RECORD_EXIT => Event::Exit(task(body)?),
        _ => Event::Other,
    })
}

fn stamp(mut trailer: &[u8]) -> Result<Stamp, TryGetError> {
    Ok(Stamp {
        pid: trailer.try_get_u32_ne()?,
        tid: trailer.try_get_u32_ne()?,
        time: trailer.try_get_u64_ne()?,
        cpu: trailer.try_get_u32_ne()?,
    })
}

fn task(mut body: &[u8]) -> Result<Task, TryGetError> {
    let pid = body.try_get_u32_ne()?;
    let _parent = body.try_get_u32_ne()?;
    Ok(Task {
        pid,
        tid: body.try_get_u32_ne()?,
        parent_tid: body.try_get_u32_ne()?,
    })
}

/// Builds records as the kernel does, for the tests of the stages behind this one.
#[cfg(test)]
pub(super) mod build {
    use bytes::BufMut as _;

    use super::{HEADER, Stamp, TRAILER};

    /// A record of type `kind` with this body (padded to eight bytes) and trailer.
    pub(in super::super) fn record(kind: u32, body: &[u8], stamp: Stamp) -> Vec<u8> {
        let body_size = body.len().next_multiple_of(8);
        let mut bytes = Vec::new();
        bytes.put_u32_ne(kind);
        bytes.put_u16_ne(0);
        bytes.put_u16_ne(u16::try_from(HEADER + body_size + TRAILER).unwrap());
        bytes.put_slice(body);
        bytes.put_bytes(0, body_size - body.len());
        bytes.put_u32_ne(stamp.pid);
        bytes.put_u32_ne(stamp.tid);
        bytes.put_u64_ne(stamp.time);
        bytes.put_u32_ne(stamp.cpu);
        bytes.put_u32_ne(0);
        bytes.put_u64_ne(7);
        bytes
    }

    pub(in super::super) fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    pub(in super::super) fn words32(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use perf_event_open_sys::bindings;
    use proptest::prelude::*;

    use super::{build::*, *};

    const STAMP: Stamp = Stamp {
        pid: 3,
        tid: 4,
        time: 5,
        cpu: 6,
    };

    #[test]
    fn each_type_gives_its_fields() {
        let comm = [&words32(&[10, 11])[..], b"name\0\0\0\0"].concat();
        let task = words32(&[10, 1, 11, 2, 0, 0]);
        let cases = [
            (
                bindings::PERF_RECORD_AUX,
                words(&[64, 128, 9]),
                Event::Aux {
                    offset: 64,
                    size: 128,
                    flags: 9,
                },
            ),
            (bindings::PERF_RECORD_LOST, words(&[7, 12]), Event::Lost(12)),
            (
                bindings::PERF_RECORD_COMM,
                comm,
                Event::Comm {
                    pid: 10,
                    tid: 11,
                    name: b"name",
                },
            ),
            (
                bindings::PERF_RECORD_FORK,
                task.clone(),
                Event::Fork(Task {
                    pid: 10,
                    tid: 11,
                    parent_tid: 2,
                }),
            ),
            (
                bindings::PERF_RECORD_EXIT,
                task,
                Event::Exit(Task {
                    pid: 10,
                    tid: 11,
                    parent_tid: 2,
                }),
            ),
            (bindings::PERF_RECORD_MMAP2, vec![0; 72], Event::Other),
        ];
        let bytes: Vec<u8> = cases
            .iter()
            .flat_map(|(kind, body, _)| record(*kind, body, STAMP))
            .collect();
        let mut events = Events::new(&bytes);
        for (_, _, event) in &cases {
            assert_eq!(events.next(), Some((*event, STAMP)));
        }
        assert_eq!((events.next(), events.damaged), (None, 0));
    }

    #[test]
    fn a_record_shorter_than_its_type_ends_the_bytes() {
        let whole = record(bindings::PERF_RECORD_LOST, &words(&[7, 1]), STAMP);
        let short = record(bindings::PERF_RECORD_AUX, &words(&[64]), STAMP);
        let bytes = [&whole[..], &short, &whole].concat();
        let mut events = Events::new(&bytes);
        assert_eq!(events.next(), Some((Event::Lost(1), STAMP)));
        assert_eq!(events.next(), None);
        assert_eq!(events.damaged, short.len() + whole.len());
    }

    proptest! {
        #[test]
        fn every_byte_is_a_record_or_damage(bytes in prop::collection::vec(any::<u8>(), 0..200), sizes in any::<bool>()) {
            let mut bytes = bytes;
            if sizes && bytes.len() >= 48 {
                let size = u16::try_from(bytes.len() / 8 * 8).unwrap();
                bytes[6..8].copy_from_slice(&size.to_ne_bytes());
            }
            let mut events = Events::new(&bytes);
            let count = events.by_ref().count();
            prop_assert!(events.damaged + count * (HEADER + TRAILER) <= bytes.len());
            prop_assert!(count > 0 || events.damaged == bytes.len());
        }
    }
}
