//! A recording: opens the events for a target, drains their buffers in rounds, restarts events that
//! the kernel has stopped, and counts losses.

mod round;

use std::{
    num::NonZeroUsize,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::event::epoll;

use super::{
    Buffers, Counts, Method, RecordError, Sink, Target,
    clock::{Clock, TickClock},
    cpu_buffer::CpuBuffer,
    drain::{Attribution, Drain},
    follow::Cpus,
    kin::Kin,
    machine::Sources,
    method::Means,
    observer::{Observer, Programs},
    options::{follow_attr, spe_attr},
    own::Own,
    spaces::Spaces,
    subtree::Subtree,
    target::threads,
    tasks::Tasks,
};
use crate::{event::Counter, machine::Machine, sys::perf};

/// A recording as the user wants it.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is sampled, and how.
    pub method: Method,
    /// The sizes of each buffer.
    pub buffers: Buffers,
    /// Whom to record.
    pub target: Target,
    /// A buffer for each thread in place of one for each CPU.
    pub per_thread: bool,
    /// Threads of this program that drain the buffers.
    pub drains: NonZeroUsize,
    /// Whether samples get regions and phases; with the programs that are about to be run.
    pub regions: Option<Programs>,
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
    pub(super) machine: Arc<Machine>,
    pub(super) config: Config,
    pub(super) means: Means,
    /// Which tasks are wanted, where events sample all of them.
    kin: Option<Kin>,
    /// Which cgroups, likewise.
    subtree: Option<Mutex<Subtree>>,
    pub(super) areas: Vec<CpuBuffer>,
    attribution: Attribution,
    clock: Option<Clock>,
    sources: Sources,
    pub(super) tasks: Mutex<Tasks>,
    spaces: Spaces,
    drains: Vec<Drain>,
    observer: Option<Observer>,
    pub(super) counts: Counts,
    pub(super) poll: OwnedFd,
    pub(super) cpus: Cpus,
    /// Buffers so far.
    pub(super) buffers: u32,
    /// Threads that have a buffer of their own.
    pub(super) own: Own,
    /// Ids of events, of the SPE (by kind) and of those that follow processes.
    pub(super) ids: (Vec<Vec<u64>>, Vec<u64>),
    /// How many of the latter the sink knows.
    told: usize,
}

impl Recorder {
    /// Opens everything. A [`Target::Command`] is recorded from its exec on, others from
    /// [`Self::start`].
    ///
    /// # Errors
    ///
    /// Where this machine, these sizes or this target cannot be recorded.
    pub fn open(config: Config, machine: &Arc<Machine>) -> Result<Self, RecordError> {
        config.buffers.check(rustix::param::page_size() as u64)?;
        let means = Means::of(&config.method, machine.pmus()?)?;
        let is_spe = matches!(means, Means::Spe(..));
        let cpus = Cpus::listen();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| RecordError::Poll(error.into()))?;
        let attribution = Attribution {
            // The kernel writes ids of the initial namespace.
            by_context: machine.is_in_initial_pid_namespace(),
            by_aux_record: !matches!(config.target, Target::Cgroup(_)),
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
            ids: (vec![Vec::new(); means.spe().len().max(1)], Vec::new()),
            drains: (0..config.drains.get()).map(Drain::new).collect(),
            observer: None,
            kin: (!is_spe)
                .then(|| Kin::of(&config.target, machine.procfs()))
                .flatten(),
            subtree: match &config.target {
                Target::Cgroup(path) if !is_spe => {
                    let path = machine.hierarchy()?.resolve(path)?;
                    Some(Mutex::new(Subtree::of(path)))
                }
                _ => None,
            },
            config,
            means,
            areas: Vec::new(),
            attribution,
            clock: None,
            sources: Sources::of(machine),
            tasks: Mutex::new(Tasks::new(machine.procfs())),
            spaces: Spaces::new(machine.procfs()),
            counts: Counts::default(),
            poll,
            cpus,
            buffers: 0,
            own: Own::default(),
            told: 0,
        };
        recorder.open_target()?;
        if let Some(programs) = recorder.config.regions.take() {
            let (target, there) = (&recorder.config.target, recorder.processes());
            let observer = Observer::open(machine, target, &programs, &there)?;
            observer.wake(&recorder.poll)?;
            recorder.observer = Some(observer);
        }
        // Events say the time as it is wanted.
        let ticks = recorder.ticks().filter(|_| is_spe);
        recorder.clock = ticks.and_then(|ticks| Clock::new(ticks, machine.procfs()));
        if let Some(clock) = &mut recorder.clock {
            clock.anchor();
        }
        Ok(recorder)
    }

    /// Starts sampling; by SPE a [`Target::Command`] starts by itself at its exec.
    ///
    /// # Errors
    ///
    /// Where the kernel does not.
    pub fn start(&mut self) -> Result<(), RecordError> {
        let is_spe = matches!(self.means, Means::Spe(..));
        if is_spe && matches!(self.config.target, Target::Command(_)) {
            return Ok(());
        }
        // Asked for now: they may end before their first samples are read.
        for pid in self.processes() {
            for tid in threads(&self.machine, pid).unwrap_or_default() {
                self.tasks().lives(tid);
            }
            if matches!(self.config.target, Target::Process(_)) {
                self.spaces.ask(pid);
            }
            if let Some(observer) = &self.observer {
                let book = observer.book().lock();
                let _now = book.unwrap_or_else(PoisonError::into_inner).view(pid);
            }
        }
        for area in &self.areas {
            area.buffer.enable()?;
        }
        Ok(())
    }

    /// A descriptor that is readable when a buffer should be drained. It is edge-triggered: take
    /// the wake-ups by [`Self::woken`].
    #[must_use]
    pub fn poll(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }

    /// The longest time between two rounds: a round gives new threads their buffers, and reads
    /// names and cgroups while their processes live.
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
    pub fn round(&mut self, sink: &dyn Sink) -> Result<(), RecordError> {
        self.mark_dead()?;
        // Before the samples of a period that is too short: they can take long to drain.
        self.areas.iter_mut().for_each(|area| area.buffer.hold());
        self.drain(sink, false)?;
        self.revive()?;
        self.restart()
    }

    /// Stops sampling and drains what is left.
    ///
    /// # Errors
    ///
    /// Where the sink fails or the kernel does not stop.
    pub fn finish(&mut self, sink: &dyn Sink) -> Result<(), RecordError> {
        for area in &self.areas {
            for event in area.buffer.events().chain(&area.buffer.leaders) {
                perf::disable(event.as_fd()).map_err(RecordError::Enable)?;
            }
        }
        self.drain(sink, true)?;
        for area in &self.areas {
            area.count_rest(&mut self.counts);
        }
        if self.kin.is_some() && self.counts.lost_ring_records > 0 {
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

    /// What was recorded so far, and lost.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The tags and phases so far, for the metadata of a file; none without regions.
    #[must_use]
    pub fn about_regions(&self) -> Vec<(String, String)> {
        self.observer.as_ref().map_or(Vec::new(), Observer::about)
    }

    /// How timestamps become ns of perf's clock, where the kernel says it.
    #[must_use]
    pub fn ticks(&self) -> Option<TickClock> {
        self.areas.first().and_then(|area| area.buffer.ring.ticks())
    }

    /// The event of the first kind of SPE; none where others sample.
    #[must_use]
    pub fn counter(&self) -> Option<&Counter> {
        Some(&self.means.spe().first()?.counter)
    }

    /// Names of the events, in the order of [`Self::event_files`].
    #[must_use]
    pub fn event_names(&self) -> Vec<String> {
        let spe = { self.means.spe().iter() }
            .zip(self.means.sampling())
            .map(|(event, sampling)| format!("{}/{}/", event.pmu, sampling.terms));
        spe.chain(["dummy:u".to_owned()]).collect()
    }

    /// The events so far: one for each kind of SPE, and the one that follows processes.
    #[must_use]
    pub fn event_files(&self) -> Vec<EventFile> {
        let buffers = &self.config.buffers;
        let (spe, follow) = &self.ids;
        let spe = self.means.spe().iter().zip(self.means.sampling()).zip(spe);
        let spe = spe.map(|((event, sampling), ids)| EventFile {
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
