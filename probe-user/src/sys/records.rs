//! The records that the kernel writes into an event's ring (`linux/perf_event.h`, `enum
//! perf_event_type`), as far as they are of use here: read, and made where a file needs some.

use bytes::{Buf as _, BufMut as _, TryGetError};
use perf_event_open_sys::bindings;

/// Header of a record: type, misc, size.
const HEADER: usize = 8;

/// A thread that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The thread that made it.
    pub(crate) parent_tid: u32,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
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

/// Iterates over the records in the bytes taken from a ring, each with the trailer of `TRAILER`
/// bytes that `sample_id_all` asks for. Bytes that are no record end it.
pub(crate) struct Events<'a, const TRAILER: usize> {
    rest: &'a [u8],
    /// Bytes that could not be read as records.
    pub(crate) damaged: usize,
}

impl<'a, const TRAILER: usize> Events<'a, TRAILER> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            damaged: 0,
        }
    }
}

impl<'a, const TRAILER: usize> Iterator for Events<'a, TRAILER> {
    type Item = (Event<'a>, &'a [u8; TRAILER]);

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

/// A record, its trailer and its size.
type Parsed<'a, const TRAILER: usize> = ((Event<'a>, &'a [u8; TRAILER]), usize);

/// The record that the bytes begin with; none where it is shorter than its type.
fn parse<const TRAILER: usize>(bytes: &[u8]) -> Option<Parsed<'_, TRAILER>> {
    let mut header = bytes;
    let kind = header.try_get_u32_ne().ok()?;
    let _misc = header.try_get_u16_ne().ok()?;
    let size = usize::from(header.try_get_u16_ne().ok()?);
    let (body, trailer) = bytes.get(HEADER..size)?.split_last_chunk()?;
    Some(((event(kind, body).ok()?, trailer), size))
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

fn task(mut body: &[u8]) -> Result<Task, TryGetError> {
    let pid = body.try_get_u32_ne()?;
    let _parent = body.try_get_u32_ne()?;
    Ok(Task {
        pid,
        tid: body.try_get_u32_ne()?,
        parent_tid: body.try_get_u32_ne()?,
    })
}

/// Appends a record, its body padded to eight bytes. What is larger than a record can be (64 KiB)
/// is left out.
pub(crate) fn put(records: &mut Vec<u8>, (kind, misc): (u32, u16), body: &[u8], trailer: &[u8]) {
    let padded = body.len().next_multiple_of(8);
    let Ok(size) = u16::try_from(HEADER + padded + trailer.len()) else {
        return;
    };
    records.put_u32_ne(kind);
    records.put_u16_ne(misc);
    records.put_u16_ne(size);
    records.put_slice(body);
    records.put_bytes(0, padded - body.len());
    records.put_slice(trailer);
}

/// Bodies of records, for tests.
#[cfg(test)]
pub(crate) mod body {
    pub(crate) fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    pub(crate) fn words32(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        body::{words, words32},
        *,
    };

    const TRAILER: [u8; 16] = *b"sixteen bytes...";

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        put(&mut record, (kind, 0), body, &TRAILER);
        record
    }

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
            .flat_map(|(kind, body, _)| record(*kind, body))
            .collect();
        let mut events = Events::<16>::new(&bytes);
        for (_, _, event) in &cases {
            assert_eq!(events.next(), Some((*event, &TRAILER)));
        }
        assert_eq!((events.next(), events.damaged), (None, 0));
    }

    #[test]
    fn a_record_shorter_than_its_type_ends_the_bytes() {
        let whole = record(bindings::PERF_RECORD_LOST, &words(&[7, 1]));
        let short = record(bindings::PERF_RECORD_AUX, &words(&[64]));
        let bytes = [&whole[..], &short, &whole].concat();
        let mut events = Events::<16>::new(&bytes);
        assert_eq!(events.next(), Some((Event::Lost(1), &TRAILER)));
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
            let mut events = Events::<16>::new(&bytes);
            let count = events.by_ref().count();
            prop_assert!(events.damaged + count * (HEADER + TRAILER.len()) <= bytes.len());
            prop_assert!(count > 0 || events.damaged == bytes.len());
        }
    }
}
