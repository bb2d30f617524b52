//! Observes the markers of a recording's processes, and passes them to the [`RegionIndex`].

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::event::epoll;
use serde_json::json;

use super::{
    RecordError, RecordTarget,
    regions::{self, MemoryKind, Phase, RegionIndex, Tag, WithTask},
};
use crate::{
    machine::Machine,
    session::markers::{MarkerScope, Markers, ProcessScan, ScanResult},
    sys::{descriptors, records::PerfRecord},
};

/// Programs to observe for markers from their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkerPrograms {
    /// The command that is about to run. Its loader is executed to list its libraries.
    pub command: Option<PathBuf>,
    /// Files to inspect. They are never executed, since they are not trusted.
    pub named: Vec<PathBuf>,
}

/// Observes markers for a recording.
pub(super) struct Observer {
    machine: Arc<Machine>,
    markers: Markers,
    region_index: Mutex<RegionIndex>,
    /// Inspected programs, each with the best result of the program and its libraries.
    inspected: Vec<(String, ScanResult)>,
    /// Number of executed files whose markers were found only after they had begun to run.
    late_programs: u64,
    /// Number of executed files that could not be opened to look for markers.
    unopened_programs: u64,
    /// Number of files beyond the inspection limits.
    too_large_programs: u64,
}

impl Observer {
    /// Loads the BPF programs. Observes `programs`, and the processes that already run.
    pub(super) fn open(
        machine: &Arc<Machine>,
        target: &RecordTarget,
        programs: &MarkerPrograms,
        existing: &[u32],
    ) -> Result<Self, RecordError> {
        if !machine.is_in_initial_pid_namespace() {
            return Err(RecordError::PidNamespace);
        }
        let scope = match target {
            RecordTarget::Command(pid) | RecordTarget::Process(pid) => {
                MarkerScope::Processes(vec![*pid])
            }
            RecordTarget::Cgroup(path) => {
                let hierarchy = machine.hierarchy()?;
                MarkerScope::Cgroup(hierarchy.id(&hierarchy.resolve(path)?)?)
            }
        };
        // Each probe needs two descriptors, and the number of probes is not known yet.
        descriptors::allow_most();
        let mut observer = Self {
            machine: Arc::clone(machine),
            markers: Markers::open(machine, &scope)?,
            region_index: Mutex::new(RegionIndex::new(machine.procfs())),
            inspected: Vec::new(),
            late_programs: 0,
            unopened_programs: 0,
            too_large_programs: 0,
        };
        if let Some(program) = &programs.command {
            let result = observer.markers.observe_program(program)?;
            observer.add_inspected(program.display().to_string(), result);
        }
        for program in &programs.named {
            let result = observer.markers.observe_file(program)?;
            observer.add_inspected(program.display().to_string(), result);
        }
        for pid in existing {
            observer.observe_process(*pid);
            // Gives each process a round's whole search budget, since no records wait to be read
            // yet.
            observer.markers.end_round();
        }
        observer.warn_without_markers();
        Ok(observer)
    }

    /// Observes the programs of a running process.
    fn observe_process(&mut self, pid: u32) {
        match self.markers.observe_process(self.machine.procfs(), pid) {
            Ok(scan) => {
                self.add_inspected(format!("process {pid}"), scan.result);
                self.count_unopened(&scan);
            }
            // A file may be damaged; other files are still observed.
            Err(error) => {
                tracing::warn!("the markers of process {pid} are not observed: {error}");
            }
        }
    }

    /// Counts files that could not be opened, and warns about the first.
    fn count_unopened(&mut self, scan: &ProcessScan) {
        let files = scan.unopened.iter();
        // Only files can have marker functions.
        for name in files.filter(|name| MemoryKind::from_name(name) == MemoryKind::File) {
            self.unopened_programs += 1;
            if self.unopened_programs == 1 {
                let name = String::from_utf8_lossy(name);
                tracing::warn!(
                    "{name} ran, and could not be opened to look for markers: its process has \
                     ended, or the file is gone; --regions={name} finds them before. Others like \
                     it are counted (unopened_programs)"
                );
            }
        }
    }

    fn add_inspected(&mut self, what: String, result: Option<ScanResult>) {
        self.count_too_large(&what, result);
        self.inspected.extend(result.map(|result| (what, result)));
    }

    /// Counts files beyond the inspection limits, and warns about the first.
    fn count_too_large(&mut self, what: &str, result: Option<ScanResult>) {
        if result != Some(ScanResult::TooMuch) {
            return;
        }
        self.too_large_programs += 1;
        if self.too_large_programs == 1 {
            tracing::warn!(
                "the markers of {what} are not observed: it has too many symbols or functions of \
                 their names, or others had in this round (docs/reference/regions.md has the \
                 limits). Others like it are counted (too_large_programs)"
            );
        }
    }

    /// Warns if no inspected program has markers.
    fn warn_without_markers(&self) {
        if self
            .inspected
            .iter()
            .any(|(_, result)| *result == ScanResult::Markers)
        {
            return;
        }
        for (what, result) in &self.inspected {
            let reason = match result {
                ScanResult::Stripped => {
                    "is stripped, so its marker functions have no names: link it without -s, or \
                     call them in a shared library"
                }
                ScanResult::NoProgram => {
                    "is a script: name the program that it runs by --regions=PROGRAM, so that its \
                     first markers are seen"
                }
                ScanResult::TooMuch => "is too large to be looked at",
                ScanResult::Narrow => "has 32 bits, and only programs of 64 bits are read",
                _ => {
                    "has no marker functions, and its libraries have none (pmuscope.h has \
                     them)"
                }
            };
            tracing::warn!("{what} {reason}; regions are kinds of memory until a marker is found");
        }
    }

    /// Makes `poll` readable when many markers wait to be read.
    pub(super) fn wake_by_markers(&self, poll: &OwnedFd) -> Result<(), RecordError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(u64::MAX);
        epoll::add(poll, self.markers.fd(), data, flags)
            .map_err(|error| RecordError::Poll(error.into()))
    }

    /// Handles a record of a ring.
    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>) {
        self.region_index()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .on_record(event);
        if let PerfRecord::Map(map) = event
            && map.executable
            && map.name.starts_with(b"/")
        {
            let observed = self.markers.observe_mapped(self.machine.procfs(), map);
            let name = String::from_utf8_lossy(map.name);
            match observed {
                Ok(scan) if scan.result == Some(ScanResult::Markers) => {
                    self.late_programs += 1;
                    tracing::warn!(
                        "{name} has marker functions, and already ran when they were found: what \
                         it marked before is not known; --regions={name} finds them before"
                    );
                }
                Ok(scan) => {
                    self.count_too_large(&name, scan.result);
                    self.count_unopened(&scan);
                }
                // A file may be damaged; other files are still observed.
                Err(error) => tracing::warn!("the markers of {name} are not observed: {error}"),
            }
        }
    }

    /// Reads all markers so far. Returns their counts.
    pub(super) fn read_markers(&mut self) -> Result<regions::MarkerCounts, RecordError> {
        let region_index = self
            .region_index
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        self.markers.drain(|marked| region_index.mark(&marked))?;
        region_index.prepare_lookups();
        region_index.counts.lost = self.markers.counts()?.lost;
        region_index.counts.late_programs = self.late_programs;
        region_index.counts.unopened_programs = self.unopened_programs;
        region_index.counts.too_large_programs = self.too_large_programs;
        Ok(region_index.counts)
    }

    pub(super) fn region_index(&self) -> &Mutex<RegionIndex> {
        &self.region_index
    }

    pub(super) fn end_round(&mut self) {
        let region_index = self
            .region_index
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        region_index.end_round();
        self.markers.end_round();
    }

    /// Tags and phases, as metadata of a file.
    pub(super) fn about(&self) -> Vec<(String, String)> {
        let region_index = self
            .region_index
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        metadata(region_index.tags(), region_index.phases())
    }

    /// Tags and phases that began or ended since the last call, as metadata of a part.
    pub(super) fn new_metadata(&self) -> Vec<(String, String)> {
        let mut region_index = self
            .region_index
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (tags, phases) = region_index.take_new();
        drop(region_index);
        metadata(tags, phases)
    }
}

/// Metadata of a file: its tags and phases as JSON.
#[must_use]
pub fn metadata(tags: Vec<WithTask<Tag>>, phases: Vec<WithTask<Phase>>) -> Vec<(String, String)> {
    // Times are texts, since numbers of 64 bits are too large for some JSON readers.
    let time = |time: Option<u64>| time.map(|time| time.to_string());
    let tag = |WithTask { pid, item, .. }: WithTask<Tag>| {
        json!({
            "pid": pid,
            "name": item.name,
            "start": format!("{:#x}", item.start),
            "end": format!("{:#x}", item.end),
            "since_ns": time(Some(item.since)),
            "until_ns": time(item.until),
        })
    };
    let phase = |WithTask { pid, tid, item }: WithTask<Phase>| {
        json!({
            "pid": pid,
            "tid": tid,
            "name": item.name,
            "since_ns": time(Some(item.since)),
            "until_ns": time(item.until),
        })
    };
    let tags: Vec<_> = tags.into_iter().map(tag).collect();
    let phases: Vec<_> = phases.into_iter().map(phase).collect();
    vec![
        ("tags".to_owned(), json!(tags).to_string()),
        ("phases".to_owned(), json!(phases).to_string()),
    ]
}
