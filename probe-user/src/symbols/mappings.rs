//! What processes had mapped to execute, and when: learnt from the kernel's records, and from
//! procfs where there are none. Processes that ended are known until they are forgotten.

mod asked;
mod process;

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) use self::process::Mapped;
use self::process::{Image, Process};
use super::Counts;
use crate::{
    machine::process::has_threads,
    sys::records::{Event, Map, Task},
};

/// Processes that are known at one time.
const PROCESSES: usize = 16_384;
/// Bytes of all mappings; some 150 each with their names.
const MEMORY: usize = 128 << 20;
/// Programs of one process id.
const IMAGES: usize = 64;
/// How many parents are looked at.
const ANCESTORS: usize = 16;

/// The mappings of all processes.
#[derive(Debug)]
pub(super) struct Mappings {
    processes: HashMap<u32, Process>,
    proc: PathBuf,
    round: u64,
    pub(super) counts: Counts,
    /// New files since [`Self::take_new`], with the process that mapped them.
    new: Vec<(u32, Arc<Mapped>)>,
    /// Whether the kernel's records are read: what they told needs no look at procfs.
    pub(super) followed: bool,
    /// How often there may have been records that nobody read: a CPU was not followed.
    gaps: u64,
    /// Processes of which procfs knows nothing, in this round.
    gone: HashSet<u32>,
}

impl Mappings {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            processes: HashMap::new(),
            proc: proc.to_owned(),
            round: 0,
            counts: Counts::default(),
            new: Vec::new(),
            followed: false,
            gaps: 0,
            gone: HashSet::new(),
        }
    }

    /// From now on records are read that were not before: what they told is asked for.
    pub(super) fn gap(&mut self) {
        self.gaps += 1;
    }

    /// Another number where something may not have been told since.
    fn untold(&self) -> u64 {
        self.counts.lost + self.gaps
    }

    /// Handles a record of a moment, in ns of `CLOCK_MONOTONIC`; they come in rising order of time.
    pub(super) fn learn(&mut self, event: &Event<'_>, time: u64) {
        match *event {
            Event::Fork(Task { pid, parent, .. }) if pid != parent => {
                self.ask(parent, None);
                let last = self
                    .processes
                    .get(&parent)
                    .and_then(|parent| parent.images.last());
                // Where nothing is known of the parent, procfs knows the child.
                let mut image = Image::new(time, last.and_then(|last| last.asked));
                if let Some(last) = last {
                    image.mappings = Arc::clone(&last.mappings);
                }
                self.begin(pid, image);
                if let Some(process) = self.processes.get_mut(&pid) {
                    (process.parent, process.ended) = (Some(parent), None);
                }
            }
            // The new program's mappings follow.
            Event::Comm {
                pid, exec: true, ..
            } => {
                self.begin(pid, Image::new(time, Some(self.untold())));
                // Where a thread executes it that is not the first, the first one's exit came
                // before.
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.ended = None;
                }
            }
            Event::Exit(Task { pid, tid, .. }) if pid == tid => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.ended = Some(time);
                }
            }
            Event::Map(map) if map.executable => self.add(&map, time),
            Event::Lost(records) => self.counts.lost += records,
            _ => {}
        }
    }

    fn begin(&mut self, pid: u32, image: Image) {
        self.make_room(pid);
        self.gone.remove(&pid);
        let process = self.processes.entry(pid).or_default();
        process.used = self.round;
        if process.images.len() == IMAGES {
            process.images.remove(0);
            self.counts.dropped_mappings += 1;
        }
        process.images.push(image);
    }

    fn add(&mut self, map: &Map<'_>, time: u64) {
        let mapped = Arc::new(Mapped {
            start: map.start,
            end: map.start.saturating_add(map.size),
            offset: map.offset,
            name: map.name.into(),
            build_id: map.build_id.map(Into::into),
            inode: map.inode,
            since: time,
        });
        if !self.processes.contains_key(&map.pid) {
            // It was there before.
            self.begin(map.pid, Image::new(0, None));
        }
        let Some(process) = self.processes.get_mut(&map.pid) else {
            return;
        };
        process.used = self.round;
        let Some(image) = process.images.last_mut() else {
            return;
        };
        self.counts.dropped_mappings += image.push(&mapped);
        if mapped.name.starts_with(b"/") {
            self.new.push((map.pid, mapped));
        }
    }

    /// What all known processes have mapped.
    pub(super) fn all(&self) -> impl Iterator<Item = &Mapped> {
        let images = self.processes.values().flat_map(|process| &process.images);
        images.flat_map(|image| image.mappings.iter().map(|mapped| &**mapped))
    }

    /// Files that were mapped since the last call.
    pub(super) fn take_new(&mut self) -> Vec<(u32, Arc<Mapped>)> {
        std::mem::take(&mut self.new)
    }

    /// What an address of a process was at a moment, or is. Asks procfs where the records of the
    /// kernel may not have told it.
    pub(super) fn at(&mut self, pid: u32, address: u64, time: Option<u64>) -> Option<Arc<Mapped>> {
        self.ask(pid, time);
        if let Some(found) = self.known(pid, address, time) {
            return Some(found);
        }
        if !self.followed {
            // It may have mapped this since it was asked.
            self.ask_again(pid);
        }
        self.known(pid, address, time)
    }

    /// Since when a process had the program that it had at a moment, or has; 0 where nothing is
    /// known of it.
    pub(super) fn image(&mut self, pid: u32, time: Option<u64>) -> u64 {
        self.ask(pid, time);
        let process = self.processes.get(&pid);
        let image = process.and_then(|process| process.at(time));
        image.map_or(0, |image| image.since)
    }

    /// The same for an address: where a file was mapped in place of another one, since when.
    pub(super) fn code(&mut self, pid: u32, address: u64, time: Option<u64>) -> u64 {
        self.ask(pid, time);
        let process = self.processes.get(&pid);
        let image = process.and_then(|process| process.at(time));
        image.map_or(0, |image| image.code(address, time))
    }

    fn known(&mut self, pid: u32, address: u64, time: Option<u64>) -> Option<Arc<Mapped>> {
        let process = self.processes.get_mut(&pid)?;
        process.used = self.round;
        process.at(time)?.mapped(address, time).cloned()
    }

    /// Its parent, the parent of that, and so on, as far as they are known.
    pub(super) fn ancestors(&self, pid: u32) -> impl Iterator<Item = u32> {
        let parent = |pid: &u32| self.processes.get(pid).and_then(|process| process.parent);
        std::iter::successors(parent(&pid), parent).take(ANCESTORS)
    }

    /// Ends a round: what ended, or was replaced by another program, before `until` (ns of
    /// `CLOCK_MONOTONIC`) will not be asked for.
    pub(super) fn forget(&mut self, until: u64) {
        let proc = &self.proc;
        self.processes.retain(|pid, process| {
            let old = { &process.images }
                .windows(2)
                .take_while(|two| two[1].since <= until)
                .count();
            process.images.drain(..old);
            // A process goes on without its first thread.
            process.ended.is_none_or(|ended| ended >= until) || has_threads(proc, *pid)
        });
        self.bound_memory(MEMORY);
        self.gone.clear();
        self.round += 1;
    }

    /// Forgets processes until the others take no more than so many bytes.
    pub(super) fn bound_memory(&mut self, most: usize) {
        let mut taken: usize = self.processes.values().map(Process::memory).sum();
        if taken <= most {
            return;
        }
        for pid in self.by_use() {
            if taken <= most {
                break;
            }
            let gone = self.processes.remove(&pid);
            taken = taken.saturating_sub(gone.map_or(0, |process| process.memory()));
            self.counts.dropped_processes += 1;
        }
    }

    /// Those that ended first, then those that were not asked for the longest time.
    fn by_use(&self) -> Vec<u32> {
        let order = |process: &Process| (process.ended.is_none(), process.used, process.ended);
        let mut all: Vec<_> = { self.processes.iter() }
            .map(|(pid, process)| (order(process), *pid))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, pid)| pid).collect()
    }

    fn make_room(&mut self, pid: u32) {
        if self.processes.len() < PROCESSES || self.processes.contains_key(&pid) {
            return;
        }
        // Some at once, since each look costs.
        for pid in self.by_use().into_iter().take(PROCESSES / 16) {
            self.processes.remove(&pid);
            self.counts.dropped_processes += 1;
        }
    }
}
