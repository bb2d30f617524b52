//! Pipeline: a running session with the stages behind it, and what it needs between two pulls.
//! Whoever shows windows drives it: [`Pipeline::keep`] until the time of the next one, then
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
    derive::{Report, Stages},
    join::{Entity, View},
    plan::Plan,
    session::{Continuity, CpuWork, Session, SessionError, spe::UPKEEP},
    snapshot::{Hook, Snapshot},
    state::{Encoded, State, StateError},
};

/// Why counting could not go on.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A descriptor that tells of what comes and goes.
    #[error("cannot listen for cgroups and CPUs that come and go: {0}")]
    Listen(#[from] io::Error),
    /// Totals that go on after a restart.
    #[error(transparent)]
    State(#[from] StateError),
}

/// A running session, and what became of its last window.
pub struct Pipeline {
    session: Session,
    stages: Stages,
    /// When to look whether the next counter group has its turn, where groups take turns.
    rotation: Option<Instant>,
    /// How long a turn lasts, if the user sets it.
    turn: Option<Duration>,
    /// Of samples, where there are any.
    upkeep: Option<Interval>,
}

impl Pipeline {
    /// Takes the first snapshot of a session: the first window begins here. To be called in a
    /// runtime, where samples are taken. `turn` is how long a turn lasts, if the user sets it.
    ///
    /// # Errors
    ///
    /// As of [`Session::pull`].
    pub fn start(
        mut session: Session,
        view: View,
        turn: Option<Duration>,
    ) -> Result<Self, SessionError> {
        Ok(Self {
            stages: Stages::new(view, session.pull()?),
            rotation: session.rotates().then(Instant::now),
            upkeep: session.samples().then(|| every(UPKEEP)),
            session,
            turn,
        })
    }

    /// Goes on with the totals of an earlier session. To be called before the first window ends,
    /// with a state that the session recalled ([`Session::recall`]).
    ///
    /// # Errors
    ///
    /// As of [`State::resume`]: totals begin anew.
    pub fn resume(&mut self, state: State<'_>) -> Result<(), PipelineError> {
        let generation = self.session.generation()?;
        let plan = self.session.plan();
        let before = state.resume(self.snapshot(), generation, plan, self.view())?;
        self.stages.resume(before);
        Ok(())
    }

    /// The file that has what the totals so far need to go on; none before the first window.
    pub(crate) fn state(&self, boot: &str) -> Result<Option<Encoded>, PipelineError> {
        let Some((window, joined)) = self.stages.window() else {
            return Ok(None);
        };
        let generation = self.session.generation()?;
        let plan = self.session.plan();
        let state = State::of(boot, generation, plan, self.snapshot(), window, joined);
        Ok(Some(state.encoded()?))
    }

    /// Whether counting went on before this session, in pinned maps.
    #[must_use]
    pub fn continuity(&self) -> Continuity {
        self.session.continuity()
    }

    /// Counting goes on in pinned maps when this ends.
    pub fn keep_pins(&mut self) {
        self.session.keep_pins();
    }

    /// What is counted.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.session.plan()
    }

    /// What the programs did so far, by CPU.
    ///
    /// # Errors
    ///
    /// As of [`Session::work`].
    pub fn work(&self) -> Result<BTreeMap<u32, CpuWork>, SessionError> {
        self.session.work()
    }

    /// The snapshot at the end of the last window.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        self.stages.snapshot()
    }

    /// How rows are made.
    #[must_use]
    pub fn view(&self) -> &View {
        self.stages.view()
    }

    /// What the last window shows; empty before the first.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.stages.report()
    }

    /// The same, to be changed before it is shown.
    pub fn report_mut(&mut self) -> &mut Report {
        self.stages.report_mut()
    }

    /// The rows of all cgroups that there are.
    #[must_use]
    pub fn live(&self) -> HashSet<Entity> {
        let naming = self.view().naming(&self.snapshot().names);
        naming.rows().cloned().collect()
    }

    /// Whether it samples.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.session.samples()
    }

    /// Ends the sampling of memory accesses: its PMU is free for others.
    pub fn stop_accesses(&mut self) {
        self.session.stop_accesses();
        if !self.session.samples() {
            self.upkeep = None;
        }
    }

    /// A time of this process' monotonic clock by that of reports: another one in a time namespace.
    #[must_use]
    pub fn kernel_time(&self, ours: Duration) -> Duration {
        self.session.kernel_time(ours)
    }

    /// Has the next windows tell which of these processes live ([`Self::lives`]), also where they
    /// did not run.
    pub fn watch(&mut self, processes: HashSet<u32>) {
        self.session.watch(processes);
    }

    /// Has the next windows tell what the processes of the command hold in memory
    /// ([`crate::session::Config::memory`]). To be called when the command starts: until then its
    /// process is a copy of this one. `command` is whom it is charged to.
    pub fn watch_command(&mut self, command: CgroupId) {
        self.session.watch_command(command);
    }

    /// Whether a process has a name in the last window: one that ended has none soon.
    #[must_use]
    pub fn lives(&self, process: u32) -> bool {
        self.snapshot().names.processes.contains_key(&process)
    }

    /// Ends sampling, and frees what it holds.
    pub fn stop_sampling(&mut self) {
        self.session.stop_sampling();
        self.upkeep = None;
    }

    /// Ends the window that is running, and begins the next one.
    ///
    /// # Errors
    ///
    /// As of [`Session::pull`].
    pub fn advance(&mut self) -> Result<(), SessionError> {
        self.advance_with_names(None)
    }

    /// The same; waits for so long for names that are not known yet.
    ///
    /// # Errors
    ///
    /// As of [`Session::pull`].
    pub fn advance_with_names(&mut self, wait: Option<Duration>) -> Result<(), SessionError> {
        // The hook of the window that ends: the pull may fall back to another.
        let merged_idle = self.session.hook() == Hook::CgroupSwitches;
        let mut now = self.session.pull()?;
        if let Some(limit) = wait {
            self.session.await_names(&mut now, limit);
        }
        self.stages.advance(self.session.plan(), now, merged_idle);
        Ok(())
    }

    /// Does what the session needs between two pulls, and never ends but by an error: gives counter
    /// groups their turns, takes in what comes and goes, looks after samples. May be dropped and
    /// called again.
    ///
    /// # Errors
    ///
    /// As of [`Session::drain`], or where a descriptor cannot be waited for.
    pub async fn keep(&mut self) -> Result<Infallible, PipelineError> {
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
                    let left = self.session.take_turn(self.turn)?;
                    self.rotation = Some(Instant::now() + left);
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

/// A timer whose first tick is one period from now. Ticks that nobody waited for are left out.
#[must_use]
pub fn every(period: Duration) -> Interval {
    let mut timer = interval_at(Instant::now() + period, period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
    timer
}

/// Waits for the next tick; for ever where there is no timer.
pub async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => std::future::pending().await,
    }
}

/// Waits until the descriptor is readable; for ever where there is none.
///
/// # Errors
///
/// Where the kernel refuses to wait.
pub async fn readable(fd: Option<&AsyncFd<RawFd>>) -> io::Result<AsyncFdReadyGuard<'_, RawFd>> {
    match fd {
        Some(fd) => fd.readable().await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
