//! Pipeline: a running session with the stages after it, and its upkeep between two pulls. A verb
//! that shows windows drives it: [`Pipeline::run_upkeep`] until the next window is due, then
//! [`Pipeline::advance`].

use std::{
    collections::{BTreeMap, HashSet},
    convert::Infallible,
    io,
    os::fd::RawFd,
    time::Duration,
};

use probe_common::CgroupId;
use tokio::{
    io::{
        Interest,
        unix::{AsyncFd, AsyncFdReadyGuard},
    },
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until},
};

use crate::{
    derive::{NeighbourVerdict, Neighbours, Report, Stages},
    join::{By, Entity, View},
    plan::Plan,
    session::{Continuity, CpuWork, Session, SessionError, spe::UPKEEP},
    snapshot::Snapshot,
    state::{EncodedState, SavedState, StateError},
};

/// Why counting failed.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A descriptor for lifecycle events cannot be waited for.
    #[error("cannot listen for cgroups and CPUs that come and go: {0}")]
    Listen(#[from] io::Error),
    /// Totals cannot be saved or resumed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// A running session, with the results of its last window.
pub struct Pipeline {
    session: Session,
    stages: Stages,
    /// When to check whether the next counter group is due; None if no groups are multiplexed.
    rotation: Option<Instant>,
    /// The multiplexing interval, if the user sets it.
    interval: Option<Duration>,
    /// Timer for the upkeep of sampling, if the session samples.
    upkeep: Option<Interval>,
}

impl Pipeline {
    /// Takes the first snapshot of a session, at which the first window begins. Must be called in a
    /// tokio runtime if the session samples. `interval` is the multiplexing interval, if the user
    /// sets it.
    ///
    /// # Errors
    ///
    /// As for [`Session::pull`].
    pub fn start(
        mut session: Session,
        view: View,
        interval: Option<Duration>,
    ) -> Result<Self, SessionError> {
        Ok(Self {
            stages: Stages::new(view, session.pull()?),
            rotation: session.rotates().then(Instant::now),
            upkeep: session.samples().then(|| every(UPKEEP)),
            session,
            interval,
        })
    }

    /// Continues the totals of an earlier session. Must be called before the first window ends,
    /// with a state that the session restored ([`Session::restore`]).
    ///
    /// # Errors
    ///
    /// As for [`SavedState::resume`]. Totals then start from zero.
    pub fn resume(&mut self, state: SavedState<'_>) -> Result<(), PipelineError> {
        let generation = self.session.generation()?;
        let plan = self.session.plan();
        let before = state.resume(self.snapshot(), generation, plan, self.view())?;
        self.stages.resume(before);
        Ok(())
    }

    /// The file from which the totals can be resumed; None before the first window.
    pub(crate) fn state(&self, boot: &str) -> Result<Option<EncodedState>, PipelineError> {
        let Some((window, joined)) = self.stages.window() else {
            return Ok(None);
        };
        let generation = self.session.generation()?;
        let plan = self.session.plan();
        let state = SavedState::new(boot, generation, plan, self.snapshot(), window, joined);
        Ok(Some(state.encoded()?))
    }

    /// Whether counting continued from before this session, in pinned maps.
    #[must_use]
    pub fn continuity(&self) -> Continuity {
        self.session.continuity()
    }

    /// Lets counting continue in pinned maps after the session ends.
    pub fn keep_pins(&mut self) {
        self.session.keep_pins();
    }

    /// What is counted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.session.plan()
    }

    /// The work of the programs so far, by CPU.
    ///
    /// # Errors
    ///
    /// As for [`Session::work`].
    pub fn work(&self) -> Result<BTreeMap<u32, CpuWork>, SessionError> {
        self.session.work()
    }

    /// The snapshot at the end of the last window.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        self.stages.snapshot()
    }

    /// How owners become rows.
    #[must_use]
    pub fn view(&self) -> &View {
        self.stages.view()
    }

    /// Changes what the rows stand for, and derives the last window again. Processes can be rows
    /// only if they were rows from the start.
    pub fn set_rows(&mut self, by: By) {
        let plan = self.session.plan();
        self.stages.change_view(plan, |view| view.by = by);
    }

    /// The report of the last window; empty before the first window ends.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.stages.report()
    }

    /// Judges the last window, and adds the verdicts to its report.
    pub fn judge(&mut self, neighbours: &mut Neighbours) -> Vec<NeighbourVerdict> {
        self.stages.judge(neighbours)
    }

    /// The report of the last window, to be changed before it is shown.
    pub fn report_mut(&mut self) -> &mut Report {
        self.stages.report_mut()
    }

    /// The entities of the rows of all existing cgroups.
    #[must_use]
    pub fn entities(&self) -> HashSet<Entity> {
        let naming = self.view().naming(&self.snapshot().names);
        naming.rows().cloned().collect()
    }

    /// Whether the session takes samples.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.session.samples()
    }

    /// Ends the sampling of memory accesses, which frees its PMU.
    pub fn stop_accesses(&mut self) {
        self.session.stop_accesses();
        if !self.session.samples() {
            self.upkeep = None;
        }
    }

    /// Converts a time of this process's monotonic clock to the clock of reports. The two clocks
    /// differ in a time namespace.
    #[must_use]
    pub fn kernel_time(&self, ours: Duration) -> Duration {
        self.session.kernel_time(ours)
    }

    /// Makes the next windows report which of these processes are alive ([`Self::is_alive`]), even
    /// if they did not run.
    pub fn watch(&mut self, processes: HashSet<u32>) {
        self.session.watch(processes);
    }

    /// Makes the next windows measure the memory of the command's processes
    /// ([`crate::session::Config::memory`]). Must be called when the command starts: until then its
    /// process is a copy of this one. `command` is the owner that it is charged to.
    pub fn watch_command(&mut self, command: CgroupId) {
        self.session.watch_command(command);
    }

    /// Whether a process is alive: it has a name in the last window, and loses it soon after its
    /// end.
    #[must_use]
    pub fn is_alive(&self, process: u32) -> bool {
        self.snapshot().names.processes.contains_key(&process)
    }

    /// Ends sampling and frees its resources.
    pub fn stop_sampling(&mut self) {
        self.session.stop_sampling();
        self.upkeep = None;
    }

    /// Ends the current window and begins the next one.
    ///
    /// # Errors
    ///
    /// As for [`Session::pull`].
    pub fn advance(&mut self) -> Result<(), SessionError> {
        self.advance_with_names(None)
    }

    /// As [`Self::advance`]; waits up to `wait` for names that are not known yet.
    ///
    /// # Errors
    ///
    /// As for [`Session::pull`].
    pub fn advance_with_names(&mut self, wait: Option<Duration>) -> Result<(), SessionError> {
        let mut now = self.session.pull()?;
        if let Some(limit) = wait {
            self.session.await_names(&mut now, limit);
        }
        self.stages.advance(self.session.plan(), now);
        Ok(())
    }

    /// Does the session's upkeep between two pulls: multiplexes counter groups, drains lifecycle
    /// events, maintains sampling. Returns only with an error. May be dropped and called again.
    ///
    /// # Errors
    ///
    /// As for [`Session::drain`], or if a descriptor cannot be waited for.
    pub async fn run_upkeep(&mut self) -> Result<Infallible, PipelineError> {
        // SAFETY: the session owns the descriptor and outlives this function.
        let lifecycle = unsafe {
            AsyncFd::register_with_interest(self.session.lifecycle_fd(), Interest::READABLE)
        }
        .map_err(io::Error::from)?;
        let hotplug = self.session.hotplug_fd();
        let hotplug = hotplug
            // SAFETY: as above.
            .map(|fd| unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) })
            .transpose()
            .map_err(io::Error::from)?;
        loop {
            tokio::select! {
                () = until(self.rotation) => {
                    let remaining = self.session.rotate_if_due(self.interval)?;
                    self.rotation = Some(Instant::now() + remaining);
                }
                () = tick(&mut self.upkeep) => self.session.upkeep()?,
                ready = lifecycle.readable() => {
                    ready?.clear_ready();
                    self.session.drain()?;
                }
                ready = readable(hotplug.as_ref()) => {
                    ready?.clear_ready();
                    self.session.drain()?;
                }
            }
        }
    }
}

/// A timer with its first tick one period from now. Missed ticks are skipped.
#[must_use]
pub fn every(period: Duration) -> Interval {
    let mut timer = interval_at(Instant::now() + period, period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
    timer
}

/// Waits for the next tick; forever without a timer.
pub async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => std::future::pending().await,
    }
}

/// Waits until the descriptor is readable; forever without a descriptor.
///
/// # Errors
///
/// The kernel refuses to wait.
pub async fn readable(fd: Option<&AsyncFd<RawFd>>) -> io::Result<AsyncFdReadyGuard<'_, RawFd>> {
    match fd {
        Some(fd) => fd.readable().await,
        None => std::future::pending().await,
    }
}

/// Waits until a moment; forever without one.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
