//! The hook that sees changes of the owner ([`SwitchHook`]). The hook `cgroup-switches` is admitted
//! only after a test load has shown that it runs at each switch. From then on each pull checks
//! that.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use probe_common::{CpuState, FlushMode};

use super::{
    EbpfObject, SessionError, chain,
    object::{CGROUP_SWITCH, EventLinks, PerCpu, SCHED_EXIT, SCHED_SWITCH},
};
use crate::{
    machine::cgroup::Hierarchy,
    session::temporary_cgroup::TemporaryCgroup,
    snapshot::Hook,
    sys::{clock::now, perf, spawn},
};

/// Compares the hook's runs on one CPU with the kernel's own count of the same switches.
struct SwitchWatch {
    cpu: u32,
    /// A plain counter of cgroup switches.
    switches: OwnedFd,
    /// Switches at the first comparison.
    switches_before: u64,
    /// Runs of the hook at the first comparison.
    runs_before: u64,
}

/// The state of the program `sched_exit`, which sees switches that the kernel hides from
/// `sched_switch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SchedExitHook {
    /// Not attached: no switch was missed yet.
    #[default]
    NotNeeded,
    /// Attached.
    Watched,
    /// Not available: this kernel has no such tracepoint, or refused the program.
    Unknown,
}

/// Number of switches that the hook must see on each CPU before it is admitted.
const ADMISSION_SWITCHES: u64 = 10;

/// Pause between the switches of the test load in its first round. Each further round pauses four
/// times as long, since other load may keep a CPU from idling, or delay a switch until the sleep is
/// over.
const ADMISSION_PAUSE: Duration = Duration::from_micros(200);

/// Time after which no further round begins.
const ADMISSION_TIME: Duration = Duration::from_secs(1);

/// The hook in use.
#[derive(Default)]
pub(crate) struct SwitchHook {
    /// Links of `cgroup-switches`, while it is tried or in use.
    links: Option<EventLinks>,
    watches: Vec<SwitchWatch>,
    /// The state of the program `sched_exit`.
    pub(super) exits: SchedExitHook,
    /// The largest number of switches that `cgroup-switches` had missed at a pull.
    pub(super) most_missed: u64,
}

impl SwitchHook {
    pub(super) fn kind(&self) -> Hook {
        match self.links {
            Some(_) => Hook::CgroupSwitches,
            None => Hook::SchedSwitch,
        }
    }

    /// The flush mode for this hook.
    pub(super) fn charge_mode(&self) -> FlushMode {
        match self.kind() {
            Hook::SchedSwitch => FlushMode::Charge,
            Hook::CgroupSwitches => FlushMode::ChargeAndForget,
        }
    }

    /// Attaches the hook `wanted`, or `sched-switch` if `wanted` misses switches here.
    pub(super) fn attach(
        &mut self,
        object: &mut EbpfObject,
        wanted: Hook,
        hierarchy: &Hierarchy,
        online: &[u32],
    ) -> Result<(), SessionError> {
        if wanted == Hook::CgroupSwitches {
            self.watch_cgroup_switches(object, online)?;
            let Err(reason) = self.admit(&object.maps.state, hierarchy) else {
                return Ok(());
            };
            tracing::warn!(
                "hook cgroup-switches is not complete here: {reason}; using sched-switch"
            );
            self.fall_back(object)?;
        } else {
            object.programs.attach(SCHED_SWITCH)?;
        }
        // An earlier process may have pinned `sched_exit`.
        if object.programs.is_pinned(SCHED_EXIT) {
            object.programs.attach(SCHED_EXIT)?;
            self.exits = SchedExitHook::Watched;
        }
        Ok(())
    }

    /// Replaces the hook `cgroup-switches` by `sched-switch`. Returns whether it was in use.
    pub(super) fn fall_back(&mut self, object: &mut EbpfObject) -> Result<bool, SessionError> {
        let Some(links) = self.links.take() else {
            return Ok(false);
        };
        self.watches.clear();
        object.programs.detach(CGROUP_SWITCH, links)?;
        object.programs.attach(SCHED_SWITCH)?;
        Ok(true)
    }

    /// Loads `sched_exit`, so that attaching it after a missed switch takes no time. A refusal is
    /// reported only then.
    pub(super) fn prepare_exits(&self, object: &mut EbpfObject) {
        let programs = &mut object.programs;
        if self.exits == SchedExitHook::NotNeeded && programs.can_attach(SCHED_EXIT) {
            let _ = programs.prepare(SCHED_EXIT);
        }
    }

    /// Attaches `sched_exit` if the hook is `sched-switch` and this kernel has its tracepoint.
    /// Returns whether it was attached now.
    pub(super) fn watch_exits(&mut self, object: &mut EbpfObject) -> Result<bool, SessionError> {
        if self.exits != SchedExitHook::NotNeeded || self.kind() != Hook::SchedSwitch {
            return Ok(false);
        }
        self.exits = SchedExitHook::Unknown;
        if !object.programs.can_attach(SCHED_EXIT) {
            return Ok(false);
        }
        object.programs.attach(SCHED_EXIT)?;
        self.exits = SchedExitHook::Watched;
        Ok(true)
    }

    /// Logs a missed switch, after an attempt to attach `sched_exit`. `refused` is the error of
    /// that attempt.
    pub(super) fn log_missed(&self, refused: Option<&SessionError>) {
        let exit = SCHED_EXIT.at();
        match (self.exits, refused) {
            (SchedExitHook::NotNeeded, _) => {}
            (SchedExitHook::Watched, None) => tracing::debug!(
                "this kernel did not show a context switch to the program at sched_switch: a \
                 second one, at {exit}, sees such switches from here on"
            ),
            (SchedExitHook::Watched, Some(error)) => tracing::warn!(
                "this kernel did not show a context switch to the program at sched_switch: a \
                 second one, at \
                 {exit}, sees such switches, but the slices before it could not be closed: {}",
                chain(error)
            ),
            (SchedExitHook::Unknown, refused) => tracing::warn!(
                "this kernel did not show a context switch to the program at sched_switch, and \
                 {}: slices around \
                 such switches are split by estimate (--self says how many and how long)",
                refused.map_or_else(
                    || format!("has no {exit} where it could be seen"),
                    |error| chain(error)
                )
            ),
        }
    }

    /// Attaches `cgroup_switch` and opens its watch on every CPU.
    fn watch_cgroup_switches(
        &mut self,
        object: &mut EbpfObject,
        cpus: &[u32],
    ) -> Result<(), SessionError> {
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
        (self.links, self.watches) = (Some(links), watches);
        Ok(())
    }

    /// The number of switches on each watched CPU, for [`Self::missed`] with states that are read
    /// later.
    pub(super) fn switches(&self) -> Vec<u64> {
        self.watches.iter().map(SwitchWatch::count).collect()
    }

    /// The number of `switches` that the hook did not see, given the programs' `states`.
    pub(super) fn missed(&mut self, switches: &[u64], states: &BTreeMap<u32, CpuState>) -> u64 {
        let missed = |(watch, now): (&SwitchWatch, &u64)| {
            let runs =
                states.get(&watch.cpu).map_or(0, |state| state.counts.runs) - watch.runs_before;
            (now - watch.switches_before).saturating_sub(runs)
        };
        let missed: u64 = self.watches.iter().zip(switches).map(missed).sum();
        self.most_missed = self.most_missed.max(missed);
        missed
    }

    /// Causes switches into and out of idle on every CPU, and compares the counts. An error is the
    /// reason why the hook cannot be used.
    fn admit(&self, states: &PerCpu<CpuState>, hierarchy: &Hierarchy) -> Result<(), String> {
        let mut pending: Vec<u32> = self.watches.iter().map(|watch| watch.cpu).collect();
        let mut why_incomplete = String::new();
        let mut pause = ADMISSION_PAUSE;
        let began = now();
        while !pending.is_empty() {
            if now().saturating_sub(began) > ADMISSION_TIME {
                return Err(why_incomplete);
            }
            cause_switches(hierarchy, &pending, pause)?;
            let switches = self.switches();
            let states = states.get(0).map_err(|error| error.to_string())?;
            pending.clear();
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
                    pending.push(cpu);
                } else if state.is_none_or(|state| state.counts.idle_runs == 0) {
                    // A kernel may hide the idle task of one CPU but not of another.
                    why_incomplete = format!(
                        "CPU {cpu} was never idle while a test load ran on it, so it was not shown \
                         that the hook sees switches out of idle"
                    );
                    pending.push(cpu);
                }
            }
            pause *= 4;
        }
        Ok(())
    }
}

impl SwitchWatch {
    fn count(&self) -> u64 {
        // The event of an offline CPU is dead, and shows no switches.
        perf::read(self.switches.as_fd()).map_or(self.switches_before, |reading| reading.count)
    }
}

/// Lets a child in its own cgroup sleep and wake on each CPU. This causes switches between two
/// cgroups, most of them into and out of idle.
fn cause_switches(hierarchy: &Hierarchy, cpus: &[u32], pause: Duration) -> Result<(), String> {
    let failed =
        |error: std::io::Error| format!("a test load in a cgroup of its own failed: {error}");
    let cgroup = TemporaryCgroup::make(hierarchy, "admission").map_err(failed)?;
    let directory = cgroup.directory.as_fd();
    spawn::sleep_on_cpus(directory, cpus, ADMISSION_SWITCHES, pause).map_err(failed)
}
