//! The hook that sees changes of the owner. Attaches it; `cgroup-switches` is admitted only after a
//! check that no run of it is missing, and is watched from then on.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use probe_common::{CpuState, FlushMode};

use super::{
    EbpfObject, Session, SessionError, chain,
    object::{CGROUP_SWITCH, EventLinks, PerCpu, SCHED_EXIT, SCHED_SWITCH},
};
use crate::{
    machine::cgroup::Hierarchy,
    session::temporary_cgroup::TemporaryCgroup,
    snapshot::Hook,
    sys::{perf, spawn},
};

/// Compares the runs of the hook on one CPU with the kernel's own count of the same switches.
struct SwitchWatch {
    cpu: u32,
    /// A plain counter of cgroup switches.
    switches: OwnedFd,
    /// Switches at the first comparison.
    switches_before: u64,
    /// Runs of the hook at the first comparison.
    runs_before: u64,
}

/// The attached `cgroup_switch` programs.
pub(crate) struct CgroupSwitches {
    links: EventLinks,
    watches: Vec<SwitchWatch>,
}

/// Whether the program `sched_exit` sees the switches that the kernel hides from `sched_switch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SchedExitHook {
    /// No switch was missed yet.
    #[default]
    NotNeeded,
    /// The program is attached.
    Watched,
    /// This kernel has no such tracepoint, or refused the program.
    Unknown,
}

/// Switches that the hook must see on each CPU before it is admitted.
const ADMISSION_SWITCHES: u64 = 10;

/// Rounds of the test load on a CPU. Other load may keep the CPU from idling, or delay a sleep
/// until it is over.
const ADMISSION_ROUNDS: u32 = 5;

/// Pause between these switches.
const ADMISSION_PAUSE: Duration = Duration::from_micros(200);

/// Attaches the default hook.
pub(crate) fn attach_sched_switch(object: &mut EbpfObject) -> Result<(), SessionError> {
    object.programs.attach(SCHED_SWITCH)
}

impl Session {
    /// Attaches the program `sched_exit`, which sees switches that the kernel hides from
    /// `sched_switch`, right after them. It costs a program run at every switch, so a session
    /// attaches it by itself only after the first missed switch. Callers that must not miss even
    /// this one, or that know that the kernel hides switches, call this first. Does nothing on
    /// kernels without the tracepoint `sched_exit_tp`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the program.
    pub fn watch_exits(&mut self) -> Result<(), SessionError> {
        let sees_switches = self.config.counts_on_cpus() && self.hook() == Hook::SchedSwitch;
        if self.exits != SchedExitHook::NotNeeded || !sees_switches {
            return Ok(());
        }
        self.exits = SchedExitHook::Unknown;
        if self.object.programs.can_attach(SCHED_EXIT) {
            self.object.programs.attach(SCHED_EXIT)?;
            self.exits = SchedExitHook::Watched;
            // A switch that was hidden before may have left open a slice of a task that no longer
            // runs.
            self.reopen_slices()?;
        }
        Ok(())
    }

    /// Loads `sched_exit`, so that attaching it after a missed switch takes no time. A refusal is
    /// reported only then.
    pub(crate) fn prepare_exits(&mut self) {
        let programs = &mut self.object.programs;
        if self.exits == SchedExitHook::NotNeeded && programs.can_attach(SCHED_EXIT) {
            let _ = programs.prepare(SCHED_EXIT);
        }
    }

    /// Takes over `sched_exit` if an earlier process has pinned it.
    pub(crate) fn adopt_exits(&mut self) -> Result<(), SessionError> {
        if self.object.programs.is_pinned(SCHED_EXIT) {
            self.object.programs.attach(SCHED_EXIT)?;
            self.exits = SchedExitHook::Watched;
        }
        Ok(())
    }

    /// Reacts to the first missed switch: attaches `sched_exit` if possible, and logs the outcome.
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

    /// Charges the open slices, and reopens them for the tasks that run now.
    pub(crate) fn reopen_slices(&mut self) -> Result<(), SessionError> {
        (0..self.counters.len()).try_for_each(|at| self.flush_as_is(at, FlushMode::Charge))
    }
}

impl CgroupSwitches {
    /// Attaches the program and opens its watch on every CPU.
    pub(crate) fn attach(object: &mut EbpfObject, cpus: &[u32]) -> Result<Self, SessionError> {
        let links = object
            .programs
            .attach_to_cgroup_switches(CGROUP_SWITCH, cpus)?;
        let mut watches = Vec::new();
        for &cpu in cpus {
            let switches = perf::open_cgroup_switches(cpu).map_err(|source| SessionError::Map {
                what: "count cgroup switches".into(),
                source,
            })?;
            watches.push(SwitchWatch {
                cpu,
                switches,
                switches_before: 0,
                runs_before: 0,
            });
        }
        // Runs are read first: otherwise a switch in between would look like a missed one.
        let states = object.maps.state.get(0)?;
        for watch in &mut watches {
            watch.runs_before = states.get(&watch.cpu).map_or(0, |state| state.counts.runs);
            watch.switches_before = watch.count();
        }
        Ok(Self { links, watches })
    }

    /// Reads the number of switches on every CPU, for a comparison with states that are read later.
    pub(crate) fn switches(&self) -> Vec<u64> {
        self.watches.iter().map(SwitchWatch::count).collect()
    }

    /// Number of switches that the hook did not see.
    pub(crate) fn missed(&self, switches: &[u64], states: &BTreeMap<u32, CpuState>) -> u64 {
        let missed = |(watch, now): (&SwitchWatch, &u64)| {
            let runs =
                states.get(&watch.cpu).map_or(0, |state| state.counts.runs) - watch.runs_before;
            (now - watch.switches_before).saturating_sub(runs)
        };
        self.watches.iter().zip(switches).map(missed).sum()
    }

    /// Causes switches on every CPU, into and out of idle on at least one, and compares the counts.
    /// An error is the reason why the hook cannot be used.
    pub(crate) fn admit(
        &self,
        states: &PerCpu<CpuState>,
        hierarchy: &Hierarchy,
    ) -> Result<(), String> {
        let mut open: Vec<u32> = self.watches.iter().map(|watch| watch.cpu).collect();
        let mut turns = open.clone().into_iter().cycle();
        let mut why_incomplete = String::new();
        let mut pause = ADMISSION_PAUSE;
        for _ in 0..ADMISSION_ROUNDS {
            cause_switches(hierarchy, &open, pause)?;
            let switches = self.switches();
            let states = states.get(0).map_err(|error| error.to_string())?;
            open.clear();
            let mut out_of_idle = 0;
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
                    open.push(cpu);
                }
                out_of_idle += state.map_or(0, |state| state.counts.idle_runs);
            }
            if !open.is_empty() {
                continue;
            }
            if out_of_idle > 0 {
                return Ok(());
            }
            "no CPU was idle while a test load ran on it, so it was not shown that the hook sees \
             switches out of idle"
                .clone_into(&mut why_incomplete);
            // One CPU suffices, since all run the same kernel.
            open.extend(turns.next());
            pause *= 4;
        }
        Err(why_incomplete)
    }

    /// Detaches the hook.
    pub(crate) fn detach(self, object: &mut EbpfObject) -> Result<(), SessionError> {
        object.programs.detach(CGROUP_SWITCH, self.links)
    }
}

impl SwitchWatch {
    fn count(&self) -> u64 {
        // The event of an offline CPU is dead, and shows no switches.
        perf::read(self.switches.as_fd()).map_or(self.switches_before, |reading| reading.count)
    }
}

/// Has a child in a cgroup of its own sleep and wake on each CPU. This causes switches between two
/// cgroups, most of them into and out of idle.
fn cause_switches(hierarchy: &Hierarchy, cpus: &[u32], pause: Duration) -> Result<(), String> {
    let failed =
        |error: std::io::Error| format!("a test load in a cgroup of its own failed: {error}");
    let cgroup = TemporaryCgroup::make(hierarchy, "admission").map_err(failed)?;
    let directory = cgroup.directory.as_fd();
    spawn::sleep_on_cpus(directory, cpus, ADMISSION_SWITCHES, pause).map_err(failed)
}
