//! The target of a recording, and its buffers: one for each CPU or for each thread.

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
    backend::Backend,
    cpu_buffer::CpuBuffer,
    open::{self, Buffer, Opener},
    per_thread::NewThread,
    synthesized_events,
};
use crate::{
    event::spe::SpeEvent,
    machine::Machine,
    sys::{
        descriptors::{self, Needed},
        perf::{self, TaskScope},
    },
};

/// Number of descriptors for a thread or cgroup on a CPU: one for the SPE event, and one for the
/// event that follows processes.
const EVENT_PAIR: usize = 2;

/// What to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordTarget {
    /// A process before its exec, with its descendants.
    Command(u32),
    /// A process with all its threads, and the descendants that it starts from now on.
    Process(u32),
    /// A cgroup with its descendants: a path in the cgroup2 hierarchy.
    Cgroup(String),
}

impl Recorder {
    pub(super) fn open_target(&mut self) -> Result<(), RecordError> {
        let cpus = self.checked_cpus()?;
        if self.config.per_thread {
            // The number of threads, and so of descriptors, is unknown.
            descriptors::allow_most();
        }
        if matches!(self.backend, Backend::Events(..)) {
            return self.open_accesses(&cpus);
        }
        match self.config.target.clone() {
            RecordTarget::Command(pid) if self.config.per_thread => {
                self.attach(pid, true).map(|_| ())
            }
            RecordTarget::Command(pid) => self.open_threads(&cpus, pid, &[pid], true),
            RecordTarget::Process(pid) if self.config.per_thread => {
                self.per_thread_event()?;
                self.attach_all(pid)?;
                if self.cpu_buffers.is_empty() {
                    return Err(RecordError::NoProcess(pid));
                }
                Ok(())
            }
            RecordTarget::Process(pid) => {
                let threads = threads(&self.machine, pid)?;
                self.open_threads(&cpus, pid, &threads, false)
            }
            RecordTarget::Cgroup(path) => self.open_cgroup(&cpus, &path),
        }
    }

    /// Online CPUs that can be sampled, each with the index of its kind of core.
    pub(super) fn cpus_to_sample(&self) -> Result<Vec<(u32, usize)>, RecordError> {
        let online = self.machine.online()?;
        let kind = |cpu| self.backend.core_kind(cpu);
        let cpus = online.iter().filter_map(|cpu| Some((cpu, kind(cpu)?)));
        Ok(cpus.collect())
    }

    /// [`Self::cpus_to_sample`], with a warning if they are not all online CPUs; an error if there
    /// are none.
    fn checked_cpus(&self) -> Result<Vec<(u32, usize)>, RecordError> {
        let cpus = self.cpus_to_sample()?;
        let online = self.machine.online()?;
        if cpus.is_empty() {
            let masks: Vec<String> = self
                .backend
                .masks()
                .into_iter()
                .map(ToString::to_string)
                .collect();
            return Err(RecordError::NoCpu(masks.join(" and ")));
        }
        if cpus.len() < online.len() {
            let missing = online.len() - cpus.len();
            tracing::warn!(
                "{missing} of {} online CPUs cannot be sampled: what runs there is not recorded",
                online.len()
            );
        }
        Ok(cpus)
    }

    fn opener(&self, on_exec: bool) -> Opener<'_> {
        let Some(sampling) = self.backend.sampling().next() else {
            unreachable!("events have no buffers for threads")
        };
        Opener {
            sampling,
            buffers: self.config.buffers,
            on_exec,
        }
    }

    /// Opens one buffer for each CPU, with an event for each thread; children inherit the events.
    pub(super) fn open_threads(
        &mut self,
        cpus: &[(u32, usize)],
        pid: u32,
        threads: &[u32],
        on_exec: bool,
    ) -> Result<(), RecordError> {
        let events = EVENT_PAIR * threads.len() * cpus.len();
        descriptors::allow(&Needed::default().with("events of threads on CPUs", events))?;
        for &(cpu, kind) in cpus {
            let opener = self.opener(on_exec);
            let event = &self.backend.spe()[kind];
            let mut threads = threads.iter();
            let mut buffer = threads
                .by_ref()
                .find_map(|tid| {
                    opener
                        .buffer(event, TaskScope::Thread(*tid), Some(cpu))
                        .transpose()
                })
                .transpose()?
                .ok_or(RecordError::NoProcess(pid))?;
            for tid in threads {
                // Skips a thread that has exited meanwhile.
                opener.add_thread(&mut buffer, event, *tid)?;
            }
            self.add_buffer(buffer, kind)?;
        }
        Ok(())
    }

    /// Opens one buffer for each CPU, with events that sample all tasks of the CPU.
    pub(super) fn open_accesses(&mut self, cpus: &[(u32, usize)]) -> Result<(), RecordError> {
        let directory = match &self.config.target {
            RecordTarget::Cgroup(path) => Some(self.directory(path)?),
            RecordTarget::Command(_) | RecordTarget::Process(_) => None,
        };
        let scope = directory
            .as_ref()
            .map_or(TaskScope::All, |it| TaskScope::Cgroup(it.as_fd()));
        let Backend::Events(_, events) = &self.backend else {
            return Ok(());
        };
        let leaders = events.iter().filter(|event| event.leader.is_some()).count();
        let descriptors = (events.len() + leaders + 1) * cpus.len();
        descriptors::allow(&Needed::default().with("events on CPUs", descriptors))?;
        let buffers: Vec<Buffer> = cpus
            .iter()
            .map(|(cpu, _)| open::access_buffer(events, self.config.buffers, scope, *cpu))
            .collect::<Result<_, _>>()?;
        buffers
            .into_iter()
            .try_for_each(|buffer| self.add_buffer(buffer, 0))
    }

    pub(super) fn open_cgroup(
        &mut self,
        cpus: &[(u32, usize)],
        path: &str,
    ) -> Result<(), RecordError> {
        let directory = self.directory(path)?;
        let events = EVENT_PAIR * cpus.len();
        descriptors::allow(&Needed::default().with("events of a cgroup on CPUs", events))?;
        for &(cpu, kind) in cpus {
            let opener = self.opener(false);
            let scope = TaskScope::Cgroup(directory.as_fd());
            if let Some(buffer) = opener.buffer(&self.backend.spe()[kind], scope, Some(cpu))? {
                self.add_buffer(buffer, kind)?;
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
        match self.backend.spe() {
            [event] => Ok(event),
            several => Err(RecordError::SeveralKinds(several.len())),
        }
    }

    /// Opens a buffer for one thread on any CPU. False if the thread has exited.
    fn attach(&mut self, tid: u32, on_exec: bool) -> Result<bool, RecordError> {
        let event = self.per_thread_event()?;
        let opener = self.opener(on_exec);
        let Some(buffer) = opener.buffer(event, TaskScope::Thread(tid), None)? else {
            return Ok(false);
        };
        self.buffered_threads.add(tid);
        self.add_buffer(buffer, 0)?;
        Ok(true)
    }

    /// Opens the missing buffers of a process's threads. Returns their number.
    fn attach_all(&mut self, pid: u32) -> Result<usize, RecordError> {
        let mut attached = 0;
        // Repeats, since these threads may create others meanwhile.
        loop {
            let new: Vec<u32> = threads(&self.machine, pid)
                .unwrap_or_default()
                .into_iter()
                .filter(|tid| !self.buffered_threads.has(*tid))
                .collect();
            let mut count = 0;
            for tid in new {
                count += usize::from(self.attach(tid, false)?);
            }
            if count == 0 {
                return Ok(attached);
            }
            attached += count;
        }
    }

    /// Adds an open buffer; `kind` is the index of its kind of core.
    fn add_buffer(&mut self, buffer: Buffer, kind: usize) -> Result<(), RecordError> {
        for (events, ids) in [
            (&buffer.sampling_events, &mut self.spe_ids[kind]),
            (&buffer.follow, &mut self.follow_ids),
        ] {
            for event in events {
                ids.push(perf::id(event.as_fd()).map_err(RecordError::Enable)?);
            }
        }
        let number = self.buffers_opened;
        self.buffers_opened += 1;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(number.into());
        let follow_ring = buffer.ring.has_sample_ring().then(|| &buffer.follow[0]);
        for ring in follow_ring.into_iter().chain(&buffer.sampling_events[..1]) {
            epoll::add(&self.poll, ring, data, flags)
                .map_err(|error| RecordError::Poll(error.into()))?;
        }
        self.cpu_buffers.push(CpuBuffer::new(buffer, number));
        Ok(())
    }

    /// Opens buffers for threads created since the last round, and for other new threads of their
    /// processes. Marks buffers of exited threads, to be drained once more.
    pub(super) fn attach_new(&mut self) -> Result<(), RecordError> {
        let exited = self.buffered_threads.take_exited();
        let is_of_exited = |cpu_buffer: &&mut CpuBuffer| {
            cpu_buffer
                .buffer
                .tid
                .is_some_and(|tid| exited.contains(&tid))
        };
        let cpu_buffers = self.cpu_buffers.iter_mut().filter(is_of_exited);
        cpu_buffers.for_each(|cpu_buffer| cpu_buffer.ended = true);
        for NewThread {
            pid,
            tid,
            has_exited,
        } in self.buffered_threads.take_new()
        {
            if self.buffered_threads.has(tid) {
                continue;
            }
            let buffers_before = self.cpu_buffers.len();
            if has_exited || !self.attach(tid, false)? {
                self.counts.missed_threads += 1;
            }
            self.attach_all(pid)?;
            for cpu_buffer in &self.cpu_buffers[buffers_before..] {
                cpu_buffer.buffer.enable()?;
                self.counts.unsampled_ns += cpu_buffer
                    .buffer
                    .tid
                    .and_then(|tid| run_time(&self.machine, tid))
                    .unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Processes of the target that exist before the recording.
    pub(super) fn processes(&self) -> Vec<u32> {
        match &self.config.target {
            RecordTarget::Command(_) => Vec::new(),
            RecordTarget::Process(pid) => vec![*pid],
            RecordTarget::Cgroup(path) => self
                .machine
                .hierarchy()
                .ok()
                .and_then(|hierarchy| hierarchy.directory(&hierarchy.resolve(path).ok()?))
                .map_or(Vec::new(), |directory| processes(&directory)),
        }
    }

    /// Synthesized records about the processes that exist before the recording. There are none for
    /// a command, whose records come from the kernel.
    pub(super) fn synthesized_events(&self) -> Vec<u8> {
        let id = self.follow_ids.first().copied().unwrap_or_default();
        self.processes()
            .iter()
            .flat_map(|pid| synthesized_events::synthesize(self.machine.procfs(), *pid, id))
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

/// The processes of a cgroup and its descendants.
fn processes(directory: &Path) -> Vec<u32> {
    let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let own = list.lines().filter_map(|pid| pid.parse().ok());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    own.chain(below.flat_map(|entry| processes(&entry.path())))
        .collect()
}

/// CPU time of a thread so far, in ns (Documentation/scheduler/sched-stats.rst).
fn run_time(machine: &Machine, tid: u32) -> Option<u64> {
    let text = machine.proc(&format!("{tid}/schedstat"))?;
    text.split(' ').next()?.parse().ok()
}
