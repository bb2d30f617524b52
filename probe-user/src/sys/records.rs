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
    /// The process of the thread that made it.
    pub(crate) parent: u32,
    /// The thread that made it.
    pub(crate) parent_tid: u32,
}

/// A file by its numbers, as procfs and the kernel's records have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// 0 for memory without a file.
    pub(crate) number: u64,
}

/// A file, or other memory, that was mapped into a process (`PERF_RECORD_MMAP2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Map<'a> {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) size: u64,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    /// Of the file, where the kernel could read it.
    pub(crate) build_id: Option<&'a [u8]>,
    /// Where there is no build id.
    pub(crate) inode: Option<Inode>,
    pub(crate) executable: bool,
    pub(crate) name: &'a [u8],
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
        /// It executes another program.
        exec: bool,
    },
    Fork(Task),
    Exit(Task),
    Map(Map<'a>),
    /// The kernel has other code now: a BPF program, or a trampoline, came or went.
    KernelCode,
    /// Anything else: starts, throttling.
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

    /// The bytes that were not read yet.
    pub(crate) const fn left(&self) -> &'a [u8] {
        self.rest
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
    let misc = header.try_get_u16_ne().ok()?;
    let size = usize::from(header.try_get_u16_ne().ok()?);
    let (body, trailer) = bytes.get(HEADER..size)?.split_last_chunk()?;
    Some(((event(kind, misc, body).ok()?, trailer), size))
}

fn event(kind: u32, misc: u16, mut body: &[u8]) -> Result<Event<'_>, TryGetError> {
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
            Event::Comm {
                pid,
                tid,
                name: text(body),
                exec: u32::from(misc) & bindings::PERF_RECORD_MISC_COMM_EXEC != 0,
            }
        }
        bindings::PERF_RECORD_MMAP2 => Event::Map(map(misc, body)?),
        bindings::PERF_RECORD_FORK => Event::Fork(task(body)?),
        bindings::PERF_RECORD_EXIT => Event::Exit(task(body)?),
        bindings::PERF_RECORD_KSYMBOL => Event::KernelCode,
        _ => Event::Other,
    })
}

/// Up to the first zero.
fn text(body: &[u8]) -> &[u8] {
    let end = body.iter().position(|byte| *byte == 0);
    &body[..end.unwrap_or(body.len())]
}

/// Bytes of the field that holds a build id, or device and inode.
const FILE: usize = 24;
/// Bytes of the longest build id.
const BUILD_ID: usize = 20;
/// `PROT_EXEC`.
const EXECUTE: u32 = 4;

fn map(misc: u16, mut body: &[u8]) -> Result<Map<'_>, TryGetError> {
    let pid = body.try_get_u32_ne()?;
    let _tid = body.try_get_u32_ne()?;
    let (start, size) = (body.try_get_u64_ne()?, body.try_get_u64_ne()?);
    let offset = body.try_get_u64_ne()?;
    let too_short = |requested, available| TryGetError {
        requested,
        available,
    };
    let Some((file, mut body)) = body.split_at_checked(FILE) else {
        return Err(too_short(FILE, body.len()));
    };
    let has_id = u32::from(misc) & bindings::PERF_RECORD_MISC_MMAP_BUILD_ID != 0;
    // Its size, three bytes of nothing, the id.
    let id = file.get(4..4 + usize::from(file[0]).min(BUILD_ID));
    let mut numbers = file;
    let inode = Inode {
        major: numbers.try_get_u32_ne()?,
        minor: numbers.try_get_u32_ne()?,
        number: numbers.try_get_u64_ne()?,
    };
    let protection = body.try_get_u32_ne()?;
    let _flags = body.try_get_u32_ne()?;
    Ok(Map {
        pid,
        start,
        size,
        offset,
        build_id: id.filter(|id| has_id && !id.is_empty()),
        inode: (!has_id).then_some(inode),
        executable: protection & EXECUTE != 0,
        name: text(body),
    })
}

fn task(mut body: &[u8]) -> Result<Task, TryGetError> {
    let pid = body.try_get_u32_ne()?;
    let parent = body.try_get_u32_ne()?;
    Ok(Task {
        pid,
        parent,
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
                    exec: false,
                },
            ),
            (
                bindings::PERF_RECORD_FORK,
                task.clone(),
                Event::Fork(Task {
                    pid: 10,
                    tid: 11,
                    parent: 1,
                    parent_tid: 2,
                }),
            ),
            (
                bindings::PERF_RECORD_EXIT,
                task,
                Event::Exit(Task {
                    pid: 10,
                    tid: 11,
                    parent: 1,
                    parent_tid: 2,
                }),
            ),
            (
                bindings::PERF_RECORD_MMAP2,
                [
                    &words(&[10, 4096, 8192, 512, 0x3_0000_0008, 7, 0, 5])[..],
                    b"/a b\0\0\0\0",
                ]
                .concat(),
                Event::Map(Map {
                    pid: 10,
                    start: 4096,
                    size: 8192,
                    offset: 512,
                    build_id: None,
                    inode: Some(Inode {
                        major: 8,
                        minor: 3,
                        number: 7,
                    }),
                    executable: true,
                    name: b"/a b",
                }),
            ),
            (bindings::PERF_RECORD_THROTTLE, vec![0; 72], Event::Other),
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
    fn flags_tell_of_an_exec_and_of_a_build_id() {
        let mut comm = Vec::new();
        let body = [&words32(&[10, 10])[..], b"name\0\0\0\0"].concat();
        put(
            &mut comm,
            (bindings::PERF_RECORD_COMM, 1 << 13),
            &body,
            &TRAILER,
        );
        let mut events = Events::<16>::new(&comm);
        let found = events.next().map(|(event, _)| event);
        assert!(
            matches!(found, Some(Event::Comm { exec: true, .. })),
            "{found:?}"
        );

        let id: Vec<u8> = (1..=20).collect();
        let begin = words(&[10, 4096, 8192, 0]);
        let end = [&words32(&[1, 2])[..], b"/data\0\0\0"].concat();
        // A size that cannot be is cut.
        for (size, length) in [(20, 20), (8, 8), (255, 20)] {
            let body = [&begin[..], &[size, 0, 0, 0], &id, &end].concat();
            let mut map = Vec::new();
            put(
                &mut map,
                (bindings::PERF_RECORD_MMAP2, 1 << 14),
                &body,
                &TRAILER,
            );
            let mut events = Events::<16>::new(&map);
            let Some((Event::Map(map), _)) = events.next() else {
                panic!("no mapping")
            };
            assert_eq!(map.build_id, Some(&id[..length]));
            assert_eq!((map.executable, map.name), (false, &b"/data"[..]));
        }
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
