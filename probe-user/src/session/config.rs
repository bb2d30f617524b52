//! What a session counts, and which programs that takes.

use std::sync::Arc;

use super::{PinPlace, SamplingConfig, SpeConfig, object};
use crate::{names::resolver::Resolver, plan::Plan, snapshot::Hook};

/// What a session counts and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The events.
    pub plan: Plan,
    /// The hook that is asked for; see [`Session::hook`](super::Session::hook) for the one in use.
    pub hook: Hook,
    /// Rows by process too.
    pub by_process: bool,
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
    pub(super) fn lifecycle(&self) -> Vec<object::Tracepoint> {
        let mut all = vec![
            object::CGROUP_MKDIR,
            object::CGROUP_RMDIR,
            object::CGROUP_ATTACH,
            object::CPU_HOTPLUG,
        ];
        if self.by_process {
            all.push(object::PROCESS_EXIT);
        }
        if self.follow_command {
            all.extend([object::FOLLOW_FORK, object::FOLLOW_FREE]);
        }
        all
    }

    /// Whether anything is counted on CPUs. If not, no switch matters.
    pub(super) fn counts_on_cpus(&self) -> bool {
        !self.plan.groups.is_empty()
    }
}
