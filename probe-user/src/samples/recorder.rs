//! A recording: opens the events of a target, drains their buffers in rounds, restarts events that
//! the kernel stopped, and counts losses.

mod round;

use std::{
    num::NonZeroUsize,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::event::epoll;

use super::{
    Buffers, RecordCounts, RecordError, RecordTarget, SamplingMethod, Sink,
    address_spaces::AddressSpaces,
    backend::Backend,
    clock::{RecordClock, TickClock},
    cpu_buffer::CpuBuffer,
    cpu_hotplug::CpuHotplug,
    drain::{Attribution, Drain},
    machine::DataSourceTables,
    observer::{MarkerPrograms, Observer},
    options::{follow_attr, spe_attr},
    per_thread::BufferedThreads,
    process_tree::ProcessTree,
    subtree::Subtree,
    target::threads,
    tasks::Tasks,
};
use crate::{event::Counter, machine::Machine, sys::perf};

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecordConfig {
    /// Sampling method and its options.
    pub method: SamplingMethod,
    /// The sizes of each buffer.
    pub buffers: Buffers,
    /// What to record.
    pub target: RecordTarget,
    /// Whether each thread has a buffer, instead of each CPU.
    pub per_thread: bool,
    /// Number of threads that drain the buffers.
    pub drains: NonZeroUsize,
    /// Programs to observe for markers; None: samples get no regions and phases.
    pub regions: Option<MarkerPrograms>,
}

/// An event, as output files describe it.
#[derive(Clone, Debug)]
pub struct EventDescription {
    /// The attributes with which the event was opened.
    pub attr: perf_event_open_sys::bindings::perf_event_attr,
    /// Its ids, which its records carry.
    pub ids: Vec<u64>,
}

/// A running recording.
pub struct Recorder {
    pub(super) machine: Arc<Machine>,
    pub(super) config: RecordConfig,
    pub(super) backend: Backend,
    /// The processes to record, if events sample all tasks of a CPU.
    process_tree: Option<ProcessTree>,
    /// The cgroups to record, if events sample all tasks of a CPU.
    subtree: Option<Mutex<Subtree>>,
    pub(super) cpu_buffers: Vec<CpuBuffer>,
    attribution: Attribution,
    clock: Option<RecordClock>,
    sources: DataSourceTables,
    pub(super) tasks: Mutex<Tasks>,
    address_spaces: AddressSpaces,
    drains: Vec<Drain>,
    observer: Option<Observer>,
    pub(super) counts: RecordCounts,
    pub(super) poll: OwnedFd,
    pub(super) hotplug: CpuHotplug,
    /// Number of buffers opened so far.
    pub(super) buffers_opened: u32,
    /// Threads with a buffer, for `--per-thread`.
    pub(super) buffered_threads: BufferedThreads,
    /// Ids of SPE events, by kind of core.
    pub(super) spe_ids: Vec<Vec<u64>>,
    /// Ids of the events that follow processes.
    pub(super) follow_ids: Vec<u64>,
    /// Number of `follow_ids` that the sink has received.
    reported_ids: usize,
}

impl Recorder {
    /// Opens all events and buffers. Sampling starts with [`Self::start`], or at the exec of a
    /// [`RecordTarget::Command`].
    ///
    /// # Errors
    ///
    /// If the machine or the target cannot be recorded, or a buffer size is invalid.
    pub fn open(config: RecordConfig, machine: &Arc<Machine>) -> Result<Self, RecordError> {
        config.buffers.check(rustix::param::page_size() as u64)?;
        let backend = Backend::for_method(&config.method, machine.pmus()?)?;
        let is_spe = matches!(backend, Backend::Spe(..));
        let hotplug = CpuHotplug::listen();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| RecordError::Poll(error.into()))?;
        let attribution = Attribution {
            // SPE's context packets hold ids of the initial namespace.
            by_context: machine.is_in_initial_pid_namespace(),
            by_aux_record: !matches!(config.target, RecordTarget::Cgroup(_)),
        };
        if is_spe && !attribution.by_context {
            tracing::warn!(
                "samples carry thread ids of the initial pid namespace and this is another one: {}",
                if attribution.by_aux_record {
                    "each goes to the task whose buffer it is in"
                } else {
                    "those of a cgroup have no thread"
                }
            );
        }
        let mut recorder = Self {
            machine: Arc::clone(machine),
            spe_ids: vec![Vec::new(); backend.spe().len().max(1)],
            follow_ids: Vec::new(),
            drains: (0..config.drains.get()).map(Drain::new).collect(),
            observer: None,
            process_tree: (!is_spe)
                .then(|| ProcessTree::for_target(&config.target, machine.procfs()))
                .flatten(),
            subtree: match &config.target {
                RecordTarget::Cgroup(path) if !is_spe => {
                    let path = machine.hierarchy()?.resolve(path)?;
                    Some(Mutex::new(Subtree::new(path)))
                }
                _ => None,
            },
            config,
            backend,
            cpu_buffers: Vec::new(),
            attribution,
            clock: None,
            sources: DataSourceTables::for_machine(machine),
            tasks: Mutex::new(Tasks::new(machine.procfs())),
            address_spaces: AddressSpaces::new(machine.procfs()),
            counts: RecordCounts::default(),
            poll,
            hotplug,
            buffers_opened: 0,
            buffered_threads: BufferedThreads::default(),
            reported_ids: 0,
        };
        recorder.open_target()?;
        if let Some(programs) = recorder.config.regions.take() {
            let (target, existing) = (&recorder.config.target, recorder.processes());
            let observer = Observer::open(machine, target, &programs, &existing)?;
            observer.wake_by_markers(&recorder.poll)?;
            recorder.observer = Some(observer);
        }
        // Sampled events have times of `CLOCK_MONOTONIC` already.
        let ticks = recorder.ticks().filter(|_| is_spe);
        recorder.clock = ticks.and_then(|ticks| RecordClock::new(ticks, machine.procfs()));
        if let Some(clock) = &mut recorder.clock {
            clock.anchor();
        }
        Ok(recorder)
    }

    /// Starts sampling. With SPE, sampling of a [`RecordTarget::Command`] starts by itself at its
    /// exec.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn start(&mut self) -> Result<(), RecordError> {
        let is_spe = matches!(self.backend, Backend::Spe(..));
        if is_spe && matches!(self.config.target, RecordTarget::Command(_)) {
            return Ok(());
        }
        // Reads procfs now, since the tasks may exit before their first samples are decoded.
        for pid in self.processes() {
            for tid in threads(&self.machine, pid).unwrap_or_default() {
                self.tasks().incarnations(tid);
            }
            if matches!(self.config.target, RecordTarget::Process(_)) {
                self.address_spaces.read_procfs(pid);
            }
            if let Some(observer) = &self.observer {
                let region_index = observer.region_index().lock();
                let _view = region_index
                    .unwrap_or_else(PoisonError::into_inner)
                    .view(pid);
            }
        }
        for cpu_buffer in &self.cpu_buffers {
            cpu_buffer.buffer.enable()?;
        }
        Ok(())
    }

    /// Descriptor that becomes readable when a buffer should be drained. It is edge-triggered:
    /// consume the wake-ups with [`Self::woken`].
    #[must_use]
    pub fn poll(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }

    /// Maximum time between two rounds. A round opens buffers for new threads, and reads names and
    /// cgroups before their processes exit.
    #[must_use]
    pub const fn pace(&self) -> Duration {
        Duration::from_millis(if self.config.per_thread { 10 } else { 100 })
    }

    /// Consumes the wake-ups so far. Call it before a round.
    ///
    /// # Errors
    ///
    /// If the kernel cannot report them.
    pub fn woken(&self) -> Result<(), RecordError> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let no_wait = rustix::time::Timespec::default();
            match epoll::wait(
                &self.poll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&no_wait),
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
    /// If the sink fails, or the kernel does not restart sampling.
    pub fn round(&mut self, sink: &dyn Sink) -> Result<(), RecordError> {
        self.mark_dead()?;
        // Adjusts periods first: if a period is too short, draining its many samples takes long.
        self.cpu_buffers
            .iter_mut()
            .for_each(|cpu_buffer| cpu_buffer.buffer.adjust_periods());
        self.drain(sink, false)?;
        self.reopen_buffers()?;
        self.restart()
    }

    /// Stops sampling and drains the remaining samples.
    ///
    /// # Errors
    ///
    /// If the sink fails, or the kernel does not stop sampling.
    pub fn finish(&mut self, sink: &dyn Sink) -> Result<(), RecordError> {
        for cpu_buffer in &self.cpu_buffers {
            for event in cpu_buffer.buffer.events().chain(&cpu_buffer.buffer.leaders) {
                perf::disable(event.as_fd()).map_err(RecordError::Enable)?;
            }
        }
        self.drain(sink, true)?;
        for cpu_buffer in &self.cpu_buffers {
            cpu_buffer.count_unreported_losses(&mut self.counts);
        }
        if self.process_tree.is_some() && self.counts.lost_ring_records > 0 {
            tracing::warn!(
                "{} records about tasks were lost: processes whose start was among them, and what \
                 they start, are not recorded; a larger --ring helps",
                self.counts.lost_ring_records
            );
        }
        Ok(())
    }

    pub(super) fn tasks(&mut self) -> &mut Tasks {
        self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts of samples and losses so far.
    #[must_use]
    pub fn counts(&self) -> &RecordCounts {
        &self.counts
    }

    /// The tags and phases so far, for the metadata of a file; empty without regions.
    #[must_use]
    pub fn about_regions(&self) -> Vec<(String, String)> {
        self.observer.as_ref().map_or(Vec::new(), Observer::about)
    }

    /// Conversion of ticks to ns of perf's clock; None if the kernel does not report it.
    #[must_use]
    pub fn ticks(&self) -> Option<TickClock> {
        self.cpu_buffers
            .first()
            .and_then(|cpu_buffer| cpu_buffer.buffer.ring.ticks())
    }

    /// The SPE event of the first kind of core; None with sampled events.
    #[must_use]
    pub fn counter(&self) -> Option<&Counter> {
        Some(&self.backend.spe().first()?.counter)
    }

    /// Names of the events, in the order of [`Self::event_files`].
    #[must_use]
    pub fn event_names(&self) -> Vec<String> {
        let spe = { self.backend.spe().iter() }
            .zip(self.backend.sampling())
            .map(|(event, sampling)| format!("{}/{}/", event.pmu, sampling.terms));
        spe.chain(["dummy:u".to_owned()]).collect()
    }

    /// The attributes and ids so far of each event in the file: one event for each SPE PMU, and the
    /// event that follows processes.
    #[must_use]
    pub fn event_files(&self) -> Vec<EventDescription> {
        let buffers = &self.config.buffers;
        let spe = self
            .backend
            .spe()
            .iter()
            .zip(self.backend.sampling())
            .zip(&self.spe_ids)
            .map(|((event, sampling), ids)| EventDescription {
                attr: spe_attr(&event.counter, sampling, *buffers),
                ids: ids.clone(),
            });
        let follow = EventDescription {
            attr: follow_attr(*buffers),
            ids: self.follow_ids.clone(),
        };
        spe.chain([follow]).collect()
    }
}
