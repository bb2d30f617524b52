//! The executable mappings of processes over time ([`Mappings`]): from the kernel's records, and
//! from procfs where records are missing. Ended processes stay known until they are dropped.

mod process;
mod procfs;

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) use self::process::Mapped;
use self::process::{ProgramImage, WatchedProcess};
use crate::{
    machine::process::has_threads,
    snapshot::NameCounts,
    sys::records::{Map, PerfRecord, Task},
};

/// Maximum number of known processes.
const MAX_PROCESSES: usize = 16_384;
/// Maximum memory of all mappings in bytes; a mapping with its name takes some 150 bytes.
const MAX_MEMORY: usize = 128 << 20;
/// Maximum number of programs kept for one process id.
const MAX_IMAGES: usize = 64;
/// Maximum number of ancestors that [`Mappings::ancestors`] returns.
const MAX_ANCESTORS: usize = 16;

/// The mappings of all processes.
#[derive(Debug)]
pub(super) struct Mappings {
    processes: HashMap<u32, WatchedProcess>,
    proc: PathBuf,
    round: u64,
    pub(super) counts: NameCounts,
    /// Files mapped since the last call of [`Self::take_new`], each with the process that mapped
    /// it.
    new: Vec<(u32, Arc<Mapped>)>,
    /// Whether the kernel's records are read. If so, procfs is read only where records are missing.
    pub(super) followed: bool,
    /// Number of gaps in the records, in which a CPU was not watched.
    gaps: u64,
    /// Processes that procfs did not have in this round.
    gone: HashSet<u32>,
}

impl Mappings {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            processes: HashMap::new(),
            proc: proc.to_owned(),
            round: 0,
            counts: NameCounts::default(),
            new: Vec::new(),
            followed: false,
            gaps: 0,
            gone: HashSet::new(),
        }
    }

    /// Marks all processes as stale after a gap in the records: procfs is read again for them.
    pub(super) fn mark_stale(&mut self) {
        self.gaps += 1;
    }

    /// A number that changes whenever records may have been lost.
    fn losses(&self) -> u64 {
        self.counts.lost + self.gaps
    }

    /// Handles a record. `time` is in ns of `CLOCK_MONOTONIC`; records come in order of time.
    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>, time: u64) {
        match *event {
            PerfRecord::Fork(Task { pid, parent, .. }) if pid != parent => {
                self.refresh(parent, None);
                let last = self
                    .processes
                    .get(&parent)
                    .and_then(|parent| parent.images.last());
                // If the parent is unknown, procfs will be read for the child.
                let mut image = ProgramImage::new(time, last.and_then(|last| last.losses_at_read));
                if let Some(last) = last {
                    image.mappings = Arc::clone(&last.mappings);
                }
                self.start_image(pid, image);
                if let Some(process) = self.processes.get_mut(&pid) {
                    (process.parent, process.ended) = (Some(parent), None);
                }
            }
            // An exec drops the old mappings; records of the new program's mappings follow.
            PerfRecord::Comm {
                pid, exec: true, ..
            } => {
                self.start_image(pid, ProgramImage::new(time, Some(self.losses())));
                // If a thread other than the leader calls exec, the kernel reports the leader's
                // exit first.
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.ended = None;
                }
            }
            PerfRecord::Exit(Task { pid, tid, .. }) if pid == tid => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.ended = Some(time);
                }
            }
            PerfRecord::Map(map) if map.executable => self.add(&map, time),
            PerfRecord::Lost(records) => self.counts.lost += records,
            _ => {}
        }
    }

    /// Adds a program to a process.
    fn start_image(&mut self, pid: u32, image: ProgramImage) {
        self.evict(pid);
        self.gone.remove(&pid);
        let process = self.processes.entry(pid).or_default();
        process.used = self.round;
        if process.images.len() == MAX_IMAGES {
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
            // The process existed before records were read.
            self.start_image(map.pid, ProgramImage::new(0, None));
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

    /// The mappings of all known processes.
    pub(super) fn all(&self) -> impl Iterator<Item = &Mapped> {
        let images = self.processes.values().flat_map(|process| &process.images);
        images.flat_map(|image| image.mappings.iter().map(|mapped| &**mapped))
    }

    /// Files mapped since the last call, with their processes.
    pub(super) fn take_new(&mut self) -> Vec<(u32, Arc<Mapped>)> {
        std::mem::take(&mut self.new)
    }

    /// The mapping at an address of a process, at `time` or now. Reads procfs if records may be
    /// missing.
    pub(super) fn at(&mut self, pid: u32, address: u64, time: Option<u64>) -> Option<Arc<Mapped>> {
        self.refresh(pid, time);
        if let Some(mapped) = self.known(pid, address, time) {
            return Some(mapped);
        }
        if !self.followed {
            // The process may have mapped this since procfs was read.
            self.reread(pid);
        }
        self.known(pid, address, time)
    }

    /// When a process executed the program that it runs at `time`, or now; 0 if unknown.
    pub(super) fn image_start(&mut self, pid: u32, time: Option<u64>) -> u64 {
        self.refresh(pid, time);
        let process = self.processes.get(&pid);
        let image = process.and_then(|process| process.at(time));
        image.map_or(0, |image| image.since)
    }

    /// When the code at an address was created: when the program was executed, or a later mapping
    /// of a file replaced another one.
    pub(super) fn code_start(&mut self, pid: u32, address: u64, time: Option<u64>) -> u64 {
        self.refresh(pid, time);
        let process = self.processes.get(&pid);
        let image = process.and_then(|process| process.at(time));
        image.map_or(0, |image| image.code_start(address, time))
    }

    /// The known mapping at an address, without a read of procfs.
    fn known(&mut self, pid: u32, address: u64, time: Option<u64>) -> Option<Arc<Mapped>> {
        let process = self.processes.get_mut(&pid)?;
        process.used = self.round;
        process.at(time)?.mapped(address, time).cloned()
    }

    /// The known ancestors of a process, its parent first.
    pub(super) fn ancestors(&self, pid: u32) -> impl Iterator<Item = u32> {
        let parent = |pid: &u32| self.processes.get(pid).and_then(|process| process.parent);
        std::iter::successors(parent(&pid), parent).take(MAX_ANCESTORS)
    }

    /// Ends a round: drops processes that ended before `until` (ns of `CLOCK_MONOTONIC`), and
    /// programs that were replaced before it.
    pub(super) fn end_round(&mut self, until: u64) {
        let proc = &self.proc;
        self.processes.retain(|pid, process| {
            let old = { &process.images }
                .windows(2)
                .take_while(|pair| pair[1].since <= until)
                .count();
            process.images.drain(..old);
            // A process may outlive its first thread, whose exit sets `ended`.
            process.ended.is_none_or(|ended| ended >= until) || has_threads(proc, *pid)
        });
        self.bound_memory(MAX_MEMORY);
        self.gone.clear();
        self.round += 1;
    }

    /// Drops processes until the remaining ones take at most `limit` bytes.
    pub(super) fn bound_memory(&mut self, limit: usize) {
        let mut used: usize = self.processes.values().map(WatchedProcess::memory).sum();
        if used <= limit {
            return;
        }
        for pid in self.eviction_order() {
            if used <= limit {
                break;
            }
            let dropped = self.processes.remove(&pid);
            used = used.saturating_sub(dropped.map_or(0, |process| process.memory()));
            self.counts.dropped_processes += 1;
        }
    }

    /// Process ids in the order of eviction: ended processes first, then the least recently used.
    fn eviction_order(&self) -> Vec<u32> {
        let order =
            |process: &WatchedProcess| (process.ended.is_none(), process.used, process.ended);
        let mut all: Vec<_> = { self.processes.iter() }
            .map(|(pid, process)| (order(process), *pid))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Makes space for a process if it is unknown and the maximum number is reached.
    fn evict(&mut self, pid: u32) {
        if self.processes.len() < MAX_PROCESSES || self.processes.contains_key(&pid) {
            return;
        }
        // Evicts several at once, since sorting is expensive.
        for pid in self.eviction_order().into_iter().take(MAX_PROCESSES / 16) {
            self.processes.remove(&pid);
            self.counts.dropped_processes += 1;
        }
    }
}
