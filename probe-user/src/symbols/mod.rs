//! Names of functions for addresses of samples: of processes, also those that ended, of containers'
//! files, of code that was made at run time, and of the kernel.
//!
//! [`Symbols`] does no work for an address until it is asked for its name. It reads files of
//! containers, which may be anything: only regular files are opened, below the process's own root,
//! and what is read of one is bounded. A crate such as blazesym maps files into memory, where a
//! container that cuts its program short would end this process by SIGBUS; so the tables are read
//! here, by `object`, in pieces.

mod debug_files;
mod demangle;
mod elf;
mod files;
mod follow;
mod functions;
mod jit;
mod kernel;
mod mappings;
pub(crate) mod maps;
mod module;
pub(crate) mod named;
pub(crate) mod notes;
mod opened;
#[cfg(test)]
mod tests;
mod vdso;
mod watched;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use self::{
    follow::{Follower, locked},
    jit::JitMap,
    kernel::Kernel,
    watched::Watched,
};
pub use crate::snapshot::NameCounts as Counts;
use crate::{machine::Roots, snapshot::Place};

pub use self::{follow::FollowError, maps::Mapping};

/// Maps of code made at run time that are kept.
const JITS: usize = 256;
/// Bytes of memory that they take together.
const JIT_MEMORY: usize = 128 << 20;
/// Bytes of their files that are read in a round: some 100 ms. The rest waits for the next one.
const JIT_READ: u64 = 16 << 20;

/// Whose address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// The kernel's.
    Kernel,
    /// A process's, by its id in the pid namespace of this process.
    Process(u32),
}

/// The map of a program that makes code at run time.
#[derive(Debug, Default)]
struct Jit {
    map: JitMap,
    /// The round in which it was read last.
    read: u64,
}

/// Names addresses.
pub struct Symbols {
    roots: Roots,
    watched: Arc<Mutex<Watched>>,
    follower: Option<Follower>,
    kernel: Option<Kernel>,
    /// kallsyms was read in this round.
    kernel_fresh: bool,
    /// `/proc/modules` when kallsyms was read.
    modules: Option<Vec<u8>>,
    /// It was compared in this round.
    modules_looked: bool,
    /// By process and program.
    jits: HashMap<(u32, u64), Jit>,
    /// Bytes of their files that may be read in this round.
    jit_budget: u64,
    round: u64,
    dropped_code: u64,
}

impl Symbols {
    /// Knows nothing yet. Without [`Self::follow`] a process has names only if it lives when it is
    /// asked for.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            watched: Arc::new(Mutex::new(Watched::new(&roots.proc))),
            roots: roots.clone(),
            follower: None,
            kernel: None,
            kernel_fresh: false,
            modules: None,
            modules_looked: false,
            jits: HashMap::new(),
            jit_budget: JIT_READ,
            round: 1,
            dropped_code: 0,
        }
    }

    /// From now on learns of all processes that begin, execute, map and end, on these CPUs, by a
    /// thread of its own (256 KiB of locked memory for each CPU). Called again it follows other
    /// CPUs: those that came online.
    ///
    /// # Errors
    ///
    /// Where the kernel does not allow it (`CAP_PERFMON`); names go on without.
    pub fn follow(&mut self, cpus: &[u32]) -> Result<(), FollowError> {
        if let Some(follower) = &mut self.follower {
            return follower.cpus(cpus);
        }
        self.follower = Some(Follower::start(cpus, Arc::clone(&self.watched))?);
        locked(&self.watched).mappings.followed = true;
        Ok(())
    }

    /// Takes in what processes did until now: before the addresses of a window are named.
    pub fn catch_up(&self) {
        if let Some(follower) = &self.follower {
            follower.catch_up();
        }
    }

    /// Names an address. `time` is that of the sample in ns of the kernel's `CLOCK_MONOTONIC`
    /// (`bpf_ktime_get_ns`): a process may have executed another program since, or its number may
    /// be another's now. Without it, it is what is there now.
    pub fn name(&mut self, space: Space, address: u64, time: Option<u64>) -> Place {
        match space {
            Space::Kernel => self.in_kernel(address),
            Space::Process(pid) => self.in_process(pid, address, time),
        }
    }

    /// Tells the code that has an address from that which had it before: when its process executed
    /// the program, or mapped this file in place of another one, in ns of `CLOCK_MONOTONIC`. 0 in
    /// the kernel, and where nothing is known.
    pub fn code(&mut self, space: Space, address: u64, time: Option<u64>) -> u64 {
        match space {
            Space::Kernel => 0,
            Space::Process(pid) => locked(&self.watched).mappings.code(pid, address, time),
        }
    }

    fn in_kernel(&mut self, address: u64) -> Place {
        let at = self.kernel.as_ref().and_then(|kernel| kernel.at(address));
        let known = at.filter(|at| at.name.is_some());
        // Modules and BPF programs come and go; the kernel's own code stays.
        let stays = known.as_ref().map(|at| &*at.module == kernel::KERNEL);
        let stale = match (&self.kernel, stays) {
            (None, _) => true,
            (Some(_), Some(true)) => false,
            // All that it would say is that it hides them.
            (Some(kernel), None) if kernel.hidden.is_some() => false,
            // Nobody tells of BPF programs where records are not read.
            (Some(_), None) if self.follower.is_none() => true,
            (Some(_), _) => self.kernel_changed(),
        };
        if stale && !std::mem::replace(&mut self.kernel_fresh, true) {
            locked(&self.watched).kernel_changed = false;
            self.modules = self.read_modules();
            self.kernel = Some(Kernel::read(&self.roots));
        }
        let kernel = self.kernel.as_ref();
        let build_id = kernel.and_then(|kernel| kernel.build_id.clone());
        match kernel.and_then(|kernel| kernel.at(address)) {
            Some(at) => Place {
                function: at.name.map(Into::into),
                build_id: build_id.filter(|_| &*at.module == kernel::KERNEL),
                module: at.module,
                offset: at.offset.unwrap_or(address),
            },
            None => Place {
                function: None,
                module: kernel::KERNEL.into(),
                build_id,
                offset: address,
            },
        }
    }

    /// Whether modules or BPF programs are others than when kallsyms was read.
    fn kernel_changed(&mut self) -> bool {
        let mut changed = locked(&self.watched).kernel_changed;
        if !std::mem::replace(&mut self.modules_looked, true) {
            changed |= self.read_modules() != self.modules;
        }
        changed
    }

    fn read_modules(&self) -> Option<Vec<u8>> {
        std::fs::read(self.roots.proc.join("modules")).ok()
    }

    fn in_process(&mut self, pid: u32, address: u64, time: Option<u64>) -> Place {
        let mut watched = locked(&self.watched);
        let Watched {
            mappings, files, ..
        } = &mut *watched;
        let Some(mapped) = mappings.at(pid, address, time) else {
            return Place {
                function: None,
                module: "[unknown]".into(),
                build_id: None,
                offset: address,
            };
        };
        let name = String::from_utf8_lossy(&mapped.name);
        if is_anonymous(&name) {
            let image = mappings.image(pid, time);
            // What another program of the process has compiled since says nothing of this one.
            let is_there = mappings.image(pid, None) == image;
            drop(watched);
            return Place {
                function: self.compiled((pid, image), is_there, address),
                module: "[jit]".into(),
                build_id: None,
                offset: address,
            };
        }
        let (function, build_id) = files.name(pid, mappings.ancestors(pid), &mapped, address);
        Place {
            function,
            module: name.into(),
            build_id,
            offset: (address - mapped.start).saturating_add(mapped.offset),
        }
    }

    /// The name that a program of a process itself gave to its code; `is_there`: the process
    /// executes it still.
    fn compiled(&mut self, of: (u32, u64), is_there: bool, address: u64) -> Option<Arc<str>> {
        let jit = self.jits.entry(of).or_default();
        let fresh = std::mem::replace(&mut jit.read, self.round) != self.round;
        if fresh
            && is_there
            && let Some(file) = JitMap::open(&self.roots.proc, of.0)
        {
            let dropped = jit.map.dropped;
            jit.map.read(file, &mut self.jit_budget);
            self.dropped_code += jit.map.dropped - dropped;
        }
        let name = jit.map.name(address);
        let name = name.map(|name| demangle::demangled(name).into());
        if fresh {
            self.bound_jits();
        }
        name
    }

    /// Drops those maps that were not asked for the longest time, where they are too many.
    fn bound_jits(&mut self) {
        let memory =
            |jits: &HashMap<_, Jit>| jits.values().map(|jit| jit.map.memory()).sum::<usize>();
        while self.jits.len() > JITS || self.jits.len() > 1 && memory(&self.jits) > JIT_MEMORY {
            let oldest = self.jits.iter().min_by_key(|(_, jit)| jit.read);
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                return;
            };
            self.jits.remove(&oldest);
        }
    }

    /// Why functions of the kernel have no names, in one sentence; None where they have.
    pub fn kernel_hidden(&mut self) -> Option<&str> {
        if self.kernel.is_none() {
            self.modules = self.read_modules();
        }
        let kernel = self.kernel.get_or_insert_with(|| Kernel::read(&self.roots));
        kernel.hidden.as_deref()
    }

    /// Ends a round of names: files that could not be read are tried again. What ended before
    /// `until`, in ns of the kernel's `CLOCK_MONOTONIC`, is forgotten: the beginning of the window
    /// whose samples come next.
    pub fn forget(&mut self, until: u64) {
        let mut watched = locked(&self.watched);
        let Watched {
            mappings, files, ..
        } = &mut *watched;
        mappings.forget(until);
        files.round_ends(mappings.all());
        drop(watched);
        (self.kernel_fresh, self.modules_looked) = (false, false);
        self.round += 1;
        self.jit_budget = JIT_READ;
    }

    /// What was lost, dropped or unreadable so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let watched = locked(&self.watched);
        Counts {
            unreadable: watched.files.unreadable,
            refused: watched.mappings.counts.refused + watched.files.refused,
            dropped_code: self.dropped_code,
            ..watched.mappings.counts
        }
    }
}

/// Whether memory that is executed has no file with code: what a compiler at run time makes.
fn is_anonymous(name: &str) -> bool {
    let kernel = ["[vdso]", "[vsyscall]", "[uprobes]"].contains(&name);
    let shared = [
        "/memfd:",
        "/dev/zero",
        "/SYSV",
        "/anon_hugepage",
        "/dev/shm/",
    ];
    (!name.starts_with('/') || name.starts_with("//")) && !kernel
        || shared.iter().any(|begin| name.starts_with(begin))
}
