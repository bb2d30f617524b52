//! The files that processes execute: opened when they are asked for, and kept open within bounds,
//! so that a process that ended still has names.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    debug_files,
    elf::{Elf, Source},
    mappings::Mapped,
    module::Module,
    opened, vdso,
};
use crate::{machine::process, sys::records::Inode};

/// Files that are kept, each with a descriptor, and one more where it has a file with symbols.
const MODULES: usize = 256;
/// Bytes that they take.
const MEMORY: usize = 256 << 20;

/// Rounds after which a file that nobody has mapped or asked for is closed: about a minute.
const IDLE: u64 = 32;

/// How the kernel tells a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Known {
    BuildId(Box<[u8]>),
    Inode(Inode),
}

/// A file as it was at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    /// `st_ctime` with its ns: nobody can set it.
    changed: (i64, i64),
}

#[derive(Debug)]
struct Kept {
    module: Module,
    /// The ask at which it was last wanted.
    used: u64,
    /// The round of that.
    round: u64,
}

#[derive(Debug)]
pub(super) struct Files {
    proc: PathBuf,
    modules: HashMap<Version, Kept>,
    /// Files by what the kernel tells of them: for processes that have ended.
    by_known: HashMap<Known, Version>,
    /// The files of mappings that were asked for in this round: process, address and time.
    asked: HashMap<(u32, u64, u64), Option<Version>>,
    vdso: Option<Module>,
    clock: u64,
    round: u64,
    pub(super) unreadable: u64,
    /// Those of them that the kernel did not let this process read.
    pub(super) refused: u64,
}

impl Files {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            modules: HashMap::new(),
            by_known: HashMap::new(),
            asked: HashMap::new(),
            vdso: vdso::own(proc).map(Module::new),
            clock: 0,
            round: 0,
            unreadable: 0,
            refused: 0,
        }
    }

    /// Opens a file that was mapped just now, so that its names outlive the process.
    pub(super) fn keep(&mut self, pid: u32, mapped: &Mapped) {
        if known(mapped).is_none_or(|known| !self.by_known.contains_key(&known)) {
            self.of_living(pid, mapped);
        }
    }

    /// Name and build id at an address of a mapping of a process.
    pub(super) fn name(
        &mut self,
        pid: u32,
        ancestors: impl Iterator<Item = u32>,
        mapped: &Mapped,
        address: u64,
    ) -> (Option<Arc<str>>, Option<Arc<[u8]>>) {
        let offset = (address - mapped.start).saturating_add(mapped.offset);
        if &*mapped.name == b"[vdso]" {
            // All processes have one, but those of 32 bits another one.
            let size = mapped.end - mapped.start;
            let same = self
                .vdso
                .as_mut()
                .filter(|vdso| vdso::size(&vdso.elf) == size);
            return same.map_or((None, None), |vdso| {
                (vdso.name(offset, |_| None), vdso.build_id.clone())
            });
        }
        if !mapped.name.starts_with(b"/") {
            return (None, None);
        }
        self.clock += 1;
        let key = (pid, mapped.start, mapped.since);
        let version = match self.asked.get(&key) {
            Some(version) => *version,
            None => {
                let version = self.find(pid, ancestors, mapped);
                if version.is_none() {
                    self.unreadable += 1;
                    self.refused += u64::from(opened::is_refused(&self.proc, pid));
                }
                self.asked.insert(key, version);
                version
            }
        };
        let told = mapped.build_id.as_deref().map(Into::into);
        let Some(kept) = version.and_then(|version| self.modules.get_mut(&version)) else {
            return (None, told);
        };
        (kept.used, kept.round) = (self.clock, self.round);
        let before = kept.module.memory();
        let proc = &self.proc;
        let name = kept
            .module
            .name(offset, |elf| debug_files::find(proc, pid, mapped, elf));
        let build_id = kept.module.build_id.clone().or(told);
        if kept.module.memory() != before {
            self.make_room();
        }
        (name, build_id)
    }

    fn find(
        &mut self,
        pid: u32,
        ancestors: impl Iterator<Item = u32>,
        mapped: &Mapped,
    ) -> Option<Version> {
        self.of_living(pid, mapped)
            // It has ended, or its root has changed: who made it most likely has the same root.
            .or_else(|| { ancestors }.find_map(|parent| self.at_path(parent, mapped)))
            .or_else(|| {
                let version = self.by_known.get(&known(mapped)?)?;
                self.modules.contains_key(version).then_some(*version)
            })
            .or_else(|| self.at_path(std::process::id(), mapped))
    }

    fn of_living(&mut self, pid: u32, mapped: &Mapped) -> Option<Version> {
        let range = |pid| format!("{pid}/map_files/{:x}-{:x}", mapped.start, mapped.end);
        let link = |pid| opened::link(&self.proc.join(range(pid)));
        let file = link(pid).or_else(|| {
            let thread = process::living(&self.proc, pid);
            (thread != pid).then(|| link(thread)).flatten()
        });
        let exact = file.and_then(|file| self.add(file, mapped));
        exact.or_else(|| self.at_path(pid, mapped))
    }

    fn at_path(&mut self, pid: u32, mapped: &Mapped) -> Option<Version> {
        let path = mapped
            .name
            .strip_suffix(b" (deleted)")
            .unwrap_or(&mapped.name);
        self.add(opened::in_root(&self.proc, pid, path)?, mapped)
    }

    /// Takes a file, if it is the one that was mapped.
    fn add(&mut self, file: File, mapped: &Mapped) -> Option<Version> {
        let data = file.metadata().ok()?;
        let version = Version {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            changed: (data.ctime(), data.ctime_nsec()),
        };
        let number = mapped.inode.map(|inode| inode.number);
        // Devices differ where a file system has layers (overlay, btrfs).
        number
            .is_none_or(|number| number == data.ino())
            .then_some(())?;
        // The newest of all: it stays.
        self.clock += 1;
        if !self.modules.contains_key(&version) {
            let kept = Kept {
                module: Module::new(Elf::read(Source::File(file))?),
                used: self.clock,
                round: self.round,
            };
            self.modules.insert(version, kept);
            self.make_room();
        }
        let kept = self.modules.get_mut(&version)?;
        (kept.used, kept.round) = (self.clock, self.round);
        let same = |id: &[u8]| kept.module.elf.build_id.as_deref() == Some(id);
        mapped.build_id.as_deref().is_none_or(same).then_some(())?;
        if let Some(known) = known(mapped) {
            self.by_known.insert(known, version);
        }
        Some(version)
    }

    /// Drops those that were not wanted for the longest time.
    fn make_room(&mut self) {
        let mut memory: usize = self.modules.values().map(|kept| kept.module.memory()).sum();
        while self.modules.len() > MODULES || memory > MEMORY && self.modules.len() > 1 {
            let oldest = self.modules.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(version, _)| *version) else {
                return;
            };
            if let Some(kept) = self.modules.remove(&oldest) {
                memory -= kept.module.memory();
            }
            self.forget_others();
        }
    }

    /// Forgets what leads to modules that are not kept.
    fn forget_others(&mut self) {
        let modules = &self.modules;
        self.by_known
            .retain(|_, version| modules.contains_key(version));
        self.asked
            .retain(|_, version| version.is_none_or(|version| modules.contains_key(&version)));
    }

    /// Ends a round: what could not be opened is tried again. Files that no process has mapped
    /// (`mapped` are those of all that are known) and that nobody asked for in many rounds are
    /// closed: their file system, a container's, can go then.
    pub(super) fn round_ends<'a>(&mut self, mapped: impl Iterator<Item = &'a Mapped>) {
        self.asked.clear();
        self.round += 1;
        let last = self.round.saturating_sub(IDLE);
        let idle = |kept: &Kept| kept.round < last;
        // Not in each round: all mappings are looked at.
        if !self.round.is_multiple_of(IDLE / 2) || !self.modules.values().any(idle) {
            return;
        }
        let mapped: HashSet<Version> = { mapped.filter_map(known) }
            .filter_map(|known| self.by_known.get(&known).copied())
            .collect();
        self.modules
            .retain(|version, kept| !idle(kept) || mapped.contains(version));
        self.forget_others();
    }
}

fn known(mapped: &Mapped) -> Option<Known> {
    let id = mapped.build_id.clone().map(Known::BuildId);
    id.or_else(|| mapped.inode.map(Known::Inode))
}
