//! The executable mappings of one process, by the programs that it executed.

use std::sync::Arc;

use super::super::is_anonymous;
use crate::{machine::process::START_TIME_ERROR, sys::records::Inode};

/// Maximum number of mappings of one program. A JIT compiler may map without bound.
const MAX_MAPPINGS: usize = 4096;

/// An executable mapping of a process, with or without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Mapped {
    pub(in super::super) start: u64,
    /// The first address after the mapping.
    pub(in super::super) end: u64,
    /// Offset of the mapping in the file.
    pub(in super::super) offset: u64,
    /// The file as the process sees it, or the kernel's name for the memory.
    pub(in super::super) name: Box<[u8]>,
    pub(in super::super) build_id: Option<Box<[u8]>>,
    /// The inode, if the build id is unknown.
    pub(in super::super) inode: Option<Inode>,
    /// When this mapping was created, in ns of `CLOCK_MONOTONIC`.
    pub(in super::super) since: u64,
}

impl Mapped {
    /// Whether this mapping and `other` overlap.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether this mapping and `other` map the same part of the same file at the same addresses.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let range = |mapped: &Self| (mapped.start, mapped.end, mapped.offset);
        range(self) == range(other) && self.name == other.name
    }
}

/// A program that a process runs, from a fork or exec on.
#[derive(Clone, Debug)]
pub(super) struct ProgramImage {
    /// When the fork or exec was, in ns of `CLOCK_MONOTONIC`; 0 if unknown.
    pub(super) since: u64,
    /// Mappings in order of time: a later one replaces those that it overlaps. A child shares the
    /// mappings of its parent.
    pub(super) mappings: Arc<Vec<Arc<Mapped>>>,
    /// [`Mappings::losses`](super::Mappings::losses) when procfs was last read; None if it was not
    /// read yet.
    pub(super) losses_at_read: Option<u64>,
    /// Whether a mapping overlaps an earlier one, so that an address may have belonged to both.
    pub(super) replaced: bool,
}

impl ProgramImage {
    /// A program without mappings.
    pub(super) fn new(since: u64, losses_at_read: Option<u64>) -> Self {
        Self {
            since,
            mappings: Arc::default(),
            losses_at_read,
            replaced: false,
        }
    }

    /// Adds a mapping. Returns how many older mappings were dropped for it.
    pub(super) fn push(&mut self, mapped: &Arc<Mapped>) -> u64 {
        let overlaps = |known: &Arc<Mapped>| known.start < mapped.end && mapped.start < known.end;
        self.replaced |= self.mappings.iter().any(overlaps);
        push(Arc::make_mut(&mut self.mappings), mapped)
    }

    /// The mapping at an address at `time`, or now: the last one created by then, else the first
    /// one.
    pub(super) fn mapped(&self, address: u64, time: Option<u64>) -> Option<&Arc<Mapped>> {
        let time = time.unwrap_or(u64::MAX);
        let covers = |mapped: &&Arc<Mapped>| (mapped.start..mapped.end).contains(&address);
        let at_time = self
            .mappings
            .iter()
            .rev()
            .find(|mapped| mapped.since <= time && covers(mapped));
        at_time.or_else(|| self.mappings.iter().find(covers))
    }

    /// When the code at an address was created: when the program was executed, or a later mapping
    /// of a file replaced another one.
    pub(super) fn code_start(&self, address: u64, time: Option<u64>) -> u64 {
        if !self.replaced {
            return self.since;
        }
        let is_replacement = |mapped: &&Arc<Mapped>| {
            let mut earlier = self
                .mappings
                .iter()
                .take_while(|known| !Arc::ptr_eq(known, mapped));
            let is_file = !is_anonymous(&String::from_utf8_lossy(&mapped.name));
            is_file && earlier.any(|known| known.overlaps(mapped))
        };
        let replacement = self.mapped(address, time).filter(is_replacement);
        replacement.map_or(self.since, |mapped| self.since.max(mapped.since))
    }
}

/// A known process.
#[derive(Debug, Default)]
pub(super) struct WatchedProcess {
    /// Its programs, in order of time; never empty.
    pub(super) images: Vec<ProgramImage>,
    pub(super) parent: Option<u32>,
    /// When its first thread exited, in ns of `CLOCK_MONOTONIC`.
    pub(super) ended: Option<u64>,
    /// The round of its last record or lookup.
    pub(super) used: u64,
}

impl WatchedProcess {
    /// Memory of its mappings in bytes. Mappings shared with other processes count in proportion.
    pub(super) fn memory(&self) -> usize {
        let size = |mapped: &Arc<Mapped>| size_of::<(Arc<()>, Mapped)>() + mapped.name.len();
        let images = self.images.iter().map(|image| {
            let total: usize = image.mappings.iter().map(size).sum();
            total / Arc::strong_count(&image.mappings)
        });
        images.sum()
    }

    /// Its program at `time`, or now; None if `time` is before its first known program.
    pub(super) fn at(&self, time: Option<u64>) -> Option<&ProgramImage> {
        let time = time.unwrap_or(u64::MAX);
        let next = self.images.partition_point(|image| image.since <= time);
        match next.checked_sub(1) {
            Some(at) => self.images.get(at),
            // Tolerates one tick: the time of the first sample may be before that of the record,
            // and procfs has start times in ticks.
            None => self
                .images
                .first()
                .filter(|first| first.since <= time.saturating_add(START_TIME_ERROR)),
        }
    }
}

/// Adds a mapping. Returns how many older mappings were dropped for it.
fn push(mappings: &mut Vec<Arc<Mapped>>, mapped: &Arc<Mapped>) -> u64 {
    let dropped = if mappings.len() == MAX_MAPPINGS {
        MAX_MAPPINGS / 8
    } else {
        0
    };
    mappings.drain(..dropped);
    mappings.push(Arc::clone(mapped));
    dropped as u64
}
