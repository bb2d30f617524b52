//! A recording: opens the events for a target, drains their buffers round by round, starts again what
//! the kernel has stopped, and counts what was lost.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use rustix::{
    event::epoll,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::{
    Buffers, Counts, RecordError, Sampling, Sink,
    area::{Area, Attribution, Shared},
    clock::{Clock, TickClock},
    machine::Sources,
    open::{Buffer, Opener, Whom, disable, enable, id, lost},
    options::{SpeEvent, follow_attr, spe_attr},
    tasks::Tasks,
    wire::{Event, Task},
};
use crate::{
    cgroup::Hierarchy,
    cpus,
    event::{Counter, Pmus},
};

/// Whom to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process that waits before it executes its program, and what it starts.
    Command(u32),
    /// A process with all its threads, and what it starts from now on.
    Process(u32),
    /// A cgroup and those below it: a path in the cgroup2 hierarchy.
    Cgroup(String),
}

/// A recording as the user wants it.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is sampled.
    pub sampling: Sampling,
    /// The sizes of each buffer.
    pub buffers: Buffers,
    /// Whom to record.
    pub target: Target,
    /// A buffer for each thread in place of one for each CPU.
    pub per_thread: bool,
}

/// An event as files that keep its output describe it.
#[derive(Clone, Debug)]
pub struct EventFile {
    /// The attributes it was opened with.
    pub attr: perf_event_open_sys::bindings::perf_event_attr,
    /// The numbers by which records name it.
    pub ids: Vec<u64>,
}

/// A running recording.
pub struct Recorder {
    config: Config,
    events: Vec<SpeEvent>,
    areas: Vec<Area>,
    attribution: Attribution,
    clock: Option<Clock>,
    sources: Sources,
    tasks: Tasks,
    counts: Counts,
    poll: OwnedFd,
    /// Threads that have a buffer of their own.
    known: HashSet<u32>,
    /// Ids of events, of the SPE (by kind) and of those that follow processes.
    ids: (Vec<Vec<u64>>, Vec<u64>),
    bytes: Vec<u8>,
}

impl Recorder {
    /// Opens everything. A [`Target::Command`] is recorded from its exec on, others from [`Self::start`].
    ///
    /// # Errors
    ///
    /// Where this machine, these sizes or this target cannot be recorded.
    pub fn open(config: Config, pmus: &Pmus) -> Result<Self, RecordError> {
        config.buffers.check(rustix::param::page_size() as u64)?;
        let events = config.sampling.events(pmus)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| RecordError::Poll(error.into()))?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok();
        let initial = Path::new("pid:[4026531836]");
        let attribution = Attribution {
            // The kernel writes ids of the initial namespace (PROC_PID_INIT_INO in linux/proc_ns.h).
            by_context: namespace.as_deref() == Some(initial),
            by_stretch: !matches!(config.target, Target::Cgroup(_)),
        };
        if !attribution.by_context {
            tracing::warn!(
                "samples carry thread ids of the initial pid namespace and this is another one: {}",
                if attribution.by_stretch {
                    "each goes to the task whose buffer it is in"
                } else {
                    "those of a cgroup have no thread"
                }
            );
        }
        let mut recorder = Self {
            ids: (vec![Vec::new(); events.len()], Vec::new()),
            config,
            events,
            areas: Vec::new(),
            attribution,
            clock: None,
            sources: Sources::read(Path::new("/sys")),
            tasks: Tasks::new(Path::new("/proc")),
            counts: Counts::default(),
            poll,
            known: HashSet::new(),
            bytes: Vec::new(),
        };
        recorder.open_target()?;
        let ticks = recorder.ticks();
        recorder.clock = ticks.and_then(Clock::new);
        if let Some(clock) = &mut recorder.clock {
            clock.anchor();
        }
        Ok(recorder)
    }

    fn open_target(&mut self) -> Result<(), RecordError> {
        let cpus = self.cpus()?;
        match self.config.target.clone() {
            Target::Command(pid) if self.config.per_thread => self.attach(pid, true).map(|_| ()),
            Target::Command(pid) => self.open_threads(&cpus, pid, &[pid], true),
            Target::Process(pid) if self.config.per_thread => {
                self.per_thread_event()?;
                self.attach_all(pid)?;
                if self.areas.is_empty() {
                    return Err(RecordError::NoProcess(pid));
                }
                Ok(())
            }
            Target::Process(pid) => {
                let threads = threads(pid)?;
                self.open_threads(&cpus, pid, &threads, false)
            }
            Target::Cgroup(path) => self.open_cgroup(&cpus, &path),
        }
    }

    /// The online CPUs that have SPE, each with its kind.
    fn cpus(&self) -> Result<Vec<(u32, usize)>, RecordError> {
        let online = cpus::online(Path::new("/sys"))?;
        let with_spe: Vec<(u32, usize)> = online
            .iter()
            .filter_map(|cpu| {
                let kind = self.events.iter().position(|spe| spe.cpus.contains(cpu))?;
                Some((cpu, kind))
            })
            .collect();
        if with_spe.is_empty() {
            let masks: Vec<String> = self.events.iter().map(|e| e.cpus.to_string()).collect();
            return Err(RecordError::NoCpu(masks.join(" and ")));
        }
        if with_spe.len() < online.len() {
            let missing = online.len() - with_spe.len();
            tracing::warn!(
                "{missing} of {} online CPUs have no SPE: what runs there is not sampled",
                online.len()
            );
        }
        Ok(with_spe)
    }

    fn opener(&self, on_exec: bool, descriptors: u64) -> Opener<'_> {
        Opener {
            sampling: &self.config.sampling,
            buffers: self.config.buffers,
            on_exec,
            descriptors,
        }
    }

    /// One buffer for each CPU, with an event for each thread; their children inherit them.
    fn open_threads(
        &mut self,
        cpus: &[(u32, usize)],
        pid: u32,
        threads: &[u32],
        on_exec: bool,
    ) -> Result<(), RecordError> {
        let descriptors = 2 * (threads.len() * cpus.len()) as u64;
        raise_limit(descriptors);
        for &(cpu, kind) in cpus {
            let opener = self.opener(on_exec, descriptors);
            let event = &self.events[kind];
            let mut threads = threads.iter();
            let buffer = threads.by_ref().find_map(|tid| {
                opener
                    .buffer(event, Whom::Thread(*tid), Some(cpu))
                    .transpose()
            });
            let mut buffer = buffer.transpose()?.ok_or(RecordError::NoProcess(pid))?;
            for tid in threads {
                // A thread that ends meanwhile has nothing to record any more.
                opener.join(&mut buffer, event, *tid)?;
            }
            self.add(buffer, kind)?;
        }
        Ok(())
    }

    fn open_cgroup(&mut self, cpus: &[(u32, usize)], path: &str) -> Result<(), RecordError> {
        let hierarchy = Hierarchy::find(Path::new("/proc"))?;
        let path = hierarchy.resolve(path)?;
        // `resolve` has found the directory.
        let directory = hierarchy.directory(&path).unwrap_or_default();
        let read = |source| RecordError::Read {
            path: directory.clone(),
            source,
        };
        let directory = File::open(&directory).map_err(read)?;
        let descriptors = 2 * cpus.len() as u64;
        raise_limit(descriptors);
        for &(cpu, kind) in cpus {
            let opener = self.opener(false, descriptors);
            let whom = Whom::Cgroup(&directory);
            if let Some(buffer) = opener.buffer(&self.events[kind], whom, Some(cpu))? {
                self.add(buffer, kind)?;
            }
        }
        Ok(())
    }

    fn per_thread_event(&self) -> Result<&SpeEvent, RecordError> {
        match &self.events[..] {
            [event] => Ok(event),
            several => Err(RecordError::SeveralKinds(several.len())),
        }
    }

    /// A buffer for one thread wherever it runs. False where it has ended.
    fn attach(&mut self, tid: u32, on_exec: bool) -> Result<bool, RecordError> {
        let descriptors = 2 * (self.areas.len() + 1) as u64;
        raise_limit(descriptors);
        let event = self.per_thread_event()?;
        let opener = self.opener(on_exec, descriptors);
        let Some(buffer) = opener.buffer(event, Whom::Thread(tid), None)? else {
            return Ok(false);
        };
        self.known.insert(tid);
        self.add(buffer, 0)?;
        Ok(true)
    }

    /// Buffers for all threads of a process that have none; says how many were given.
    fn attach_all(&mut self, pid: u32) -> Result<usize, RecordError> {
        let mut given = 0;
        // A thread may start others while this goes on.
        loop {
            let new = threads(pid).unwrap_or_default();
            let new: Vec<u32> = new
                .into_iter()
                .filter(|tid| !self.known.contains(tid))
                .collect();
            let mut now = 0;
            for tid in new {
                now += usize::from(self.attach(tid, false)?);
            }
            if now == 0 {
                return Ok(given);
            }
            given += now;
        }
    }

    fn add(&mut self, buffer: Buffer, kind: usize) -> Result<(), RecordError> {
        for (events, ids) in [
            (&buffer.spe, &mut self.ids.0[kind]),
            (&buffer.follow, &mut self.ids.1),
        ] {
            for event in events {
                ids.push(id(event).map_err(RecordError::Enable)?);
            }
        }
        let number = u32::try_from(self.areas.len()).expect("fewer buffers than descriptors");
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(number.into());
        epoll::add(&self.poll, &buffer.spe[0], data, flags)
            .map_err(|error| RecordError::Poll(error.into()))?;
        self.areas.push(Area::new(buffer, number));
        Ok(())
    }

    /// Starts sampling; a [`Target::Command`] starts by itself at its exec.
    ///
    /// # Errors
    ///
    /// Where the kernel does not.
    pub fn start(&mut self) -> Result<(), RecordError> {
        if matches!(self.config.target, Target::Command(_)) {
            return Ok(());
        }
        for area in &self.areas {
            for event in area.buffer.follow.iter().chain(&area.buffer.spe) {
                enable(event).map_err(RecordError::Enable)?;
            }
        }
        Ok(())
    }

    /// Readable when a buffer wants to be drained; edges are to be taken by [`Self::woken`].
    #[must_use]
    pub fn poll(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }

    /// How often to drain at least: new threads wait for that to get a buffer of their own, and names and
    /// cgroups are asked for while their processes live.
    #[must_use]
    pub const fn pace(&self) -> Duration {
        Duration::from_millis(if self.config.per_thread { 10 } else { 100 })
    }

    /// Takes note of the wake-ups so far, before a round.
    ///
    /// # Errors
    ///
    /// Where the kernel cannot tell.
    pub fn woken(&self) -> Result<(), RecordError> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let now = rustix::time::Timespec::default();
            match epoll::wait(
                &self.poll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&now),
            ) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(RecordError::Poll(error.into())),
            }
        }
    }

    /// Drains all buffers into `sink`.
    ///
    /// # Errors
    ///
    /// Where the sink fails or the kernel does not start sampling again.
    pub fn round(&mut self, sink: &mut dyn Sink) -> Result<(), RecordError> {
        self.drain(sink, false)?;
        self.restart()
    }

    /// Stops sampling and drains what is left.
    ///
    /// # Errors
    ///
    /// Where the sink fails or the kernel does not stop.
    pub fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), RecordError> {
        for area in &self.areas {
            for event in area.buffer.spe.iter().chain(&area.buffer.follow) {
                disable(event).map_err(RecordError::Enable)?;
            }
        }
        self.drain(sink, true)?;
        // The last ones lost have no record that says so.
        let events = self
            .areas
            .iter()
            .flat_map(|area| area.buffer.spe.iter().chain(&area.buffer.follow));
        let lost: u64 = events.filter_map(lost).sum();
        self.counts.lost_ring_records = self.counts.lost_ring_records.max(lost);
        Ok(())
    }

    fn drain(&mut self, sink: &mut dyn Sink, last: bool) -> Result<(), RecordError> {
        if let Some(clock) = &mut self.clock {
            clock.anchor();
        }
        self.areas.iter_mut().for_each(Area::mark);
        for area in &mut self.areas {
            area.take(sink).map_err(RecordError::Write)?;
        }
        let mut events = Vec::new();
        for area in &mut self.areas {
            area.read(&mut self.counts, &mut events);
        }
        events.sort_by_key(|(stamp, _)| stamp.time);
        let mut born = Vec::new();
        for (stamp, event) in &events {
            self.tasks.learn(event, *stamp);
            if let Event::Fork(Task { pid, tid, .. }) = event {
                born.push((*pid, *tid));
            }
        }
        let mut shared = Shared {
            clock: self.clock,
            attribution: self.attribution,
            sources: &self.sources,
            tasks: &mut self.tasks,
            counts: &mut self.counts,
            sink,
            bytes: &mut self.bytes,
            last,
        };
        for area in &mut self.areas {
            area.decode(&mut shared).map_err(RecordError::Write)?;
        }
        sink.round().map_err(RecordError::Write)?;
        self.tasks.round_ends();
        if self.config.per_thread && !last {
            self.attach_born(&born)?;
        }
        Ok(())
    }

    /// Gives buffers to threads that were made since the last round, and to those that they have made.
    fn attach_born(&mut self, born: &[(u32, u32)]) -> Result<(), RecordError> {
        for &(pid, tid) in born {
            if self.known.contains(&tid) {
                continue;
            }
            let first = self.areas.len();
            if !self.attach(tid, false)? {
                self.counts.missed_threads += 1;
            }
            self.attach_all(pid)?;
            for area in &self.areas[first..] {
                for event in area.buffer.follow.iter().chain(&area.buffer.spe) {
                    enable(event).map_err(RecordError::Enable)?;
                }
                self.counts.unsampled_ns += area.buffer.tid.and_then(run_time).unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Starts again what the kernel has stopped. Where it says that it stopped an event it may not have
    /// (Debian's 6.12.95, 6.1 on CPU 0), and enabling alone does nothing there.
    fn restart(&mut self) -> Result<(), RecordError> {
        for area in &mut self.areas {
            if std::mem::take(&mut area.stopped) {
                self.counts.restarts += 1;
                for event in &area.buffer.spe {
                    disable(event).map_err(RecordError::Enable)?;
                    enable(event).map_err(RecordError::Enable)?;
                }
            }
        }
        Ok(())
    }

    /// What was recorded so far, and lost.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How timestamps become ns of perf's clock, where the kernel says it.
    #[must_use]
    pub fn ticks(&self) -> Option<TickClock> {
        self.areas.first().and_then(|area| area.buffer.ring.ticks())
    }

    /// The event of the first kind of SPE.
    #[must_use]
    pub fn counter(&self) -> &Counter {
        &self.events[0].counter
    }

    /// The events so far: one for each kind of SPE, and the one that follows processes.
    #[must_use]
    pub fn event_files(&self) -> Vec<EventFile> {
        let Config {
            sampling, buffers, ..
        } = &self.config;
        let (spe, follow) = &self.ids;
        let spe = self.events.iter().zip(spe).map(|(event, ids)| EventFile {
            attr: spe_attr(&event.counter, sampling, *buffers),
            ids: ids.clone(),
        });
        let follow = EventFile {
            attr: follow_attr(*buffers),
            ids: follow.clone(),
        };
        spe.chain([follow]).collect()
    }
}

/// The threads of a process.
fn threads(pid: u32) -> Result<Vec<u32>, RecordError> {
    let path = Path::new("/proc").join(pid.to_string()).join("task");
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(RecordError::NoProcess(pid));
        }
        Err(source) => return Err(RecordError::Read { path, source }),
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect())
}

/// CPU time of a thread so far, ns (Documentation/scheduler/sched-stats.rst).
fn run_time(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Takes as many descriptors as the hard limit gives, where they are needed.
fn raise_limit(descriptors: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some more for everything else.
    if current.is_some_and(|current| current < descriptors + 64) {
        let limit = Rlimit {
            current: maximum,
            maximum,
        };
        // Where it fails, opening does, which says how many are needed.
        let _raised = setrlimit(Resource::Nofile, limit);
    }
}
