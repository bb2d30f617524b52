//! What one process had mapped to execute, by the programs that it executed.

use std::sync::Arc;

use super::super::is_anonymous;
use crate::{machine::process::TICK, sys::records::Inode};

/// Mappings of one program of a process. A compiler at run time may map without an end.
const MAPPINGS: usize = 4096;

/// A file, or memory without one, that a process can execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Mapped {
    pub(in super::super) start: u64,
    /// The first address behind it.
    pub(in super::super) end: u64,
    /// Where in the file it begins.
    pub(in super::super) offset: u64,
    /// The file as the process sees it, or what the kernel calls the memory.
    pub(in super::super) name: Box<[u8]>,
    pub(in super::super) build_id: Option<Box<[u8]>>,
    /// Where the build id is not known.
    pub(in super::super) inode: Option<Inode>,
    /// ns of `CLOCK_MONOTONIC`.
    pub(in super::super) since: u64,
}

impl Mapped {
    /// Whether they have an address in common.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        let place = |one: &Self| (one.start, one.end, one.offset);
        place(self) == place(other) && self.name == other.name
    }
}

/// A program that a process executed: from a fork or an exec on.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) since: u64,
    /// In their order: a later one replaces what it lies over. A child has those of its parent.
    pub(super) mappings: Arc<Vec<Arc<Mapped>>>,
    /// How much was lost when procfs was last asked; none where it was not yet.
    pub(super) asked: Option<u64>,
    /// Whether a mapping lies where another one was: an address may have been of both.
    pub(super) replaced: bool,
}

impl Image {
    /// One that has nothing mapped yet; `asked` as of [`Self::asked`].
    pub(super) fn new(since: u64, asked: Option<u64>) -> Self {
        Self {
            since,
            mappings: Arc::default(),
            asked,
            replaced: false,
        }
    }

    /// Adds a mapping; how many were dropped for it.
    pub(super) fn push(&mut self, mapped: &Arc<Mapped>) -> u64 {
        let lies_over = |known: &Arc<Mapped>| known.start < mapped.end && mapped.start < known.end;
        self.replaced |= self.mappings.iter().any(lies_over);
        push(Arc::make_mut(&mut self.mappings), mapped)
    }

    /// What an address was of at a moment: of what was mapped by then the last, else the first.
    pub(super) fn mapped(&self, address: u64, time: Option<u64>) -> Option<&Arc<Mapped>> {
        let time = time.unwrap_or(u64::MAX);
        let covers = |mapped: &&Arc<Mapped>| (mapped.start..mapped.end).contains(&address);
        let mut then = self.mappings.iter().rev();
        let then = then.find(|mapped| mapped.since <= time && covers(mapped));
        then.or_else(|| self.mappings.iter().find(covers))
    }

    /// Since when the code at an address is there: the program, or a file in place of another one.
    pub(super) fn code(&self, address: u64, time: Option<u64>) -> u64 {
        if !self.replaced {
            return self.since;
        }
        let is_in_place = |mapped: &&Arc<Mapped>| {
            let before = self.mappings.iter();
            let mut before = before.take_while(|known| !Arc::ptr_eq(known, mapped));
            let is_file = !is_anonymous(&String::from_utf8_lossy(&mapped.name));
            is_file && before.any(|known| known.meets(mapped))
        };
        let in_place = self.mapped(address, time).filter(is_in_place);
        in_place.map_or(self.since, |mapped| self.since.max(mapped.since))
    }
}

/// What is known of a process.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// In rising order of time; never empty.
    pub(super) images: Vec<Image>,
    pub(super) parent: Option<u32>,
    pub(super) ended: Option<u64>,
    /// The round in which it was last learnt of or asked for.
    pub(super) used: u64,
}

impl Process {
    /// Bytes of its mappings; of those that it has in common with others, its part.
    pub(super) fn memory(&self) -> usize {
        let one = |mapped: &Arc<Mapped>| size_of::<(Arc<()>, Mapped)>() + mapped.name.len();
        let images = self.images.iter().map(|image| {
            let all: usize = image.mappings.iter().map(one).sum();
            all / Arc::strong_count(&image.mappings)
        });
        images.sum()
    }

    /// What it executed at a moment, or does; None where that was before all that is known.
    pub(super) fn at(&self, time: Option<u64>) -> Option<&Image> {
        let time = time.unwrap_or(u64::MAX);
        let behind = self.images.partition_point(|image| image.since <= time);
        match behind.checked_sub(1) {
            Some(at) => self.images.get(at),
            // The clock of a sample of the first moment may be read before that of the record, and
            // procfs tells of a start by its ticks.
            None => self
                .images
                .first()
                .filter(|first| first.since <= time.saturating_add(TICK)),
        }
    }
}

/// Adds a mapping; how many were dropped for it.
fn push(mappings: &mut Vec<Arc<Mapped>>, mapped: &Arc<Mapped>) -> u64 {
    let dropped = if mappings.len() == MAPPINGS {
        MAPPINGS / 8
    } else {
        0
    };
    mappings.drain(..dropped);
    mappings.push(Arc::clone(mapped));
    dropped as u64
}
