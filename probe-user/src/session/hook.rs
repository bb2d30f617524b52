//! The hook that tells one owner from the next: attaching it, and for `cgroup-switches`
//! showing first that no run of it is missing, and watching it after.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
};

use probe_common::{CpuState, FlushMode};

use super::{
    Object, Session, SessionError, chain,
    object::{CGROUP_SWITCH, Links, PerCpu, SCHED_EXIT, SCHED_SWITCH},
};
use crate::{
    machine::cgroup::Hierarchy,
    session::own_cgroup::OwnCgroup,
    snapshot::Hook,
    sys::{perf, spawn},
};

/// Runs of the hook and the kernel's own count of the same switches, of one CPU.
struct Watch {
    cpu: u32,
    /// A plain counter of cgroup switches.
    switches: OwnedFd,
    /// Both at a moment when they were compared first.
    switches_before: u64,
    runs_before: u64,
}

/// The attached `cgroup_switch` programs.
pub(crate) struct CgroupSwitches {
    links: Links,
    watches: Vec<Watch>,
}

/// Whether a second program sees the switches that the kernel does not show to `sched_switch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SchedExitHook {
    /// No switch was missed so far.
    #[default]
    NotNeeded,
    /// The program is attached.
    Watched,
    /// This kernel has no such tracepoint, or refused the program.
    Unknown,
}

/// Switches that the hook must have seen on each CPU before it is admitted.
const ADMISSION_SWITCHES: u64 = 10;

/// Times that a CPU gets the test load: something else may keep it from idling, or delay a nap
/// until it is over.
const ADMISSION_ROUNDS: u32 = 5;

/// Attaches the default hook.
pub(crate) fn attach_sched_switch(object: &mut Object) -> Result<(), SessionError> {
    object.programs.attach(SCHED_SWITCH)
}

impl Session {
    /// Has a second program see, right after them, the switches that the kernel does not show to
    /// `sched_switch`. It costs a run of a program at every switch, so a session does this by
    /// itself only once it has missed one. A caller to whom the first one matters, or who knows that
    /// its kernel hides some, need not wait for that. Nothing happens where the kernel has no
    /// tracepoint `sched_exit_tp`.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses the program.
    pub fn watch_exits(&mut self) -> Result<(), SessionError> {
        let sees_switches = self.config.counts_on_cpus() && self.hook() == Hook::SchedSwitch;
        if self.exits != SchedExitHook::NotNeeded || !sees_switches {
            return Ok(());
        }
        self.exits = SchedExitHook::Unknown;
        if self.object.programs.can_attach(SCHED_EXIT) {
            self.object.programs.attach(SCHED_EXIT)?;
            self.exits = SchedExitHook::Watched;
            // A switch that was hidden before may have left a slice open that is nobody's any more.
            self.reopen_slices()?;
        }
        Ok(())
    }

    /// Loads the second program, so that it is attached at once when a switch is missed. A refusal is
    /// told then.
    pub(crate) fn prepare_exits(&mut self) {
        let programs = &mut self.object.programs;
        if self.exits == SchedExitHook::NotNeeded && programs.can_attach(SCHED_EXIT) {
            let _ = programs.prepare(SCHED_EXIT);
        }
    }

    /// Goes on with the second program where an earlier process has pinned it.
    pub(crate) fn adopt_exits(&mut self) -> Result<(), SessionError> {
        if self.object.programs.is_pinned(SCHED_EXIT) {
            self.object.programs.attach(SCHED_EXIT)?;
            self.exits = SchedExitHook::Watched;
        }
        Ok(())
    }

    /// Once a switch was missed: does what can be done about it, and says so.
    pub(crate) fn react_to_missed(&mut self) {
        if self.exits != SchedExitHook::NotNeeded {
            return;
        }
        let exit = SCHED_EXIT.at();
        let refused = self.watch_exits().err();
        match (self.exits, refused) {
            (SchedExitHook::NotNeeded, _) => {}
            (SchedExitHook::Watched, None) => tracing::info!(
                "this kernel did not show a context switch to the program at sched_switch: a \
                 second one, at {exit}, sees such switches from here on"
            ),
            (SchedExitHook::Watched, Some(error)) => tracing::warn!(
                "this kernel did not show a context switch to the program at sched_switch: a \
                 second one, at \
                 {exit}, sees such switches, but the slices before it could not be closed: {}",
                chain(&error)
            ),
            (SchedExitHook::Unknown, refused) => tracing::warn!(
                "this kernel did not show a context switch to the program at sched_switch, and \
                 {}: slices around \
                 such switches are split by estimate (--self says how many and how long)",
                refused.map_or_else(
                    || format!("has no {exit} where it could be seen"),
                    |error| chain(&error)
                )
            ),
        }
    }

    /// Charges the open slices, and reads again whose they are.
    pub(crate) fn reopen_slices(&mut self) -> Result<(), SessionError> {
        (0..self.counters.len()).try_for_each(|at| self.flush_as_is(at, FlushMode::Charge))
    }
}

impl CgroupSwitches {
    /// Attaches the program and its watch on every CPU.
    pub(crate) fn attach(object: &mut Object, cpus: &[u32]) -> Result<Self, SessionError> {
        let links = object
            .programs
            .attach_to_cgroup_switches(CGROUP_SWITCH, cpus)?;
        let mut watches = Vec::new();
        for &cpu in cpus {
            let switches = perf::open_cgroup_switches(cpu).map_err(|source| SessionError::Map {
                what: "count cgroup switches".into(),
                source,
            })?;
            watches.push(Watch {
                cpu,
                switches,
                switches_before: 0,
                runs_before: 0,
            });
        }
        // Runs first: the other way round a switch in between would look like a missed one.
        let states = object.maps.state.get(0)?;
        for watch in &mut watches {
            watch.runs_before = states.get(&watch.cpu).map_or(0, |state| state.counts.runs);
            watch.switches_before = watch.count();
        }
        Ok(Self { links, watches })
    }

    /// Counts the switches of every CPU now; to be compared with states that are read after.
    pub(crate) fn switches(&self) -> Vec<u64> {
        self.watches.iter().map(Watch::count).collect()
    }

    /// Switches that the hook did not see.
    pub(crate) fn missed(&self, switches: &[u64], states: &BTreeMap<u32, CpuState>) -> u64 {
        let missed = |(watch, now): (&Watch, &u64)| {
            let runs =
                states.get(&watch.cpu).map_or(0, |state| state.counts.runs) - watch.runs_before;
            (now - watch.switches_before).saturating_sub(runs)
        };
        self.watches.iter().zip(switches).map(missed).sum()
    }

    /// Makes switches on every CPU, out of idle and into it, and compares; an error is the reason
    /// why the hook cannot be used.
    pub(crate) fn admit(
        &self,
        states: &PerCpu<CpuState>,
        hierarchy: &Hierarchy,
    ) -> Result<(), String> {
        let mut open: Vec<&Watch> = self.watches.iter().collect();
        let mut why_incomplete = String::new();
        for _ in 0..ADMISSION_ROUNDS {
            let cpus: Vec<u32> = open.iter().map(|watch| watch.cpu).collect();
            provoke(hierarchy, &cpus)?;
            let switches = self.switches();
            let states = states.get(0).map_err(|error| error.to_string())?;
            open.clear();
            for (watch, now) in self.watches.iter().zip(&switches) {
                let seen = now - watch.switches_before;
                let state = states.get(&watch.cpu);
                let runs = state.map_or(0, |state| state.counts.runs) - watch.runs_before;
                let cpu = watch.cpu;
                if runs < seen {
                    return Err(format!(
                        "the hook ran {runs} times for {seen} cgroup switches on CPU {cpu}"
                    ));
                } else if seen < ADMISSION_SWITCHES {
                    why_incomplete = format!(
                        "the kernel counted {seen} cgroup switches on CPU {cpu} where a test load \
                         made at least {ADMISSION_SWITCHES} (is the perf_event controller on the \
                         cgroup2 hierarchy, and its cgroup.subtree_control in use?)"
                    );
                    open.push(watch);
                } else if state.is_none_or(|state| state.counts.idle_runs == 0) {
                    why_incomplete = format!(
                        "CPU {cpu} was never idle while a test load ran on it, so it was not shown \
                         that the hook sees switches out of idle"
                    );
                    open.push(watch);
                }
            }
            if open.is_empty() {
                return Ok(());
            }
        }
        Err(why_incomplete)
    }

    /// Takes the hook out.
    pub(crate) fn detach(self, object: &mut Object) -> Result<(), SessionError> {
        object.programs.detach(CGROUP_SWITCH, self.links)
    }
}

impl Watch {
    fn count(&self) -> u64 {
        // An offline CPU's event is dead: no switches, none missed.
        perf::read(self.switches.as_fd()).map_or(self.switches_before, |reading| reading.count)
    }
}

/// A child in a cgroup of its own sleeps and wakes on each CPU in turn: switches between two
/// cgroups, most of them into idle and out of it.
fn provoke(hierarchy: &Hierarchy, cpus: &[u32]) -> Result<(), String> {
    let failed =
        |error: std::io::Error| format!("a test load in a cgroup of its own failed: {error}");
    let cgroup = OwnCgroup::make(hierarchy, "admission").map_err(failed)?;
    spawn::nap(cgroup.directory.as_fd(), cpus, ADMISSION_SWITCHES).map_err(failed)
}
