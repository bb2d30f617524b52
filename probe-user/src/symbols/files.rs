//! The files that processes execute ([`ModuleFiles`]): opened on demand and kept open within
//! limits, so that ended processes still have names.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    debug_files,
    elf::{Elf, ElfSource},
    mappings::Mapped,
    module::Module,
    opened, vdso,
};
use crate::{machine::process, sys::records::Inode};

/// Maximum number of open files. Each has a descriptor, and a second one for its debug file.
const MODULES: usize = 256;
/// Maximum memory of these files in bytes.
const MEMORY: usize = 256 << 20;

/// Rounds after which an unmapped and unused file is closed: about a minute.
const IDLE: u64 = 32;

/// The identity of a file in the kernel's records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FileId {
    BuildId(Box<[u8]>),
    Inode(Inode),
}

/// The identity and version of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    /// `st_ctime` in seconds and ns, which no user can set.
    changed: (i64, i64),
}

#[derive(Debug)]
struct CachedModule {
    module: Module,
    /// Time of the last use, on the cache's clock.
    used: u64,
    /// Round of the last use.
    round: u64,
}

#[derive(Debug)]
pub(super) struct ModuleFiles {
    proc: PathBuf,
    modules: HashMap<FileVersion, CachedModule>,
    /// Files by their identity in records, for ended processes.
    by_id: HashMap<FileId, FileVersion>,
    /// Results of this round, by process, address and time of the mapping.
    looked_up: HashMap<(u32, u64, u64), Option<FileVersion>>,
    vdso: Option<Module>,
    clock: u64,
    round: u64,
    pub(super) unreadable: u64,
    /// Unreadable files that the kernel denied access to.
    pub(super) refused: u64,
}

impl ModuleFiles {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            modules: HashMap::new(),
            by_id: HashMap::new(),
            looked_up: HashMap::new(),
            vdso: vdso::own(proc).map(Module::new),
            clock: 0,
            round: 0,
            unreadable: 0,
            refused: 0,
        }
    }

    /// Opens a newly mapped file, so that its names outlive the process.
    pub(super) fn open(&mut self, pid: u32, mapped: &Mapped) {
        if file_id(mapped).is_none_or(|id| !self.by_id.contains_key(&id)) {
            self.open_mapped(pid, mapped);
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
            // All 64-bit processes have the same vDSO; 32-bit ones have another.
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
        let version = match self.looked_up.get(&key) {
            Some(version) => *version,
            None => {
                let version = self.find(pid, ancestors, mapped);
                if version.is_none() {
                    self.unreadable += 1;
                    self.refused += u64::from(opened::is_refused(&self.proc, pid));
                }
                self.looked_up.insert(key, version);
                version
            }
        };
        let recorded_id = mapped.build_id.as_deref().map(Into::into);
        let Some(cached) = version.and_then(|version| self.modules.get_mut(&version)) else {
            return (None, recorded_id);
        };
        (cached.used, cached.round) = (self.clock, self.round);
        let before = cached.module.memory();
        let proc = &self.proc;
        let name = cached
            .module
            .name(offset, |elf| debug_files::find(proc, pid, mapped, elf));
        let build_id = cached.module.build_id.clone().or(recorded_id);
        if cached.module.memory() != before {
            self.evict();
        }
        (name, build_id)
    }

    fn find(
        &mut self,
        pid: u32,
        ancestors: impl Iterator<Item = u32>,
        mapped: &Mapped,
    ) -> Option<FileVersion> {
        self.open_mapped(pid, mapped)
            // If the process has ended or changed its root, its ancestors most likely have the same
            // root.
            .or_else(|| { ancestors }.find_map(|parent| self.at_path(parent, mapped)))
            .or_else(|| {
                let version = self.by_id.get(&file_id(mapped)?)?;
                self.modules.contains_key(version).then_some(*version)
            })
            .or_else(|| self.at_path(std::process::id(), mapped))
    }

    fn open_mapped(&mut self, pid: u32, mapped: &Mapped) -> Option<FileVersion> {
        let range = |pid| format!("{pid}/map_files/{:x}-{:x}", mapped.start, mapped.end);
        let link = |pid| opened::link(&self.proc.join(range(pid)));
        let file = link(pid).or_else(|| {
            let thread = process::surviving_thread(&self.proc, pid);
            (thread != pid).then(|| link(thread)).flatten()
        });
        let exact = file.and_then(|file| self.add(file, mapped));
        exact.or_else(|| self.at_path(pid, mapped))
    }

    fn at_path(&mut self, pid: u32, mapped: &Mapped) -> Option<FileVersion> {
        let path = mapped
            .name
            .strip_suffix(b" (deleted)")
            .unwrap_or(&mapped.name);
        self.add(opened::in_root(&self.proc, pid, path)?, mapped)
    }

    /// Adds a file if it is the mapped one.
    fn add(&mut self, file: File, mapped: &Mapped) -> Option<FileVersion> {
        let data = file.metadata().ok()?;
        let version = FileVersion {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            changed: (data.ctime(), data.ctime_nsec()),
        };
        let number = mapped.inode.map(|inode| inode.number);
        // Only inode numbers are compared: devices differ on layered file systems (overlay, btrfs).
        number
            .is_none_or(|number| number == data.ino())
            .then_some(())?;
        // A new file is the most recently used, so that it is not evicted.
        self.clock += 1;
        if !self.modules.contains_key(&version) {
            let cached = CachedModule {
                module: Module::new(Elf::read(ElfSource::File(file))?),
                used: self.clock,
                round: self.round,
            };
            self.modules.insert(version, cached);
            self.evict();
        }
        let cached = self.modules.get_mut(&version)?;
        (cached.used, cached.round) = (self.clock, self.round);
        let same = |id: &[u8]| cached.module.elf.build_id.as_deref() == Some(id);
        mapped.build_id.as_deref().is_none_or(same).then_some(())?;
        if let Some(id) = file_id(mapped) {
            self.by_id.insert(id, version);
        }
        Some(version)
    }

    /// Evicts the least recently used files.
    fn evict(&mut self) {
        let mut memory: usize = self
            .modules
            .values()
            .map(|cached| cached.module.memory())
            .sum();
        while self.modules.len() > MODULES || memory > MEMORY && self.modules.len() > 1 {
            let oldest = self.modules.iter().min_by_key(|(_, cached)| cached.used);
            let Some(oldest) = oldest.map(|(version, _)| *version) else {
                return;
            };
            if let Some(cached) = self.modules.remove(&oldest) {
                memory -= cached.module.memory();
            }
            self.drop_stale_keys();
        }
    }

    /// Removes the keys of evicted modules.
    fn drop_stale_keys(&mut self) {
        let modules = &self.modules;
        self.by_id
            .retain(|_, version| modules.contains_key(version));
        self.looked_up
            .retain(|_, version| version.is_none_or(|version| modules.contains_key(&version)));
    }

    /// Ends a round: unreadable files will be tried again. Closes files that no process has mapped
    /// (`mapped` has the mappings of all known processes) and that were not used for many rounds,
    /// so that a container's file system can be unmounted.
    pub(super) fn end_round<'a>(&mut self, mapped: impl Iterator<Item = &'a Mapped>) {
        self.looked_up.clear();
        self.round += 1;
        let last = self.round.saturating_sub(IDLE);
        let idle = |cached: &CachedModule| cached.round < last;
        // Not in each round, since it checks all mappings.
        if !self.round.is_multiple_of(IDLE / 2) || !self.modules.values().any(idle) {
            return;
        }
        let mapped: HashSet<FileVersion> = mapped
            .filter_map(file_id)
            .filter_map(|id| self.by_id.get(&id).copied())
            .collect();
        self.modules
            .retain(|version, cached| !idle(cached) || mapped.contains(version));
        self.drop_stale_keys();
    }
}

fn file_id(mapped: &Mapped) -> Option<FileId> {
    let id = mapped.build_id.clone().map(FileId::BuildId);
    id.or_else(|| mapped.inode.map(FileId::Inode))
}
