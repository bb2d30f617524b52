//! The files that processes execute ([`ModuleFiles`]): opened on demand and kept open within
//! limits, so that addresses of ended processes can still be named.

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

/// Maximum number of open files. Each takes a descriptor, and a second one for its debug file.
const MAX_MODULES: usize = 256;
/// Maximum memory that all open files take, in bytes.
const MAX_MEMORY: usize = 256 << 20;

/// Number of rounds after which an unmapped and unused file is closed: about a minute.
const IDLE_ROUNDS: u64 = 32;

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
    /// When it was last used, on [`ModuleFiles::clock`].
    used: u64,
    /// The round in which it was last used.
    round: u64,
}

#[derive(Debug)]
pub(super) struct ModuleFiles {
    proc: PathBuf,
    modules: HashMap<FileVersion, CachedModule>,
    /// Files by their identity in records, for ended processes.
    by_id: HashMap<FileId, FileVersion>,
    /// Files found in this round, by process, address and time of the mapping; None if the file
    /// could not be read.
    looked_up: HashMap<(u32, u64, u64), Option<FileVersion>>,
    vdso: Option<Module>,
    /// Counts uses of files, to find the least recently used one.
    clock: u64,
    round: u64,
    /// Number of mappings whose file could not be read.
    pub(super) unreadable: u64,
    /// Number of these for which the kernel denied access to the process's root.
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

    /// The function at an address of a process's mapping, and the build id of the mapped file.
    pub(super) fn name(
        &mut self,
        pid: u32,
        ancestors: impl Iterator<Item = u32>,
        mapped: &Mapped,
        address: u64,
    ) -> (Option<Arc<str>>, Option<Arc<[u8]>>) {
        let offset = (address - mapped.start).saturating_add(mapped.offset);
        if &*mapped.name == b"[vdso]" {
            // All 64-bit processes have the vDSO of this process. 32-bit processes have another
            // one, of another size.
            let size = mapped.end - mapped.start;
            let same_vdso = self
                .vdso
                .as_mut()
                .filter(|vdso| vdso::size(&vdso.elf) == size);
            return same_vdso.map_or((None, None), |vdso| {
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
            // If the process has ended or changed its root, its ancestors most likely have the root
            // in which the file is.
            .or_else(|| { ancestors }.find_map(|parent| self.at_path(parent, mapped)))
            .or_else(|| {
                let version = self.by_id.get(&file_id(mapped)?)?;
                self.modules.contains_key(version).then_some(*version)
            })
            .or_else(|| self.at_path(std::process::id(), mapped))
    }

    /// Opens a mapped file of a running process: by its link in `map_files`, else by its path.
    fn open_mapped(&mut self, pid: u32, mapped: &Mapped) -> Option<FileVersion> {
        let range = |pid| format!("{pid}/map_files/{:x}-{:x}", mapped.start, mapped.end);
        let link = |pid| opened::regular_file(&self.proc.join(range(pid)));
        let file = link(pid).or_else(|| {
            let thread = process::surviving_thread(&self.proc, pid);
            (thread != pid).then(|| link(thread)).flatten()
        });
        let by_link = file.and_then(|file| self.add(file, mapped));
        by_link.or_else(|| self.at_path(pid, mapped))
    }

    /// Opens a mapped file by its path in a process's root.
    fn at_path(&mut self, pid: u32, mapped: &Mapped) -> Option<FileVersion> {
        let path = mapped
            .name
            .strip_suffix(b" (deleted)")
            .unwrap_or(&mapped.name);
        self.add(opened::in_root(&self.proc, pid, path)?, mapped)
    }

    /// Adds a file if it is the mapped file.
    fn add(&mut self, file: File, mapped: &Mapped) -> Option<FileVersion> {
        let metadata = file.metadata().ok()?;
        let version = FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let inode_number = mapped.inode.map(|inode| inode.number);
        // Only inode numbers are compared: devices differ on layered file systems (overlay, btrfs).
        inode_number
            .is_none_or(|number| number == metadata.ino())
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
        let has_id = |id: &[u8]| cached.module.elf.build_id.as_deref() == Some(id);
        mapped
            .build_id
            .as_deref()
            .is_none_or(has_id)
            .then_some(())?;
        if let Some(id) = file_id(mapped) {
            self.by_id.insert(id, version);
        }
        Some(version)
    }

    /// Evicts the least recently used files while they exceed the limits.
    fn evict(&mut self) {
        let mut memory: usize = self
            .modules
            .values()
            .map(|cached| cached.module.memory())
            .sum();
        while self.modules.len() > MAX_MODULES || memory > MAX_MEMORY && self.modules.len() > 1 {
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
        let oldest_busy = self.round.saturating_sub(IDLE_ROUNDS);
        let is_idle = |cached: &CachedModule| cached.round < oldest_busy;
        // Skips most rounds, since all mappings are checked.
        if !self.round.is_multiple_of(IDLE_ROUNDS / 2) || !self.modules.values().any(is_idle) {
            return;
        }
        let mapped: HashSet<FileVersion> = mapped
            .filter_map(file_id)
            .filter_map(|id| self.by_id.get(&id).copied())
            .collect();
        self.modules
            .retain(|version, cached| !is_idle(cached) || mapped.contains(version));
        self.drop_stale_keys();
    }
}

/// The identity of a mapped file in records; None if it has neither build id nor inode.
fn file_id(mapped: &Mapped) -> Option<FileId> {
    let id = mapped.build_id.clone().map(FileId::BuildId);
    id.or_else(|| mapped.inode.map(FileId::Inode))
}
