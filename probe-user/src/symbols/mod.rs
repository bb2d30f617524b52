//! Names of functions for addresses of samples: of running and ended processes, of containers'
//! files, of JIT-compiled code, and of the kernel. The entry type is [`Symbols`].
//!
//! [`Symbols`] does no work for an address until its name is requested. Files of containers are
//! untrusted: only regular files below the process's own root are opened, and reads are bounded.
//! The tables are read in pieces, by the crate `object`. They are not mapped into memory, as
//! blazesym does: a container that truncates its program would then kill this process by SIGBUS.

mod debug_files;
mod demangle;
mod elf;
mod files;
mod functions;
mod jit;
mod kernel;
mod mapping_watch;
mod mappings;
pub(crate) mod maps;
mod module;
pub(crate) mod named;
pub(crate) mod notes;
mod opened;
#[cfg(test)]
mod tests;
mod vdso;
mod watched_processes;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use self::{
    jit::JitMap,
    kernel::KernelSymbols,
    mapping_watch::{MappingWatch, locked},
    watched_processes::WatchedProcesses,
};
use crate::{
    machine::Roots,
    snapshot::{CodeLocation, NameCounts},
};

pub use self::{mapping_watch::FollowError, maps::Mapping};

/// Maximum number of JIT maps.
const MAX_JITS: usize = 256;
/// Maximum memory of all JIT maps in bytes.
const MAX_JIT_MEMORY: usize = 128 << 20;
/// Maximum bytes of JIT map files read in a round: reading them takes some 100 ms. The remaining
/// bytes are read in the next round.
const MAX_JIT_READ: u64 = 16 << 20;

/// The owner of an address: the kernel or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressOwner {
    /// The kernel.
    Kernel,
    /// A process, by its id in the pid namespace of this process.
    Process(u32),
}

/// The JIT map of a program.
#[derive(Debug, Default)]
struct Jit {
    map: JitMap,
    /// The round in which the map was last read.
    read_in: u64,
}

/// Names addresses.
pub struct Symbols {
    roots: Roots,
    watched: Arc<Mutex<WatchedProcesses>>,
    watch: Option<MappingWatch>,
    kernel: Option<KernelSymbols>,
    /// Whether kallsyms was read in this round.
    kallsyms_was_read: bool,
    /// Content of `/proc/modules` when kallsyms was read.
    modules: Option<Vec<u8>>,
    /// Whether `modules` was compared in this round.
    modules_compared: bool,
    /// JIT maps, by process and the time at which it executed the program.
    jits: HashMap<(u32, u64), Jit>,
    /// Bytes of JIT map files that may still be read in this round.
    jit_budget: u64,
    round: u64,
    /// Number of JIT-compiled functions dropped because of limits.
    dropped_code: u64,
}

impl Symbols {
    /// Starts without any names. Without [`Self::follow`], addresses of ended processes cannot be
    /// named.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            watched: Arc::new(Mutex::new(WatchedProcesses::new(&roots.proc))),
            roots: roots.clone(),
            watch: None,
            kernel: None,
            kallsyms_was_read: false,
            modules: None,
            modules_compared: false,
            jits: HashMap::new(),
            jit_budget: MAX_JIT_READ,
            round: 1,
            dropped_code: 0,
        }
    }

    /// Starts to watch the forks, execs, mappings and exits of all processes on these CPUs, in its
    /// own thread (256 KiB of locked memory per CPU). A further call changes the CPUs.
    ///
    /// # Errors
    ///
    /// If the kernel does not allow it (`CAP_PERFMON`). Then only running processes have names.
    pub fn follow(&mut self, cpus: &[u32]) -> Result<(), FollowError> {
        if let Some(watch) = &mut self.watch {
            return watch.set_cpus(cpus);
        }
        self.watch = Some(MappingWatch::start(cpus, Arc::clone(&self.watched))?);
        locked(&self.watched).mappings.followed = true;
        Ok(())
    }

    /// Handles all records of processes so far. Call it before naming the addresses of a window.
    pub fn catch_up(&self) {
        if let Some(watch) = &self.watch {
            watch.catch_up();
        }
    }

    /// Names an address. `time` is the time of the sample, in ns of the kernel's `CLOCK_MONOTONIC`
    /// (`bpf_ktime_get_ns`): the process may have executed another program since, or its id may
    /// have been reused. None names the current code.
    pub fn name(&mut self, owner: AddressOwner, address: u64, time: Option<u64>) -> CodeLocation {
        match owner {
            AddressOwner::Kernel => self.in_kernel(address),
            AddressOwner::Process(pid) => self.in_process(pid, address, time),
        }
    }

    /// A time that distinguishes the code at an address from earlier code, in ns of
    /// `CLOCK_MONOTONIC`: when the process executed the program, or mapped this file in place of
    /// another file. 0 for the kernel, and if the time is unknown.
    pub fn code(&mut self, owner: AddressOwner, address: u64, time: Option<u64>) -> u64 {
        match owner {
            AddressOwner::Kernel => 0,
            AddressOwner::Process(pid) => locked(&self.watched)
                .mappings
                .code_start(pid, address, time),
        }
    }

    fn in_kernel(&mut self, address: u64) -> CodeLocation {
        let at = self.kernel.as_ref().and_then(|kernel| kernel.at(address));
        let known = at.filter(|at| at.name.is_some());
        // Modules and BPF programs come and go; the kernel's own code is permanent.
        let is_permanent = known.as_ref().map(|at| &*at.module == kernel::KERNEL);
        let is_stale = match (&self.kernel, is_permanent) {
            (None, _) => true,
            (Some(_), Some(true)) => false,
            // kallsyms would still hide the addresses.
            (Some(kernel), None) if kernel.hidden.is_some() => false,
            // Without records, changes of BPF programs are unknown.
            (Some(_), None) if self.watch.is_none() => true,
            (Some(_), _) => self.kernel_changed(),
        };
        if is_stale && !std::mem::replace(&mut self.kallsyms_was_read, true) {
            locked(&self.watched).kernel_changed = false;
            self.modules = self.read_modules();
            self.kernel = Some(KernelSymbols::read(&self.roots));
        }
        let kernel = self.kernel.as_ref();
        let build_id = kernel.and_then(|kernel| kernel.build_id.clone());
        match kernel.and_then(|kernel| kernel.at(address)) {
            Some(at) => CodeLocation {
                function: at.name.map(Into::into),
                build_id: build_id.filter(|_| &*at.module == kernel::KERNEL),
                module: at.module,
                offset: at.offset.unwrap_or(address),
            },
            None => CodeLocation {
                function: None,
                module: kernel::KERNEL.into(),
                build_id,
                offset: address,
            },
        }
    }

    /// Whether modules or BPF programs may have changed since kallsyms was read.
    fn kernel_changed(&mut self) -> bool {
        let mut changed = locked(&self.watched).kernel_changed;
        if !std::mem::replace(&mut self.modules_compared, true) {
            changed |= self.read_modules() != self.modules;
        }
        changed
    }

    fn read_modules(&self) -> Option<Vec<u8>> {
        std::fs::read(self.roots.proc.join("modules")).ok()
    }

    fn in_process(&mut self, pid: u32, address: u64, time: Option<u64>) -> CodeLocation {
        let mut watched = locked(&self.watched);
        let WatchedProcesses {
            mappings, files, ..
        } = &mut *watched;
        let Some(mapped) = mappings.at(pid, address, time) else {
            return CodeLocation {
                function: None,
                module: "[unknown]".into(),
                build_id: None,
                offset: address,
            };
        };
        let name = String::from_utf8_lossy(&mapped.name);
        if is_anonymous(&name) {
            let image = mappings.image_start(pid, time);
            // The JIT map file has only the current program's functions.
            let is_current = mappings.image_start(pid, None) == image;
            drop(watched);
            return CodeLocation {
                function: self.compiled((pid, image), is_current, address),
                module: "[jit]".into(),
                build_id: None,
                offset: address,
            };
        }
        let (function, build_id) = files.name(pid, mappings.ancestors(pid), &mapped, address);
        CodeLocation {
            function,
            module: name.into(),
            build_id,
            offset: (address - mapped.start).saturating_add(mapped.offset),
        }
    }

    /// The name at an address in a program's JIT map. `is_current` says whether the process still
    /// executes the program.
    fn compiled(
        &mut self,
        (pid, image): (u32, u64),
        is_current: bool,
        address: u64,
    ) -> Option<Arc<str>> {
        let jit = self.jits.entry((pid, image)).or_default();
        let first_in_round = std::mem::replace(&mut jit.read_in, self.round) != self.round;
        if first_in_round
            && is_current
            && let Some(file) = JitMap::open(&self.roots.proc, pid)
        {
            let dropped = jit.map.dropped;
            jit.map.read(file, &mut self.jit_budget);
            self.dropped_code += jit.map.dropped - dropped;
        }
        let name = jit
            .map
            .name(address)
            .map(|name| demangle::demangled(name).into());
        if first_in_round {
            self.evict_jits();
        }
        name
    }

    /// Evicts the least recently used JIT maps while they exceed the limits.
    fn evict_jits(&mut self) {
        let memory =
            |jits: &HashMap<_, Jit>| jits.values().map(|jit| jit.map.memory()).sum::<usize>();
        while self.jits.len() > MAX_JITS
            || self.jits.len() > 1 && memory(&self.jits) > MAX_JIT_MEMORY
        {
            let oldest = self.jits.iter().min_by_key(|(_, jit)| jit.read_in);
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                return;
            };
            self.jits.remove(&oldest);
        }
    }

    /// The reason why functions of the kernel have no names, in one sentence; None if they have
    /// names.
    pub fn kernel_hidden(&mut self) -> Option<&str> {
        if self.kernel.is_none() {
            self.modules = self.read_modules();
        }
        let kernel = self
            .kernel
            .get_or_insert_with(|| KernelSymbols::read(&self.roots));
        kernel.hidden.as_deref()
    }

    /// Ends a round of names: unreadable files will be tried again, and processes that ended before
    /// `until` are dropped. `until` is the beginning of the next window, in ns of the kernel's
    /// `CLOCK_MONOTONIC`.
    pub fn end_round(&mut self, until: u64) {
        let mut watched = locked(&self.watched);
        let WatchedProcesses {
            mappings, files, ..
        } = &mut *watched;
        mappings.end_round(until);
        files.end_round(mappings.all());
        drop(watched);
        (self.kallsyms_was_read, self.modules_compared) = (false, false);
        self.round += 1;
        self.jit_budget = MAX_JIT_READ;
    }

    /// Counts of what was lost, dropped or unreadable so far.
    #[must_use]
    pub fn counts(&self) -> NameCounts {
        let watched = locked(&self.watched);
        NameCounts {
            unreadable: watched.files.unreadable,
            refused: watched.mappings.counts.refused + watched.files.refused,
            dropped_code: self.dropped_code,
            ..watched.mappings.counts
        }
    }
}

/// Whether executable memory with this name has JIT-compiled code: it has no file with code.
fn is_anonymous(name: &str) -> bool {
    let is_kernel_code = ["[vdso]", "[vsyscall]", "[uprobes]"].contains(&name);
    let shared_memory = [
        "/memfd:",
        "/dev/zero",
        "/SYSV",
        "/anon_hugepage",
        "/dev/shm/",
    ];
    (!name.starts_with('/') || name.starts_with("//")) && !is_kernel_code
        || shared_memory.iter().any(|prefix| name.starts_with(prefix))
}
