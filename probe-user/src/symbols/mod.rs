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
use crate::{machine::Roots, snapshot::Place};

pub use self::{follow::FollowError, maps::Mapping};

/// Maps of code made at run time that are kept.
const JITS: usize = 256;

/// Whose address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// The kernel's.
    Kernel,
    /// A process's, by its id in the pid namespace of this process.
    Process(u32),
}

/// What names did not tell, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Records about processes that the kernel lost, since its rings were full. Processes that live
    /// are read from procfs again.
    pub lost: u64,
    /// Processes whose mappings were read from procfs.
    pub read: u64,
    /// Processes that were forgotten, since there were too many.
    pub dropped_processes: u64,
    /// Mappings that were forgotten, since their process had too many.
    pub dropped_mappings: u64,
    /// Mappings whose file could not be read when it was asked for.
    pub unreadable: u64,
}

/// Names addresses.
pub struct Symbols {
    roots: Roots,
    watched: Arc<Mutex<Watched>>,
    follower: Option<Follower>,
    kernel: Option<Kernel>,
    /// kallsyms was read in this round.
    kernel_fresh: bool,
    /// By process and the time at which it mapped the code; whether it was read in this round.
    jits: HashMap<(u32, u64), (JitMap, bool)>,
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
            jits: HashMap::new(),
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

    fn in_kernel(&mut self, address: u64) -> Place {
        let fresh = std::mem::replace(&mut self.kernel_fresh, true);
        let known = self
            .kernel
            .as_ref()
            .is_some_and(|kernel| kernel.at(address).is_some_and(|at| at.name.is_some()));
        if !known && !fresh {
            // Modules and BPF programs come and go.
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

    fn in_process(&mut self, pid: u32, address: u64, time: Option<u64>) -> Place {
        let mut watched = locked(&self.watched);
        let Watched { mappings, files } = &mut *watched;
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
            drop(watched);
            return Place {
                function: self.compiled(pid, mapped.since, address),
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

    /// The name that the process itself gave to its code.
    fn compiled(&mut self, pid: u32, since: u64, address: u64) -> Option<Arc<str>> {
        let key = (pid, since);
        if self.jits.len() >= JITS && !self.jits.contains_key(&key) {
            self.jits.clear();
        }
        let (map, fresh) = self.jits.entry(key).or_default();
        if !std::mem::replace(fresh, true)
            && let Some(file) = JitMap::open(&self.roots.proc, pid)
        {
            map.read(file);
        }
        map.name(address)
            .map(|name| demangle::demangled(name).into())
    }

    /// Why functions of the kernel have no names, in one sentence; None where they have.
    pub fn kernel_hidden(&mut self) -> Option<&str> {
        let kernel = self.kernel.get_or_insert_with(|| Kernel::read(&self.roots));
        kernel.hidden.as_deref()
    }

    /// Ends a round of names: files that could not be read are tried again. What ended before
    /// `until`, in ns of the kernel's `CLOCK_MONOTONIC`, is forgotten: the beginning of the window
    /// whose samples come next.
    pub fn forget(&mut self, until: u64) {
        let mut watched = locked(&self.watched);
        watched.mappings.forget(until);
        watched.files.round_ends();
        self.kernel_fresh = false;
        self.jits.values_mut().for_each(|(_, fresh)| *fresh = false);
    }

    /// What was lost, dropped or unreadable so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let watched = locked(&self.watched);
        Counts {
            unreadable: watched.files.unreadable,
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
