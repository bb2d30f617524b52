//! Parses the records that the kernel writes into an event's ring (`linux/perf_event.h`, `enum
//! perf_event_type`), as far as pmuscope uses them. Also writes records, for files that need some.

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use bytes::{Buf as _, BufMut as _, TryGetError};
use perf_event_open_sys::bindings;

/// Size of a record's header in bytes: type, misc, size.
pub(super) const HEADER: usize = 8;

/// A thread that was created or exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The process of the creating thread.
    pub(crate) parent: u32,
    /// The creating thread.
    pub(crate) parent_tid: u32,
}

/// Device and inode numbers of a file, as in procfs and in the kernel's records.
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
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Build id of the file, if the kernel could read it.
    pub(crate) build_id: Option<&'a [u8]>,
    /// The file's inode; None if there is a build id.
    pub(crate) inode: Option<Inode>,
    pub(crate) executable: bool,
    pub(crate) name: &'a [u8],
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerfRecord<'a> {
    /// Bytes were added to the AUX buffer.
    Aux {
        offset: u64,
        size: u64,
        flags: u64,
    },
    /// Number of records lost before this one because the ring was full.
    Lost(u64),
    /// A thread has a new name.
    Comm {
        pid: u32,
        tid: u32,
        name: &'a [u8],
        /// Whether an exec set the name.
        exec: bool,
    },
    Fork(Task),
    Exit(Task),
    Map(Map<'a>),
    /// Kernel code changed: a BPF program or trampoline was loaded or removed.
    KernelCode,
    /// A record of any other type, such as throttling.
    Other,
}

/// The records of one kind of ring.
pub(crate) trait ParseRecord<'a>: Sized {
    /// Parses the body after the header; None if the body is too short for its type.
    fn read(kind: u32, misc: u16, body: &'a [u8]) -> Option<Self>;
}

/// Iterates over the records in bytes taken from a ring, up to the first bytes that are no record.
pub(crate) struct RecordIter<'a, R> {
    rest: &'a [u8],
    /// Number of bytes that could not be read as records.
    pub(crate) damaged: usize,
    records: PhantomData<R>,
}

impl<'a, R> RecordIter<'a, R> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            damaged: 0,
            records: PhantomData,
        }
    }

    /// The bytes that were not read yet.
    pub(crate) const fn left(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a, R: ParseRecord<'a>> Iterator for RecordIter<'a, R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((record, size)) = parse_first(self.rest) else {
            self.damaged += self.rest.len();
            self.rest = &[];
            return None;
        };
        self.rest = &self.rest[size..];
        Some(record)
    }
}

/// Parses the first record. Returns it and its size, or None if it is too short for its type.
fn parse_first<'a, R: ParseRecord<'a>>(bytes: &'a [u8]) -> Option<(R, usize)> {
    let mut header = bytes;
    let kind = header.try_get_u32_ne().ok()?;
    let misc = header.try_get_u16_ne().ok()?;
    let size = usize::from(header.try_get_u16_ne().ok()?);
    Some((R::read(kind, misc, bytes.get(HEADER..size)?)?, size))
}

/// A record, with the trailer of `TRAILER` bytes that `sample_id_all` asks for.
type Trailed<'a, const TRAILER: usize> = (PerfRecord<'a>, &'a [u8; TRAILER]);

/// Iterates over the records in bytes taken from a ring.
pub(crate) type PerfRecords<'a, const TRAILER: usize> = RecordIter<'a, Trailed<'a, TRAILER>>;

impl<'a, const TRAILER: usize> ParseRecord<'a> for Trailed<'a, TRAILER> {
    fn read(kind: u32, misc: u16, body: &'a [u8]) -> Option<Self> {
        let (body, trailer) = body.split_last_chunk()?;
        Some((parse_body(kind, misc, body).ok()?, trailer))
    }
}

fn parse_body(kind: u32, misc: u16, mut body: &[u8]) -> Result<PerfRecord<'_>, TryGetError> {
    Ok(match kind {
        bindings::PERF_RECORD_AUX => PerfRecord::Aux {
            offset: body.try_get_u64_ne()?,
            size: body.try_get_u64_ne()?,
            flags: body.try_get_u64_ne()?,
        },
        bindings::PERF_RECORD_LOST => {
            let _id = body.try_get_u64_ne()?;
            PerfRecord::Lost(body.try_get_u64_ne()?)
        }
        bindings::PERF_RECORD_COMM => {
            let (pid, tid) = (body.try_get_u32_ne()?, body.try_get_u32_ne()?);
            PerfRecord::Comm {
                pid,
                tid,
                name: text(body),
                exec: u32::from(misc) & bindings::PERF_RECORD_MISC_COMM_EXEC != 0,
            }
        }
        bindings::PERF_RECORD_MMAP2 => PerfRecord::Map(map(misc, body)?),
        bindings::PERF_RECORD_FORK => PerfRecord::Fork(task(body)?),
        bindings::PERF_RECORD_EXIT => PerfRecord::Exit(task(body)?),
        bindings::PERF_RECORD_KSYMBOL => PerfRecord::KernelCode,
        _ => PerfRecord::Other,
    })
}

/// The bytes up to the first NUL.
fn text(body: &[u8]) -> &[u8] {
    let end = body.iter().position(|byte| *byte == 0);
    &body[..end.unwrap_or(body.len())]
}

/// Size of the field that has a build id, or device and inode, in bytes.
const FILE: usize = 24;
/// Size of the longest build id, in bytes.
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
    // The field has one byte with the size, three unused bytes, then the id.
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

/// Appends a record; pads its body to a multiple of eight bytes. Skips a record of 64 KiB or more.
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
