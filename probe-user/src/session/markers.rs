//! Observes the marker functions of programs (docs/regions.md) by uprobes. A probe sits in a file,
//! in whatever mount namespace that is, and all processes that execute it meet it; the program in
//! the kernel tells of those that are observed.

use std::{
    collections::HashSet,
    fs::File,
    io,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::Path,
};

use probe_common::{CgroupId, Marked, MarkerCpu, MarkerKind, Walk};

use super::{
    Object, SessionError,
    object::{FOLLOW_FORK, FOLLOW_FREE, MARKER, MARKER_EXEC, MARKER_EXIT, MARKER_FORK},
    walk,
};
use crate::{
    machine::{Machine, capabilities},
    symbols::named,
};

/// Whose markers are observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Those of these processes, by their ids in the pid namespace of this process, and of the
    /// processes that they make.
    Processes(Vec<u32>),
    /// Those of all processes in this cgroup and those below it.
    Cgroup(CgroupId),
}

/// What a file has of marker functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// It has some, and they are observed from now on.
    Markers,
    /// It has none.
    None,
    /// It has none with a name: it was stripped of them, if it had some.
    Stripped,
    /// It is no program and no library.
    NoProgram,
    /// It has 32 bits: markers of such programs are not read.
    Narrow,
}

/// Running observation; dropping it takes the probes out.
pub struct Markers {
    object: Object,
    /// The files that were looked at, by device and inode.
    known: HashSet<(u64, u64)>,
    /// Records that were taken from the ring.
    taken: u64,
}

impl Markers {
    /// Loads the programs, and observes nothing yet: see [`Self::observe`].
    ///
    /// # Errors
    ///
    /// Where a right or a kernel feature is missing, or a process is gone.
    pub fn open(machine: &Machine, whom: &Observed) -> Result<Self, SessionError> {
        capabilities::check()?;
        let cgroup = match whom {
            Observed::Processes(_) => None,
            Observed::Cgroup(id) => Some(*id),
        };
        let mut object = Object::load_markers(machine, cgroup)?;
        if let Observed::Processes(pids) = whom {
            object.programs.attach(FOLLOW_FORK)?;
            object.programs.attach(FOLLOW_FREE)?;
            for pid in pids {
                let wanted = Walk {
                    wanted: u64::from(*pid),
                    ..Walk::default()
                };
                let found = u32::try_from(walk::run(&mut object, wanted)?.found);
                let host = found.ok().filter(|host| *host != 0);
                let host = host.ok_or(SessionError::NoProcess(*pid))?;
                object.maps.command.put(&host, &1)?;
            }
        }
        for program in [MARKER_FORK, MARKER_EXEC, MARKER_EXIT] {
            object.programs.attach(program)?;
        }
        object.programs.settle();
        Ok(Self {
            object,
            known: HashSet::new(),
            taken: 0,
        })
    }

    /// Puts probes on the marker functions of a file, unless they are there. None where this file
    /// was looked at before.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses them.
    pub fn observe(&mut self, file: &File) -> Result<Option<Has>, SessionError> {
        let read = |source| SessionError::Map {
            what: "look at a program".to_owned(),
            source,
        };
        let data = file.metadata().map_err(read)?;
        if !self.known.insert((data.dev(), data.ino())) {
            return Ok(None);
        }
        let names = MarkerKind::FUNCTIONS.map(|(_, name)| name);
        let Some(found) = named::functions(file, &names) else {
            return Ok(Some(Has::NoProgram));
        };
        for (number, offset) in &found.places {
            let (kind, _) = MarkerKind::FUNCTIONS[*number];
            let programs = &mut self.object.programs;
            programs.attach_uprobe(MARKER, file.as_fd(), *offset, kind as u64)?;
        }
        if !found.wide {
            return Ok(Some(Has::Narrow));
        }
        Ok(Some(match (found.places.is_empty(), found.stripped) {
            (false, _) => Has::Markers,
            (true, false) => Has::None,
            (true, true) => Has::Stripped,
        }))
    }

    /// The same for a file of this process's own root. Nothing of it is run.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or the kernel refuses the probes.
    pub fn observe_file(&mut self, path: &Path) -> Result<Option<Has>, SessionError> {
        let missing = || SessionError::Map {
            what: format!("read {}", path.display()),
            source: io::ErrorKind::NotFound.into(),
        };
        self.observe(&named::open(path).ok_or_else(missing)?)
    }

    /// The same for the program that this process is about to run, and the libraries that it will
    /// have: its loader is run to list them, so it must be one that would be run anyway.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or the kernel refuses the probes.
    pub fn observe_program(&mut self, path: &Path) -> Result<Option<Has>, SessionError> {
        let mut has = self.observe_file(path)?;
        for library in named::libraries(path) {
            let Some(file) = named::open(&library) else {
                continue;
            };
            if self.observe(&file)? == Some(Has::Markers) {
                has = Some(Has::Markers);
            }
        }
        Ok(has)
    }

    /// The same for what a process executes, as it sees it. `proc` is procfs.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses the probes.
    pub fn observe_process(&mut self, proc: &Path, pid: u32) -> Result<Option<Has>, SessionError> {
        let mut has = None;
        for file in named::mapped(proc, pid) {
            match (has, self.observe(&file)?) {
                (_, Some(Has::Markers)) => has = Some(Has::Markers),
                (None | Some(Has::None), Some(other @ (Has::Stripped | Has::Narrow))) => {
                    has = Some(other);
                }
                (None, Some(other)) => has = Some(other),
                _ => {}
            }
        }
        Ok(has)
    }

    /// The same for a file that a process has just mapped.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses the probes.
    pub fn observe_mapped(
        &mut self,
        proc: &Path,
        pid: u32,
        path: &[u8],
    ) -> Result<Option<Has>, SessionError> {
        named::in_process(proc, pid, path).map_or(Ok(None), |file| self.observe(&file))
    }

    /// Takes what was marked so far, in the order of the ring. Everything that a thread had marked
    /// before this call is among it, or counted as lost.
    ///
    /// # Errors
    ///
    /// Where the counts cannot be read.
    pub fn drain(&mut self, mut each: impl FnMut(Marked<'_>)) -> Result<(), SessionError> {
        let written = self.counts()?.written;
        loop {
            let taken = &mut self.taken;
            self.object.maps.markers.drain(|bytes| {
                *taken += 1;
                if let Some(marked) = Marked::parse(bytes) {
                    each(marked);
                }
            });
            if self.taken >= written {
                return Ok(());
            }
            // One before them is still being written.
            std::thread::yield_now();
        }
    }

    /// A descriptor that is readable when markers should be taken.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.object.maps.markers.fd()
    }

    /// What became of the markers so far.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot tell.
    pub fn counts(&self) -> Result<MarkerCpu, SessionError> {
        let counts = self.object.maps.marker_cpu.get(0)?;
        Ok(counts.into_iter().fold(MarkerCpu::ZERO, |mut sum, one| {
            probe_common::Field::add(&mut sum, &one);
            sum
        }))
    }
}
