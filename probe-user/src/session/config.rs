//! Configuration of a session: what it counts, and the programs that it needs.

use std::sync::Arc;

use serde::Serialize;

use super::{PinPath, SamplingConfig, SessionError, SpeConfig, object};
use crate::{machine::Machine, names::resolver::Resolver, plan::Plan, snapshot::Hook};

/// Which rows are keyed by process, not by cgroup alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ByProcess {
    /// None: all rows are by cgroup alone.
    #[default]
    No,
    /// All rows.
    All,
    /// Only rows of counts. Rows of samples are by cgroup, since each process has many of them.
    /// Each cgroup has its own row of counts too, so that its totals continue when its processes
    /// have ended.
    Counts,
}

impl ByProcess {
    /// The value of the programs' global `BY_PROCESS`.
    pub(super) fn setting(self) -> u8 {
        match self {
            Self::No => 0,
            Self::All => 1,
            Self::Counts => 2,
        }
    }

    /// Whether any rows are keyed by process.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::No
    }
}

impl From<bool> for ByProcess {
    fn from(is_by_process: bool) -> Self {
        if is_by_process { Self::All } else { Self::No }
    }
}

/// The most rows that the kernel's map can have. The kernel allocates a bucket of 16 bytes for each
/// row, rounded up to a power of two, and all buckets must take less than 4 GiB
/// (`kernel/bpf/hashtab.c`, `htab_map_alloc`).
pub const MOST_ROWS: u32 = 1 << 27;

/// What a session counts and how. The default counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The events.
    pub plan: Plan,
    /// The requested hook; see [`Session::hook`](super::Session::hook) for the hook in use.
    pub hook: Hook,
    /// Which rows are keyed by process.
    pub by_process: ByProcess,
    /// Whether a command's process tree will be followed
    /// ([`Session::follow`](super::Session::follow)).
    pub follow_command: bool,
    /// Maximum number of rows in the USAGE map; None for a number that follows from the number of
    /// CPUs.
    pub max_rows: Option<u32>,
    /// Sampling of memory accesses by SPE.
    pub spe: Option<SpeConfig>,
    /// Whether to read the memory use of cgroups or processes.
    pub memory: bool,
    /// Whether to read the pressure, throttling and memory events of cgroups.
    pub pressure: bool,
    /// Sampling of events. It also needs a plan that counts, since counting finds the owners.
    pub sampling: Option<SamplingConfig>,
    /// The resolver of container names; None if snapshots have only ids.
    pub resolver: Option<Arc<Resolver>>,
    /// The directory in which maps and programs are pinned, so that counting outlives the process
    /// and the next session continues it. None if counting ends with this session.
    pub pins: Option<PinPath>,
}

impl Config {
    /// The programs that report starts and ends of cgroups, processes and CPUs, and moves of tasks.
    ///
    /// `cgroup_attach` is left out with `PREEMPT_RT`. There a task that changes its cgroup can be
    /// preempted while `cgroup_attach` charges its slice (Linux 7.0), and the deltas would be
    /// charged twice. Without it, the whole slice is charged to the old cgroup, and is counted as
    /// moved.
    pub(super) fn lifecycle(&self, machine: &Machine) -> Vec<object::Tracepoint> {
        let mut programs = vec![
            object::CGROUP_MKDIR,
            object::CGROUP_RMDIR,
            object::CPU_HOTPLUG,
        ];
        // The version as in `uname -v` names PREEMPT_RT. /sys/kernel/realtime exists only on
        // kernels before 6.12 with the PREEMPT_RT patch.
        let version = machine.proc("sys/kernel/version").unwrap_or_default();
        if !version.split(' ').any(|word| word == "PREEMPT_RT") {
            programs.push(object::CGROUP_ATTACH);
        }
        if self.by_process.any() {
            programs.push(object::PROCESS_EXIT);
        }
        if self.keeps_ledger(machine) {
            programs.push(object::WAIT_MIGRATE);
        }
        if self.follow_command {
            programs.extend([object::FOLLOW_FORK, object::FOLLOW_FREE]);
        }
        programs
    }

    /// Whether the ledger of waits is kept. It needs run queues of CPUs: schedulers of `sched_ext`
    /// (Linux 6.12) have other queues.
    pub(crate) fn keeps_ledger(&self, machine: &Machine) -> bool {
        let state = machine.sys("kernel/sched_ext/state");
        self.plan.counts_waits() && state.is_none_or(|state| state != "enabled")
    }

    /// Whether memory accesses are sampled.
    pub(crate) fn samples_accesses(&self) -> bool {
        let sampling = self.sampling.as_ref();
        self.spe.is_some() || sampling.is_some_and(|sampling| sampling.accesses() != 0)
    }

    /// Checks that the kernel accepts the events that sample memory accesses without SPE, if there
    /// are any.
    pub(crate) fn try_accesses(&self, machine: &Machine) -> Result<(), SessionError> {
        let online: Vec<u32> = machine.online()?.iter().collect();
        let sampling = self.sampling.as_ref();
        Ok(sampling.map_or(Ok(()), |it| it.try_accesses(&online))?)
    }

    /// Whether anything is counted on CPUs. If not, no hook is needed.
    pub(super) fn counts_on_cpus(&self) -> bool {
        !self.plan.groups.is_empty()
    }
}
