//! Join: rolls the owners of a window up into rows ([`Entity`]), as the user's [`View`] defines
//! them. Entry: [`View::join`].

mod cache_lines;
mod hotspots;
mod memory;
mod naming;
mod pressure;
mod rows;
pub mod share;
mod sources;
mod waits;

use std::{collections::BTreeMap, sync::Arc};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

use self::share::{MetricShares, OwnerShare, Shares};
pub use self::{
    cache_lines::CacheLine,
    hotspots::{Hotspot, HotspotCounts},
    memory::{MemoryCapacities, MemoryCapacity, MemoryPeak},
    pressure::{EntityPressure, PressureRows},
    rows::Rows,
    sources::SourceRows,
    waits::{EntityWaits, MostWaitedFor, NamedWait, WaitRows, WaitedFor},
};
pub(crate) use self::{
    cache_lines::add as add_lines,
    naming::Naming,
    sources::{MonitoredBytes, NoRows, SourceDelta},
};
use crate::{
    plan::Plan,
    snapshot::Names,
    window::{Gained, SampleUsage, Usage, Window},
};

/// What a row of the output stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum By {
    /// Containers; all else is `system`.
    #[default]
    Container,
    /// Pods, and containers that are in none.
    Pod,
    /// cgroups, each with what ran in it itself, not below it.
    Cgroup,
    /// Processes.
    Process,
}

/// What a row of the output stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Entity {
    /// The command that pmuscope started.
    Command(Arc<str>),
    /// A pod, by its uid.
    Pod(Arc<str>),
    /// A container, by its id, with the uid of its pod.
    Container {
        /// The runtime's id.
        id: Arc<str>,
        /// Uid of its pod.
        pod: Option<Arc<str>>,
    },
    /// A cgroup, by its path.
    Cgroup(Arc<str>),
    /// A process.
    Process {
        /// Process id in the initial pid namespace.
        tgid: u32,
        /// Command name, if known.
        name: Option<Arc<str>>,
    },
    /// Processes that ended in a window, when there are too many to show each.
    EndedProcesses,
    /// A cgroup without a name, by its id: the name was lost (see `lost_events`).
    Unnamed(u64),
    /// The remaining containers, when there are too many to show each.
    Others,
    /// Outside containers: the host's own processes and the kernel's threads.
    System,
    /// Counts that did not fit into the USAGE map.
    Overflow,
    /// Samples of unknown threads.
    Unattributed,
    /// The idle task.
    Idle,
    /// Idle and what runs in the root cgroup: hook `cgroup-switches` cannot tell them apart.
    SystemAndIdle,
    /// A process, listed in addition to the row that includes its counts.
    ProcessOf {
        /// Process id in the initial pid namespace.
        tgid: u32,
        /// Command name, if known.
        name: Option<Arc<str>>,
        /// The row that includes its counts.
        row: Box<Entity>,
    },
}

impl Entity {
    /// Whether it exists as long as the machine runs.
    pub(crate) fn never_ends(&self) -> bool {
        match self {
            Self::System
            | Self::Overflow
            | Self::Unattributed
            | Self::Idle
            | Self::SystemAndIdle => true,
            Self::Command(_)
            | Self::Pod(_)
            | Self::Container { .. }
            | Self::Cgroup(_)
            | Self::Process { .. }
            | Self::ProcessOf { .. }
            | Self::EndedProcesses
            | Self::Others
            | Self::Unnamed(_) => false,
        }
    }
}

/// The command that pmuscope started, and the owner that it is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOwner {
    /// The command as the user wrote it.
    pub name: String,
    /// The cgroup of the command, or [`CgroupId::COMMAND`] for its process tree.
    pub owner: CgroupId,
}

impl CommandOwner {
    /// The row of the command.
    fn entity(&self) -> Entity {
        Entity::Command(self.name.as_str().into())
    }
}

/// How owners become rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// What a row stands for.
    pub by: By,
    /// Only cgroups at and below this path have rows; None: all cgroups. Idle and the total are
    /// always those of the machine.
    pub below: Option<String>,
    /// The command, if pmuscope started one.
    pub command: Option<CommandOwner>,
    /// Whether the hook cannot tell idle from the root cgroup.
    pub merged_idle: bool,
    /// Shows sampled accesses by operation and memory level, with these numbers of pages and lines;
    /// None: not shown.
    pub accesses: Option<Hottest>,
    /// Number of processes shown in addition to these rows. Unless it is 0, the session has rows by
    /// process.
    pub processes: usize,
    /// Number of addresses of sampled events shown for each row and event; 0: none.
    pub hot: usize,
    /// The most entities for which a row shows how long it waited behind them; waits behind others
    /// are summed. 0: all entities, as in a recording.
    #[serde(skip)]
    pub waited_for: usize,
    /// Which of these rows are shown.
    #[serde(skip)]
    pub rows: RowSelection,
}

/// Which rows are shown, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSelection {
    /// Only rows with one of these texts in a name; empty: all.
    pub names: Vec<String>,
    /// Only processes with these ids, and the rows that they are in; empty: all. Unless it is
    /// empty, the session has rows by process.
    pub pids: Vec<u32>,
    /// The metric or event that orders the rows, the largest first; None: in the usual order.
    pub sort: Option<String>,
    /// The number of rows to show, from the first in this order; None: all. Rows that never end,
    /// such as idle, are shown in addition.
    pub top: Option<usize>,
}

/// Numbers of most accessed pages and lines to show; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hottest {
    /// Pages of each process.
    pub pages: usize,
    /// Cache lines that CPUs or owners share.
    pub lines: usize,
}

/// Shares of one metric on one socket, by entity.
#[derive(Debug)]
pub struct EntityShares {
    /// The shares by owner.
    pub by_owner: MetricShares,
    /// The shares by entity; hidden owners are left out.
    pub entities: Vec<(Entity, OwnerShare)>,
}

/// A window by entity.
#[derive(Debug)]
pub struct Joined {
    /// Counts by entity, in the order of entities. Without an owner in the window, an entity has no
    /// row and loses its total, unless it never ends.
    pub rows: Rows<Usage>,
    /// Processes in addition to these rows, if shown.
    pub processes: Option<Rows<Usage>>,
    /// Samples, in a session that samples memory accesses or other events.
    pub samples: Option<Rows<SampleUsage>>,
    /// The sampled addresses, if kept.
    pub hotspots: BTreeMap<Hotspot, HotspotCounts>,
    /// The accessed cache lines, if kept.
    pub lines: Vec<CacheLine>,
    /// Shares of the traffic that sockets counted.
    pub shares: Vec<EntityShares>,
    /// The rows of the sources.
    pub sources: SourceRows,
    pub(crate) naming: Arc<Naming>,
}

impl Joined {
    /// The counts of an entity.
    #[must_use]
    pub fn of(&self, entity: &Entity) -> Option<&Gained<Usage>> {
        self.rows.of(entity)
    }

    /// Memory that entities hold, in a session that measures it.
    #[must_use]
    pub fn memory(&self) -> Option<&MemoryCapacities> {
        self.sources.memory.as_ref()
    }

    /// Waits of entities, in a session that counts them.
    #[must_use]
    pub fn waits(&self) -> Option<&WaitRows> {
        self.sources.waits.as_ref()
    }

    /// Pressure on entities, in a session that measures it.
    #[must_use]
    pub fn pressure(&self) -> Option<&PressureRows> {
        self.sources.pressure.as_ref()
    }
}

impl View {
    /// Rolls a window up into rows. `before`: the previous window, whose totals continue; None for
    /// the first window of a session.
    #[must_use]
    pub fn join(&self, plan: &Plan, window: &Window, before: Option<&Joined>) -> Joined {
        let naming = match before.map(|before| &before.naming) {
            Some(naming) if naming.is_valid_for(self, &window.names) => Arc::clone(naming),
            before => Arc::new(Naming::new(self, &window.names, before.map(Arc::as_ref))),
        };
        let samples = before.and_then(|before| before.samples.as_ref());
        let rows = before.map(|before| &before.rows);
        let sources = before.map(|before| &before.sources);
        let mut joined = joined(plan, window, naming, (rows, samples, sources));
        let processes = before.and_then(|before| before.processes.as_ref());
        joined.processes = self.processes(&joined.naming, window, processes);
        joined
    }

    /// As [`Self::join`], for the first window after a restart: continues the totals of these rows.
    pub(crate) fn resume(
        &self,
        plan: &Plan,
        window: &Window,
        rows: &Rows<Usage>,
        samples: Option<&Rows<SampleUsage>>,
    ) -> Joined {
        let naming = Arc::new(self.naming(&window.names));
        let mut joined = joined(plan, window, naming, (Some(rows), samples, None));
        joined.processes = self.processes(&joined.naming, window, None);
        joined
    }

    /// Whether processes are shown in addition to the rows.
    fn has_processes(&self) -> bool {
        self.processes > 0 || !self.rows.pids.is_empty()
    }

    /// Processes in addition to the rows of a window, if shown.
    fn processes(
        &self,
        naming: &Naming,
        window: &Window,
        before: Option<&Rows<Usage>>,
    ) -> Option<Rows<Usage>> {
        let entity = |owner| naming.process_of(owner);
        let rows = || {
            Rows::new(
                entity,
                &window.usage,
                window.start,
                before,
                Entity::never_ends,
            )
        };
        self.has_processes().then(rows)
    }

    /// The paths of an entity's cgroups. `names`: the names of all cgroups.
    #[must_use]
    pub fn cgroups_of(&self, names: &Arc<Names>, entity: &Entity) -> Vec<String> {
        self.naming(names).paths_of(entity)
    }

    /// The rows of owners. `names`: the names of all cgroups.
    pub(crate) fn naming(&self, names: &Arc<Names>) -> Naming {
        Naming::new(self, names, None)
    }
}

/// The rows of a window, continued from those of the previous window.
fn joined(
    plan: &Plan,
    window: &Window,
    naming: Arc<Naming>,
    (before, samples, sources): (
        Option<&Rows<Usage>>,
        Option<&Rows<SampleUsage>>,
        Option<&SourceRows>,
    ),
) -> Joined {
    let shared = |by_owner: MetricShares| {
        let entities = by_owner
            .shares
            .as_ref()
            .map(|shares| by_entity(&naming, shares));
        EntityShares {
            entities: entities.unwrap_or_default(),
            by_owner,
        }
    };
    let shares = share::of_window(plan, window, &naming)
        .into_iter()
        .map(shared)
        .collect();
    let (entity, start) = (|owner| naming.entity(owner), window.start);
    let rows = Rows::new(entity, &window.usage, start, before, Entity::never_ends);
    let sampled = window.samples.as_ref();
    // The total of an entity's samples continues if the machine's total does, and if the entity has
    // a row of counts or never ends.
    let samples = samples.filter(|_| sampled.is_some_and(|sampled| sampled.total.since < start));
    let exists = |entity: &Entity| entity.never_ends() || rows.of(entity).is_some();
    Joined {
        samples: sampled.map(|sampled| Rows::new(entity, &sampled.usage, start, samples, exists)),
        rows,
        processes: None,
        hotspots: sampled.map_or_else(BTreeMap::new, |it| hotspots::by_owner(it, &naming)),
        lines: sampled.map_or_else(Vec::new, |it| cache_lines::by_owner(&it.lines, &naming)),
        shares,
        sources: SourceRows::join(window, &naming, sources),
        naming,
    }
}

fn by_entity(naming: &Naming, shares: &Shares) -> Vec<(Entity, OwnerShare)> {
    let owners = shares.owners.iter();
    let named = owners.filter_map(|(owner, part)| Some((naming.entity(*owner)?, part)));
    rows::roll_up(named, OwnerShare::add)
}

#[cfg(test)]
mod tests;
