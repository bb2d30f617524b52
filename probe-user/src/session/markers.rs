//! Observes the marker functions of programs (docs/reference/regions.md) by uprobes. A probe is in
//! a file, which may be of any mount namespace. It fires in all processes that execute the file,
//! but the eBPF program reports only observed processes.

mod scanned_files;

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
};

use probe_common::{CgroupId, MarkerCpu, MarkerKind, MarkerRecord, ProcessWalk};

use self::scanned_files::ScannedFiles;
use super::{
    EbpfObject, SessionError,
    object::{FOLLOW_FORK, FOLLOW_FREE, MARKER, MARKER_EXEC, MARKER_EXIT, MARKER_FORK},
    walk,
};
use crate::{
    machine::{Machine, capabilities},
    symbols::named,
    sys::records::Map,
};

/// Maximum number of probes. A program that uses markers has three.
const MAX_PROBES: usize = 4096;

/// Maximum bytes of symbols that are searched in one round. The largest known programs have some
/// 200 MiB of symbols.
const MAX_SYMBOL_BYTES: u64 = 256 << 20;

/// The processes that are observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkerScope {
    /// These processes, by their ids in the pid namespace of this process, and their descendants.
    Processes(Vec<u32>),
    /// All processes in this cgroup and below it.
    Cgroup(CgroupId),
}

/// The result of a search for marker functions in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanResult {
    /// The file has marker functions, which are observed from now on.
    Markers,
    /// The file has no marker functions.
    None,
    /// The file is stripped of symbols, so marker functions cannot be found.
    Stripped,
    /// The file is no program and no library.
    NoProgram,
    /// The file, with those before it, exceeds a limit: of functions, of bytes of symbols, or of
    /// probes. Its marker functions are not observed.
    TooMuch,
    /// The file is a 32-bit program, whose markers are not read.
    Narrow,
}

/// The result of a search in the files that a process executes, for marker functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessScan {
    /// The result of all files together; None if all were searched before. [`ScanResult::Markers`]
    /// precedes results that may hide markers, and these precede [`ScanResult::None`].
    pub result: Option<ScanResult>,
    /// Files that could not be opened, by their names in the process: the process has ended, or the
    /// files are gone.
    pub unopened: Vec<Vec<u8>>,
}

/// A running observation. Dropping it removes the probes.
pub struct Markers {
    object: EbpfObject,
    files: ScannedFiles,
    /// Number of probes.
    probes: usize,
    /// Bytes of symbols that were searched in this round.
    searched_bytes: u64,
    /// Number of records that were taken from the ring.
    taken: u64,
}

impl Markers {
    /// Loads the programs. No file has probes yet: see [`Self::observe`].
    ///
    /// # Errors
    ///
    /// If a right or a kernel feature is missing, or a process is gone.
    pub fn open(machine: &Machine, scope: &MarkerScope) -> Result<Self, SessionError> {
        capabilities::check()?;
        let cgroup = match scope {
            MarkerScope::Processes(_) => None,
            MarkerScope::Cgroup(id) => Some(*id),
        };
        let mut object = EbpfObject::load_markers(machine, cgroup)?;
        if let MarkerScope::Processes(pids) = scope {
            object.programs.attach(FOLLOW_FORK)?;
            object.programs.attach(FOLLOW_FREE)?;
            for pid in pids {
                let wanted = ProcessWalk {
                    wanted: u64::from(*pid),
                    ..ProcessWalk::default()
                };
                let found = u32::try_from(walk::run(&mut object, wanted)?.found);
                let host_pid = found
                    .ok()
                    .filter(|host_pid| *host_pid != 0)
                    .ok_or(SessionError::NoProcess(*pid))?;
                object.maps.command.put(&host_pid, &1)?;
            }
        }
        for program in [MARKER_FORK, MARKER_EXEC, MARKER_EXIT] {
            object.programs.attach(program)?;
        }
        object.programs.release_types();
        Ok(Self {
            object,
            files: ScannedFiles::default(),
            probes: 0,
            searched_bytes: 0,
            taken: 0,
        })
    }

    /// Puts probes on the marker functions of a file. None if the file has probes already, or if it
    /// was searched before and has not changed since.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the probes.
    pub fn observe(&mut self, file: &File) -> Result<Option<ScanResult>, SessionError> {
        let unreadable = |source| SessionError::Map {
            what: "look at a program".to_owned(),
            source,
        };
        let data = file.metadata().map_err(unreadable)?;
        if !self.files.needs_scan(&data) {
            return Ok(None);
        }
        let names = MarkerKind::FUNCTIONS.map(|(_, name)| name);
        let Some(found) = named::functions(file, &names, MAX_SYMBOL_BYTES - self.searched_bytes)
        else {
            return Ok(Some(ScanResult::NoProgram));
        };
        self.files.build_ids.extend(found.build_id);
        if found.is_too_much || self.probes + found.places.len() > MAX_PROBES {
            return Ok(Some(ScanResult::TooMuch));
        }
        self.searched_bytes += found.bytes;
        if !found.places.is_empty() {
            self.files.mark_probed(&data);
            self.probes += found.places.len();
        }
        for (number, offset) in &found.places {
            let (kind, _) = MarkerKind::FUNCTIONS[*number];
            let programs = &mut self.object.programs;
            programs.attach_uprobe(MARKER, file.as_fd(), *offset, kind as u64)?;
        }
        if !found.wide {
            return Ok(Some(ScanResult::Narrow));
        }
        Ok(Some(match (found.places.is_empty(), found.stripped) {
            (false, _) => ScanResult::Markers,
            (true, false) => ScanResult::None,
            (true, true) => ScanResult::Stripped,
        }))
    }

    /// [`Self::observe`] for a file below this process's own root. The file is not run.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the kernel refuses the probes.
    pub fn observe_file(&mut self, path: &Path) -> Result<Option<ScanResult>, SessionError> {
        let missing = || SessionError::Map {
            what: format!("read {}", path.display()),
            source: io::ErrorKind::NotFound.into(),
        };
        self.observe(&named::open(path).ok_or_else(missing)?)
    }

    /// [`Self::observe`] for the program that this process is about to run, and for its libraries.
    /// The program's loader is run to list them, so it must be a program that would be run anyway.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the kernel refuses the probes.
    pub fn observe_program(&mut self, path: &Path) -> Result<Option<ScanResult>, SessionError> {
        let mut result = self.observe_file(path)?;
        for library in named::libraries(path) {
            let Some(file) = named::open(&library) else {
                continue;
            };
            if self.observe(&file)? == Some(ScanResult::Markers) {
                result = Some(ScanResult::Markers);
            }
        }
        Ok(result)
    }

    /// [`Self::observe`] for the files that a process executes, in its mount namespace. `proc` is
    /// procfs.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the probes.
    pub fn observe_process(&mut self, proc: &Path, pid: u32) -> Result<ProcessScan, SessionError> {
        let mut scan = ProcessScan::default();
        for (name, file) in named::mapped(proc, pid) {
            let Some(file) = file else {
                scan.unopened.push(name);
                continue;
            };
            let result = &mut scan.result;
            match (*result, self.observe(&file)?) {
                (_, Some(ScanResult::Markers)) => *result = Some(ScanResult::Markers),
                (
                    None | Some(ScanResult::None),
                    Some(other @ (ScanResult::Stripped | ScanResult::Narrow | ScanResult::TooMuch)),
                ) => {
                    *result = Some(other);
                }
                (None, Some(other)) => *result = Some(other),
                _ => {}
            }
        }
        Ok(scan)
    }

    /// [`Self::observe`] for a file that a process has just mapped. A file that cannot be opened is
    /// reported once, and only if it was not searched before.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the probes.
    pub(crate) fn observe_mapped(
        &mut self,
        proc: &Path,
        map: &Map<'_>,
    ) -> Result<ProcessScan, SessionError> {
        let was_searched = self.files.is_known(map);
        let mut scan = ProcessScan::default();
        match named::in_process(proc, map.pid, map.name) {
            Some(file) => scan.result = self.observe(&file)?,
            None if was_searched => {}
            None => scan.unopened.push(map.name.to_vec()),
        }
        self.files.mark_scanned(map);
        Ok(scan)
    }

    /// Ends a round: the next round may search the full number of bytes again.
    pub fn end_round(&mut self) {
        self.searched_bytes = 0;
    }

    /// Takes the markers out of the ring, in the ring's order. Every marker that a thread made
    /// before this call is included, or is counted as lost.
    ///
    /// # Errors
    ///
    /// If the counts cannot be read.
    pub fn drain(&mut self, mut each: impl FnMut(MarkerRecord<'_>)) -> Result<(), SessionError> {
        let written = self.counts()?.written;
        loop {
            let taken = &mut self.taken;
            self.object.maps.markers.drain(|bytes| {
                *taken += 1;
                if let Some(marked) = MarkerRecord::parse(bytes) {
                    each(marked);
                }
            });
            if self.taken >= written {
                return Ok(());
            }
            // An earlier record is still being written.
            std::thread::yield_now();
        }
    }

    /// A descriptor that is readable when [`Self::drain`] should be called.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.object.maps.markers.fd()
    }

    /// Counts of written and lost markers.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counts(&self) -> Result<MarkerCpu, SessionError> {
        let counts = self.object.maps.marker_cpu.get(0)?;
        Ok(counts.into_values().fold(MarkerCpu::ZERO, |mut sum, one| {
            probe_common::Field::add(&mut sum, &one);
            sum
        }))
    }
}
