//! Observes the marker functions of programs (docs/regions.md) by uprobes. A probe is in a file,
//! which may be of any mount namespace, and fires in all processes that execute the file; the
//! program in the kernel tells of those that are observed.

mod files;

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
};

use probe_common::{CgroupId, Marked, MarkerCpu, MarkerKind, Walk};

use self::files::Files;
use super::{
    Object, SessionError,
    object::{FOLLOW_FORK, FOLLOW_FREE, MARKER, MARKER_EXEC, MARKER_EXIT, MARKER_FORK},
    walk,
};
use crate::{
    machine::{Machine, capabilities},
    symbols::named,
    sys::records::Map,
};

/// Probes at one time. A program that uses markers has three.
const PROBES: usize = 4096;

/// Bytes of symbols that are looked through in one round: the largest programs known have some
/// 200 MiB.
const BYTES: u64 = 256 << 20;

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
    /// It has more functions or symbols than are looked at, or others had: none are observed.
    TooMuch,
    /// It has 32 bits: markers of such programs are not read.
    Narrow,
}

/// What a look at the files that a process executes found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// What the best of them has; none where all were looked at before.
    pub has: Option<Has>,
    /// Those that could not be opened, as the process names them: it has ended, or they are gone.
    pub unopened: Vec<Vec<u8>>,
}

/// Running observation; dropping it takes the probes out.
pub struct Markers {
    object: Object,
    files: Files,
    probes: usize,
    /// Bytes of symbols that were looked through in this round.
    bytes: u64,
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
            files: Files::default(),
            probes: 0,
            bytes: 0,
            taken: 0,
        })
    }

    /// Puts probes on the marker functions of a file, unless they are there. None where this file
    /// was looked at before, and has not changed since.
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
        if !self.files.is_new(&data) {
            return Ok(None);
        }
        let names = MarkerKind::FUNCTIONS.map(|(_, name)| name);
        let Some(found) = named::functions(file, &names, BYTES - self.bytes) else {
            return Ok(Some(Has::NoProgram));
        };
        self.files.build_ids.extend(found.build_id);
        if found.is_too_much || self.probes + found.places.len() > PROBES {
            return Ok(Some(Has::TooMuch));
        }
        self.bytes += found.bytes;
        if !found.places.is_empty() {
            self.files.probed(&data);
            self.probes += found.places.len();
        }
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

    /// The same for a file below this process's own root. The file is not run.
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
    pub fn observe_process(&mut self, proc: &Path, pid: u32) -> Result<Looked, SessionError> {
        let mut looked = Looked::default();
        for (name, file) in named::mapped(proc, pid) {
            let Some(file) = file else {
                looked.unopened.push(name);
                continue;
            };
            let has = &mut looked.has;
            match (*has, self.observe(&file)?) {
                (_, Some(Has::Markers)) => *has = Some(Has::Markers),
                (
                    None | Some(Has::None),
                    Some(other @ (Has::Stripped | Has::Narrow | Has::TooMuch)),
                ) => {
                    *has = Some(other);
                }
                (None, Some(other)) => *has = Some(other),
                _ => {}
            }
        }
        Ok(looked)
    }

    /// The same for a file that a process has just mapped. One that cannot be opened is told of
    /// once, and not where it was looked at before.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses the probes.
    pub(crate) fn observe_mapped(
        &mut self,
        proc: &Path,
        map: &Map<'_>,
    ) -> Result<Looked, SessionError> {
        let known = self.files.has(map);
        let mut looked = Looked::default();
        match named::in_process(proc, map.pid, map.name) {
            Some(file) => looked.has = self.observe(&file)?,
            None if known => {}
            None => looked.unopened.push(map.name.to_vec()),
        }
        self.files.met(map);
        Ok(looked)
    }

    /// Ends a round: the next one may look through as many bytes again.
    pub fn round_ends(&mut self) {
        self.bytes = 0;
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
        Ok(counts.into_values().fold(MarkerCpu::ZERO, |mut sum, one| {
            probe_common::Field::add(&mut sum, &one);
            sum
        }))
    }
}
