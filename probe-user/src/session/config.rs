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
    /// Rows of counts. Rows of samples are by cgroup, since each process has many of them. A cgroup
    /// has a row of its own too, so that its totals continue when its processes have ended.
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
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::No }
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
    /// A command's process tree will be followed
    /// ([`Session::follow`](super::Session::follow)).
    pub follow_command: bool,
    /// Rows that the USAGE map can have; None: by the number of CPUs.
    pub max_rows: Option<u32>,
    /// Sampling of memory accesses by SPE.
    pub spe: Option<SpeConfig>,
    /// Whether to read the memory use of cgroups or processes.
    pub memory: bool,
    /// Whether to read the pressure, throttling and memory events of cgroups.
    pub pressure: bool,
    /// Sampling of events. It needs counting too, which finds the owners.
    pub sampling: Option<SamplingConfig>,
    /// Resolves the names of containers; without it snapshots have ids only.
    pub resolver: Option<Arc<Resolver>>,
    /// Where maps and programs are pinned, so that counting outlives the process and the next
    /// session continues it; None: counting ends with this session.
    pub pins: Option<PinPath>,
}

impl Config {
    /// The programs that report starts and ends of cgroups, processes and CPUs, and moves of tasks.
    ///
    /// With `PREEMPT_RT` a task that changes its cgroup can be preempted while `cgroup_attach`
    /// charges its slice (Linux 7.0), and the deltas would be charged twice. So this program is
    /// left out: the whole slice belongs to the old cgroup, and is counted as moved.
    pub(super) fn lifecycle(&self, machine: &Machine) -> Vec<object::Tracepoint> {
        let mut all = vec![
            object::CGROUP_MKDIR,
            object::CGROUP_RMDIR,
            object::CPU_HOTPLUG,
        ];
        // As in `uname -v`. Only kernels before 6.12 with the PREEMPT_RT patch have
        // /sys/kernel/realtime.
        let version = machine.proc("sys/kernel/version").unwrap_or_default();
        if !version.split(' ').any(|word| word == "PREEMPT_RT") {
            all.push(object::CGROUP_ATTACH);
        }
        if self.by_process.any() {
            all.push(object::PROCESS_EXIT);
        }
        if self.keeps_ledger(machine) {
            all.push(object::WAIT_MIGRATE);
        }
        if self.follow_command {
            all.extend([object::FOLLOW_FORK, object::FOLLOW_FREE]);
        }
        all
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
