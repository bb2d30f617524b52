//! What a session counts, and which programs that takes.

use std::sync::Arc;

use serde::Serialize;

use super::{PinPlace, SamplingConfig, SessionError, SpeConfig, object};
use crate::{machine::Machine, names::resolver::Resolver, plan::Plan, snapshot::Hook};

/// Whether rows are by process too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ByProcess {
    /// By cgroup alone.
    #[default]
    No,
    /// All of them.
    All,
    /// Those of counts and of sampled events; those of memory accesses are by cgroup, since each
    /// process has many of them. A cgroup has a row of its own too, so that its totals go on when
    /// its processes have ended.
    Counts,
}

impl ByProcess {
    /// What the programs are told.
    pub(super) fn setting(self) -> u8 {
        match self {
            Self::No => 0,
            Self::All => 1,
            Self::Counts => 2,
        }
    }

    /// Whether any rows are.
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

/// The most rows that the kernel's map can have room for: the kernel makes a bucket of 16 bytes for
/// each, in powers of two, and all buckets have less than 4 GiB
/// (`kernel/bpf/hashtab.c`, `htab_map_alloc`).
pub const MOST_ROWS: u32 = 1 << 27;

/// What a session counts and how. The default counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The events.
    pub plan: Plan,
    /// The hook that is asked for; see [`Session::hook`](super::Session::hook) for the one in use.
    pub hook: Hook,
    /// Whether rows are by process too.
    pub by_process: ByProcess,
    /// A command's process tree will be followed
    /// ([`Session::follow`](super::Session::follow)).
    pub follow_command: bool,
    /// Rows that the USAGE map takes; None: by the number of CPUs.
    pub max_rows: Option<u32>,
    /// Sampling of memory accesses beside the counting.
    pub spe: Option<SpeConfig>,
    /// Look at what cgroups, or processes, hold in memory.
    pub memory: bool,
    /// Sampling of events beside the counting, without which no owner is known.
    pub sampling: Option<SamplingConfig>,
    /// Who knows what containers are called; without it snapshots have ids only.
    pub resolver: Option<Arc<Resolver>>,
    /// Where maps and programs are pinned, so that counting outlives the process and the next
    /// session goes on; None: all ends with this one.
    pub pins: Option<PinPlace>,
}

impl Config {
    /// The programs that tell what comes and goes.
    ///
    /// With `PREEMPT_RT` a task can be preempted while the program at its move charges (Linux 7.0),
    /// and what it has read would be charged twice: its slice is the old cgroup's to its end there,
    /// and is counted as moved.
    pub(super) fn lifecycle(&self, machine: &Machine) -> Vec<object::Tracepoint> {
        let mut all = vec![
            object::CGROUP_MKDIR,
            object::CGROUP_RMDIR,
            object::CPU_HOTPLUG,
        ];
        // As in `uname -v`. /sys/kernel/realtime is in kernels with the patch of before 6.12 alone.
        let version = machine.proc("sys/kernel/version").unwrap_or_default();
        if !version.split(' ').any(|word| word == "PREEMPT_RT") {
            all.push(object::CGROUP_ATTACH);
        }
        if self.by_process.any() {
            all.push(object::PROCESS_EXIT);
        }
        if self.follow_command {
            all.extend([object::FOLLOW_FORK, object::FOLLOW_FREE]);
        }
        all
    }

    /// Whether memory accesses are sampled.
    pub(crate) fn samples_accesses(&self) -> bool {
        let sampling = self.sampling.as_ref();
        self.spe.is_some() || sampling.is_some_and(|sampling| sampling.accesses() != 0)
    }

    /// Whether the kernel takes the events by which memory accesses are sampled without SPE;
    /// nothing where there are none.
    pub(crate) fn try_accesses(&self, machine: &Machine) -> Result<(), SessionError> {
        let online: Vec<u32> = machine.online()?.iter().collect();
        let sampling = self.sampling.as_ref();
        Ok(sampling.map_or(Ok(()), |it| it.try_accesses(&online))?)
    }

    /// Whether anything is counted on CPUs. If not, no switch matters.
    pub(super) fn counts_on_cpus(&self) -> bool {
        !self.plan.groups.is_empty()
    }
}
