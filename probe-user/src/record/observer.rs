//! The markers of a recording's processes, and the book of what they say.

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::event::epoll;
use serde_json::json;

use super::{
    RecordError, Target,
    regions::{self, Area, Book, Of, Phase, Tag},
};
use crate::{
    machine::Machine,
    session::markers::{Has, Looked, Markers, Observed},
    sys::{descriptors, records::Event},
};

/// The programs whose markers are to be seen from their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// The command that is about to be run. Its loader is run, to find its libraries.
    pub command: Option<PathBuf>,
    /// Files that are looked at. Nothing of them is run: they may be anybody's.
    pub named: Vec<PathBuf>,
}

/// Observes markers for a recording.
pub(super) struct Observer {
    machine: Arc<Machine>,
    markers: Markers,
    book: Mutex<Book>,
    /// Programs that were looked at, and what the best of each and its libraries has.
    looked: Vec<(String, Has)>,
    late: u64,
    /// Files that were executed, and could not be opened to look for markers.
    unopened: u64,
    /// Files that have more than is looked at.
    too_large: u64,
}

impl Observer {
    /// Loads the programs, and observes what is about to be run and the processes that are there.
    pub(super) fn open(
        machine: &Arc<Machine>,
        target: &Target,
        programs: &Programs,
        there: &[u32],
    ) -> Result<Self, RecordError> {
        if !machine.is_in_initial_pid_namespace() {
            return Err(RecordError::PidNamespace);
        }
        let whom = match target {
            Target::Command(pid) | Target::Process(pid) => Observed::Processes(vec![*pid]),
            Target::Cgroup(path) => {
                let hierarchy = machine.hierarchy()?;
                Observed::Cgroup(hierarchy.id(&hierarchy.resolve(path)?)?)
            }
        };
        // Each probe has two, and nobody knows how many there will be.
        descriptors::allow_most();
        let mut observer = Self {
            machine: Arc::clone(machine),
            markers: Markers::open(machine, &whom)?,
            book: Mutex::new(Book::new(machine.procfs())),
            looked: Vec::new(),
            late: 0,
            unopened: 0,
            too_large: 0,
        };
        if let Some(program) = &programs.command {
            let has = observer.markers.observe_program(program)?;
            observer.looked_at(program.display().to_string(), has);
        }
        for program in &programs.named {
            let has = observer.markers.observe_file(program)?;
            observer.looked_at(program.display().to_string(), has);
        }
        for pid in there {
            observer.observe_process(*pid);
            // Nothing waits yet.
            observer.markers.round_ends();
        }
        observer.warn();
        Ok(observer)
    }

    /// Observes what a process executes that is there already.
    fn observe_process(&mut self, pid: u32) {
        match self.markers.observe_process(self.machine.procfs(), pid) {
            Ok(looked) => {
                self.looked_at(format!("process {pid}"), looked.has);
                self.missed(&looked);
            }
            // It may be anything, and others are observed.
            Err(error) => {
                tracing::warn!("the markers of process {pid} are not observed: {error}");
            }
        }
    }

    /// Counts what could not be opened, and says so of the first.
    fn missed(&mut self, looked: &Looked) {
        let files = looked.unopened.iter();
        // Memory of no file has no functions of a library.
        for name in files.filter(|name| Area::named(name) == Area::File) {
            self.unopened += 1;
            if self.unopened == 1 {
                let name = String::from_utf8_lossy(name);
                tracing::warn!(
                    "{name} ran, and could not be opened to look for markers: its process has \
                     ended, or the file is gone; --regions={name} finds them before. Others like \
                     it are counted (unopened_programs)"
                );
            }
        }
    }

    fn looked_at(&mut self, what: String, has: Option<Has>) {
        self.measure(&what, has);
        self.looked.extend(has.map(|has| (what, has)));
    }

    /// Counts what has more than is looked at, and says so of the first.
    fn measure(&mut self, what: &str, has: Option<Has>) {
        if has != Some(Has::TooMuch) {
            return;
        }
        self.too_large += 1;
        if self.too_large == 1 {
            tracing::warn!(
                "the markers of {what} are not observed: it has too many symbols or functions of \
                 their names, or others had in this round (docs/regions.md has the limits). Others \
                 like it are counted (too_large_programs)"
            );
        }
    }

    /// Says so where nothing has markers.
    fn warn(&self) {
        if self.looked.iter().any(|(_, has)| *has == Has::Markers) {
            return;
        }
        for (what, has) in &self.looked {
            let why = match has {
                Has::Stripped => {
                    "is stripped, so its marker functions have no names: link it without -s, or \
                     call them in a shared library"
                }
                Has::NoProgram => {
                    "is a script: name the program that it runs by --regions=PROGRAM, so that its \
                     first markers are seen"
                }
                Has::TooMuch => "is too large to be looked at",
                Has::Narrow => "has 32 bits, and only programs of 64 bits are read",
                _ => {
                    "has no marker functions, and its libraries have none (pmuscope.h has \
                     them)"
                }
            };
            tracing::warn!("{what} {why}; regions are kinds of memory until a marker is found");
        }
    }

    /// Wakes who waits for `poll` when there are many markers.
    pub(super) fn wake(&self, poll: &OwnedFd) -> Result<(), RecordError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(u64::MAX);
        epoll::add(poll, self.markers.fd(), data, flags)
            .map_err(|error| RecordError::Poll(error.into()))
    }

    /// Handles a record of a ring.
    pub(super) fn learn(&mut self, event: &Event<'_>) {
        self.book()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .learn(event);
        if let Event::Map(map) = event
            && map.executable
            && map.name.starts_with(b"/")
        {
            let found = self.markers.observe_mapped(self.machine.procfs(), map);
            let name = String::from_utf8_lossy(map.name);
            match found {
                Ok(looked) if looked.has == Some(Has::Markers) => {
                    self.late += 1;
                    tracing::warn!(
                        "{name} has marker functions, and already ran when they were found: what \
                         it marked before is not known; --regions={name} finds them before"
                    );
                }
                Ok(looked) => {
                    self.measure(&name, looked.has);
                    self.missed(&looked);
                }
                // It may be anything, and others are observed.
                Err(error) => tracing::warn!("the markers of {name} are not observed: {error}"),
            }
        }
    }

    /// Takes all markers so far.
    pub(super) fn take(&mut self) -> Result<regions::Counts, RecordError> {
        let book = self.book.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.markers.drain(|marked| book.mark(&marked))?;
        book.settle();
        book.counts.lost = self.markers.counts()?.lost;
        book.counts.late_programs = self.late;
        book.counts.unopened_programs = self.unopened;
        book.counts.too_large_programs = self.too_large;
        Ok(book.counts)
    }

    pub(super) fn book(&self) -> &Mutex<Book> {
        &self.book
    }

    pub(super) fn round_ends(&mut self) {
        let book = self.book.get_mut().unwrap_or_else(PoisonError::into_inner);
        book.round_ends();
        self.markers.round_ends();
    }

    /// Tags and phases, as the metadata of a file.
    pub(super) fn about(&self) -> Vec<(String, String)> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        metadata(book.tags(), book.phases())
    }

    /// The same of those that began or ended since the last call, for a part of a file.
    pub(super) fn news(&self) -> Vec<(String, String)> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let (tags, phases) = book.news();
        drop(book);
        metadata(tags, phases)
    }
}

/// Tags and phases by the keys of a file's metadata.
#[must_use]
pub fn metadata(tags: Vec<Of<Tag>>, phases: Vec<Of<Phase>>) -> Vec<(String, String)> {
    // As texts: they are larger than numbers that every reader of JSON takes.
    let time = |time: Option<u64>| time.map(|time| time.to_string());
    let tag = |Of { pid, is, .. }: Of<Tag>| {
        json!({
            "pid": pid,
            "name": is.name,
            "start": format!("{:#x}", is.start),
            "end": format!("{:#x}", is.end),
            "since_ns": time(Some(is.since)),
            "until_ns": time(is.until),
        })
    };
    let phase = |Of { pid, tid, is }: Of<Phase>| {
        json!({
            "pid": pid,
            "tid": tid,
            "name": is.name,
            "since_ns": time(Some(is.since)),
            "until_ns": time(is.until),
        })
    };
    let tags: Vec<_> = tags.into_iter().map(tag).collect();
    let phases: Vec<_> = phases.into_iter().map(phase).collect();
    vec![
        ("tags".to_owned(), json!(tags).to_string()),
        ("phases".to_owned(), json!(phases).to_string()),
    ]
}
