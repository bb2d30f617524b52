//! Observes the marker functions of programs (docs/reference/regions.md) by uprobes. A probe is in
//! a file, which may be of any mount namespace. It fires in all processes that execute the file,
//! but the eBPF program reports only observed processes.

mod scanned_files;
mod search;

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
};

use probe_common::{CgroupId, MarkerCpu, MarkerKind, MarkerRecord, ProcessWalk};

use self::search::{Limits, MarkerSearch};
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

const LIMITS: Limits = Limits {
    // A program that uses markers has three.
    probes: 4096,
    // The largest known programs have some 200 MiB of symbols.
    round_bytes: 256 << 20,
};

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
    /// precedes results that may hide markers; these precede [`ScanResult::None`], which precedes
    /// [`ScanResult::NoProgram`].
    pub result: Option<ScanResult>,
    /// Files that could not be opened, by their names in the process: the process has ended, or the
    /// files are gone.
    pub unopened: Vec<Vec<u8>>,
}

impl ProcessScan {
    /// Adds the result of a file.
    fn add(&mut self, file: Option<ScanResult>) {
        let rank = |result| match result {
            None => 0,
            Some(ScanResult::NoProgram) => 1,
            Some(ScanResult::None) => 2,
            Some(ScanResult::Stripped | ScanResult::TooMuch | ScanResult::Narrow) => 3,
            Some(ScanResult::Markers) => 4,
        };
        if rank(file) > rank(self.result) {
            self.result = file;
        }
    }
}

/// A running observation. Dropping it removes the probes.
pub struct Markers {
    object: EbpfObject,
    search: MarkerSearch,
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
            search: MarkerSearch::new(LIMITS),
            taken: 0,
        })
    }

    /// Puts probes on the marker functions of a file. None if the file has probes already, or if it
    /// was searched before and has not changed since.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the probes. The file then has none, and is searched again when it
    /// changes.
    pub fn observe(&mut self, file: &File) -> Result<Option<ScanResult>, SessionError> {
        let unreadable = |source| SessionError::Map {
            what: "look at a program".to_owned(),
            source,
        };
        let data = file.metadata().map_err(unreadable)?;
        let names = MarkerKind::FUNCTIONS.map(|(_, name)| name);
        let Some((result, places)) = self.search.search(file, &data, &names) else {
            return Ok(None);
        };
        if !places.is_empty() {
            let points = places.iter().map(|(number, offset)| {
                let (kind, _) = MarkerKind::FUNCTIONS[*number];
                (*offset, kind as u64)
            });
            let programs = &mut self.object.programs;
            programs.attach_uprobes(MARKER, file.as_fd(), points)?;
            self.search.mark_probed(&data, places.len());
        }
        Ok(Some(result))
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
            scan.add(self.observe(&file)?);
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
        let was_searched = self.search.files.is_known(map);
        let mut scan = ProcessScan::default();
        match named::in_process(proc, map.pid, map.name) {
            Some(file) => scan.result = self.observe(&file)?,
            None if was_searched => {}
            None => scan.unopened.push(map.name.to_vec()),
        }
        self.search.files.mark_scanned(map);
        Ok(scan)
    }

    /// Ends a round: the next round may search the full number of bytes again.
    pub fn end_round(&mut self) {
        self.search.end_round();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_program_does_not_hide_the_result_of_another() {
        let scan = |files: &[ScanResult]| {
            let mut scan = ProcessScan::default();
            files.iter().for_each(|file| scan.add(Some(*file)));
            scan.add(None);
            scan.result
        };
        use ScanResult::{Markers, Narrow, NoProgram, None as Unmarked, Stripped, TooMuch};
        assert_eq!(scan(&[]), None);
        assert_eq!(scan(&[NoProgram]), Some(NoProgram));
        for other in [Unmarked, Stripped, TooMuch, Narrow, Markers] {
            assert_eq!(scan(&[NoProgram, other]), Some(other));
            assert_eq!(scan(&[other, NoProgram]), Some(other));
        }
        assert_eq!(
            scan(&[Unmarked, Stripped, TooMuch, Unmarked]),
            Some(Stripped)
        );
        assert_eq!(scan(&[Unmarked, Narrow, Markers, TooMuch]), Some(Markers));
    }
}
