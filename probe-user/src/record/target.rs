//! The target of a recording, and its buffers: one for each CPU, or for each thread.

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd as _,
    path::Path,
    sync::Arc,
};

use rustix::event::epoll;

use super::{
    RecordError, Recorder,
    cpu_buffer::CpuBuffer,
    method::Means,
    open::{self, Buffer, Opener},
    own::Born,
    present,
};
use crate::{
    event::spe::SpeEvent,
    machine::Machine,
    sys::{
        descriptors::{self, Needed},
        perf::{self, Whom},
    },
};

/// The SPE event and the one that follows processes.
const EVENTS_OF_ONE: usize = 2;

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

impl Recorder {
    pub(super) fn open_target(&mut self) -> Result<(), RecordError> {
        let cpus = self.cpus()?;
        if self.config.per_thread {
            // The number of threads is not known beforehand.
            descriptors::allow_most();
        }
        if matches!(self.means, Means::Events(..)) {
            return self.open_accesses(&cpus);
        }
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
                let threads = threads(&self.machine, pid)?;
                self.open_threads(&cpus, pid, &threads, false)
            }
            Target::Cgroup(path) => self.open_cgroup(&cpus, &path),
        }
    }

    /// The online CPUs that can be sampled, each with its kind.
    pub(super) fn sampled(&self) -> Result<Vec<(u32, usize)>, RecordError> {
        let online = self.machine.online()?;
        let kind = |cpu| self.means.kind(cpu);
        let with_spe = online.iter().filter_map(|cpu| Some((cpu, kind(cpu)?)));
        Ok(with_spe.collect())
    }

    /// The same; an error where there is none.
    fn cpus(&self) -> Result<Vec<(u32, usize)>, RecordError> {
        let with_spe = self.sampled()?;
        let online = self.machine.online()?;
        if with_spe.is_empty() {
            let masks = self.means.masks().into_iter();
            let masks: Vec<String> = masks.map(ToString::to_string).collect();
            return Err(RecordError::NoCpu(masks.join(" and ")));
        }
        if with_spe.len() < online.len() {
            let missing = online.len() - with_spe.len();
            tracing::warn!(
                "{missing} of {} online CPUs cannot be sampled: what runs there is not recorded",
                online.len()
            );
        }
        Ok(with_spe)
    }

    fn opener(&self, on_exec: bool) -> Opener<'_> {
        let Some(sampling) = self.means.sampling().next() else {
            unreachable!("events have no buffers for threads")
        };
        Opener {
            sampling,
            buffers: self.config.buffers,
            on_exec,
        }
    }

    /// One buffer for each CPU, with an event for each thread; their children inherit them.
    pub(super) fn open_threads(
        &mut self,
        cpus: &[(u32, usize)],
        pid: u32,
        threads: &[u32],
        on_exec: bool,
    ) -> Result<(), RecordError> {
        let events = EVENTS_OF_ONE * threads.len() * cpus.len();
        descriptors::allow(&Needed::default().with("events of threads on CPUs", events))?;
        for &(cpu, kind) in cpus {
            let opener = self.opener(on_exec);
            let event = &self.means.spe()[kind];
            let mut threads = threads.iter();
            let buffer = threads.by_ref().find_map(|tid| {
                opener
                    .buffer(event, Whom::Thread(*tid), Some(cpu))
                    .transpose()
            });
            let mut buffer = buffer.transpose()?.ok_or(RecordError::NoProcess(pid))?;
            for tid in threads {
                // A thread that has ended meanwhile is left out.
                opener.join(&mut buffer, event, *tid)?;
            }
            self.add(buffer, kind)?;
        }
        Ok(())
    }

    /// One buffer for each CPU, with events of all its tasks.
    pub(super) fn open_accesses(&mut self, cpus: &[(u32, usize)]) -> Result<(), RecordError> {
        let directory = match &self.config.target {
            Target::Cgroup(path) => Some(self.directory(path)?),
            Target::Command(_) | Target::Process(_) => None,
        };
        let whom = directory
            .as_ref()
            .map_or(Whom::All, |it| Whom::Cgroup(it.as_fd()));
        let Means::Events(_, events) = &self.means else {
            return Ok(());
        };
        let leaders = events.iter().filter(|event| event.leader.is_some()).count();
        let descriptors = (events.len() + leaders + 1) * cpus.len();
        descriptors::allow(&Needed::default().with("events on CPUs", descriptors))?;
        let buffers = cpus
            .iter()
            .map(|(cpu, _)| open::of_accesses(events, self.config.buffers, whom, *cpu));
        let buffers: Vec<Buffer> = buffers.collect::<Result<_, _>>()?;
        buffers
            .into_iter()
            .try_for_each(|buffer| self.add(buffer, 0))
    }

    pub(super) fn open_cgroup(
        &mut self,
        cpus: &[(u32, usize)],
        path: &str,
    ) -> Result<(), RecordError> {
        let directory = self.directory(path)?;
        let events = EVENTS_OF_ONE * cpus.len();
        descriptors::allow(&Needed::default().with("events of a cgroup on CPUs", events))?;
        for &(cpu, kind) in cpus {
            let opener = self.opener(false);
            let whom = Whom::Cgroup(directory.as_fd());
            if let Some(buffer) = opener.buffer(&self.means.spe()[kind], whom, Some(cpu))? {
                self.add(buffer, kind)?;
            }
        }
        Ok(())
    }

    /// The directory of a cgroup.
    fn directory(&self, path: &str) -> Result<File, RecordError> {
        let machine = Arc::clone(&self.machine);
        let hierarchy = machine.hierarchy()?;
        let path = hierarchy.resolve(path)?;
        // `resolve` has found the directory.
        let directory = hierarchy.directory(&path).unwrap_or_default();
        let read = |source| RecordError::Read {
            path: directory.clone(),
            source,
        };
        File::open(&directory).map_err(read)
    }

    fn per_thread_event(&self) -> Result<&SpeEvent, RecordError> {
        match self.means.spe() {
            [event] => Ok(event),
            several => Err(RecordError::SeveralKinds(several.len())),
        }
    }

    /// Makes a buffer for one thread on any CPU. False where the thread has ended.
    fn attach(&mut self, tid: u32, on_exec: bool) -> Result<bool, RecordError> {
        let event = self.per_thread_event()?;
        let opener = self.opener(on_exec);
        let Some(buffer) = opener.buffer(event, Whom::Thread(tid), None)? else {
            return Ok(false);
        };
        self.own.add(tid);
        self.add(buffer, 0)?;
        Ok(true)
    }

    /// Makes buffers for all threads of a process without one; returns how many.
    fn attach_all(&mut self, pid: u32) -> Result<usize, RecordError> {
        let mut given = 0;
        // A thread may start others while this goes on.
        loop {
            let new = threads(&self.machine, pid).unwrap_or_default();
            let new: Vec<u32> = new.into_iter().filter(|tid| !self.own.has(*tid)).collect();
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
                ids.push(perf::id(event.as_fd()).map_err(RecordError::Enable)?);
            }
        }
        let number = self.buffers;
        self.buffers += 1;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(number.into());
        let own = buffer.ring.is_of_events().then(|| &buffer.follow[0]);
        for ring in own.into_iter().chain(&buffer.spe[..1]) {
            epoll::add(&self.poll, ring, data, flags)
                .map_err(|error| RecordError::Poll(error.into()))?;
        }
        self.areas.push(CpuBuffer::new(buffer, number));
        Ok(())
    }

    /// Makes buffers for threads that were created since the last round, and for those that these
    /// have created; those of threads that ended are drained once more.
    pub(super) fn attach_born(&mut self) -> Result<(), RecordError> {
        let ended = self.own.ended();
        let of_ended =
            |area: &&mut CpuBuffer| area.buffer.tid.is_some_and(|it| ended.contains(&it));
        let areas = self.areas.iter_mut().filter(of_ended);
        areas.for_each(|area| area.ended = true);
        for Born {
            pid,
            tid,
            has_ended,
        } in self.own.born()
        {
            if self.own.has(tid) {
                continue;
            }
            let first = self.areas.len();
            if has_ended || !self.attach(tid, false)? {
                self.counts.missed_threads += 1;
            }
            self.attach_all(pid)?;
            for area in &self.areas[first..] {
                area.buffer.enable()?;
                self.counts.unsampled_ns += area
                    .buffer
                    .tid
                    .and_then(|tid| run_time(&self.machine, tid))
                    .unwrap_or(0);
            }
        }
        Ok(())
    }

    /// The processes that exist before the recording.
    pub(super) fn processes(&self) -> Vec<u32> {
        match &self.config.target {
            Target::Command(_) => Vec::new(),
            Target::Process(pid) => vec![*pid],
            Target::Cgroup(path) => self
                .machine
                .hierarchy()
                .ok()
                .and_then(|hierarchy| hierarchy.directory(&hierarchy.resolve(path).ok()?))
                .map_or(Vec::new(), |directory| processes(&directory)),
        }
    }

    /// Records about them; a command's come by themselves.
    pub(super) fn present(&self) -> Vec<u8> {
        let id = self.ids.1.first().copied().unwrap_or_default();
        self.processes()
            .iter()
            .flat_map(|pid| present::records(self.machine.procfs(), *pid, id))
            .collect()
    }
}

/// The threads of a process.
pub(super) fn threads(machine: &Machine, pid: u32) -> Result<Vec<u32>, RecordError> {
    let path = machine.procfs().join(pid.to_string()).join("task");
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

/// The processes of a cgroup and those below it.
fn processes(directory: &Path) -> Vec<u32> {
    let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let own = list.lines().filter_map(|pid| pid.parse().ok());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    own.chain(below.flat_map(|entry| processes(&entry.path())))
        .collect()
}

/// CPU time of a thread so far, ns (Documentation/scheduler/sched-stats.rst).
fn run_time(machine: &Machine, tid: u32) -> Option<u64> {
    let text = machine.proc(&format!("{tid}/schedstat"))?;
    text.split(' ').next()?.parse().ok()
}
