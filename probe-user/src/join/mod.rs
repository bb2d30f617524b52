//! Join: gives every owner of a window the name under which the user wants to see it.

mod hot;
mod lines;
mod memory;
mod naming;
mod rows;
pub mod share;

use std::{collections::BTreeMap, sync::Arc};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

pub(crate) use self::lines::add as add_lines;
pub(crate) use self::naming::Naming;
use self::share::{MetricShares, Part, Shares};
pub use self::{
    hot::{Spot, SpotCounts},
    lines::Line,
    memory::{Capacities, Capacity, Peak},
    rows::Rows,
};
use crate::{
    plan::Plan,
    snapshot::Names,
    window::{Gained, SampledUsage, SpeUsage, Usage, Window},
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

/// Whom a row of the output names.
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
        /// The pod it is in.
        pod: Option<Arc<str>>,
    },
    /// A cgroup, by its path.
    Cgroup(Arc<str>),
    /// A process.
    Process {
        /// Process id in the initial pid namespace.
        tgid: u32,
        /// Command name, where it is known.
        name: Option<Arc<str>>,
    },
    /// Processes that ended in a window, more than are shown one by one.
    EndedProcesses,
    /// A cgroup whose name was lost (see `lost_events`).
    Unnamed(u64),
    /// Containers that are too many to be shown one by one.
    Others,
    /// In no container: the host's own processes and the kernel's threads.
    System,
    /// Counts that the USAGE map had no room for.
    Overflow,
    /// Samples of threads that nobody knows.
    Unattributed,
    /// The idle task.
    Idle,
    /// Idle and what runs in the root cgroup: hook `cgroup-switches` cannot tell them apart.
    SystemAndIdle,
    /// A process beside the row that has its counts too.
    ProcessOf {
        /// Process id in the initial pid namespace.
        tgid: u32,
        /// Command name, where it is known.
        name: Option<Arc<str>>,
        /// That row.
        row: Box<Entity>,
    },
}

impl Entity {
    /// Whether it is there as long as the machine runs.
    fn never_ends(&self) -> bool {
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

/// The command that pmuscope started, and whom it is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOwner {
    /// As the user wrote it.
    pub name: String,
    /// Its cgroup or [`CgroupId::COMMAND`].
    pub owner: CgroupId,
}

impl CommandOwner {
    /// Its row.
    fn entity(&self) -> Entity {
        Entity::Command(self.name.as_str().into())
    }
}

/// How owners become rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// What a row stands for.
    pub by: By,
    /// Only cgroups at and below this path; idle and the total are of the machine all the same.
    pub below: Option<String>,
    /// The command, where there is one.
    pub command: Option<CommandOwner>,
    /// True where the hook cannot tell idle from the root cgroup.
    pub merged_idle: bool,
    /// Whether sampled accesses are shown by what they did and where they were served.
    pub accesses: Option<Hottest>,
    /// How many processes are shown beside these rows; 0: none. The session has rows by process
    /// then.
    pub processes: usize,
    /// How many of the addresses of sampled events are shown of each row and event; 0: none.
    pub hot: usize,
}

/// How many are shown of what is accessed most; 0: none.
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
    /// Whose its counts are, by owner.
    pub of: MetricShares,
    /// The same by entity; who is not shown is left out.
    pub entities: Vec<(Entity, Part)>,
}

/// A window by entity.
#[derive(Debug)]
pub struct Joined {
    /// By entity, in their order. The total of an entity that has no row any more is dropped.
    pub rows: Rows<Usage>,
    /// Processes beside these rows, where some are shown.
    pub processes: Option<Rows<Usage>>,
    /// What was sampled, in a session that samples.
    pub samples: Option<Rows<SpeUsage>>,
    /// What sampled events say, in a session that samples any.
    pub sampled: Option<Rows<SampledUsage>>,
    /// The addresses that they were at, where they are kept.
    pub spots: BTreeMap<Spot, SpotCounts>,
    /// The cache lines that were accessed, where they are kept.
    pub lines: Vec<Line>,
    /// Who caused what sockets counted.
    pub shares: Vec<EntityShares>,
    /// Bytes that resctrl counted, by entity and socket.
    pub monitored: BTreeMap<(Entity, u32), u64>,
    /// What entities hold in memory, in a session that looks.
    pub memory: Option<Capacities>,
    naming: Arc<Naming>,
}

impl Joined {
    /// What an entity used.
    #[must_use]
    pub fn of(&self, entity: &Entity) -> Option<&Gained<Usage>> {
        self.rows.of(entity)
    }

    /// The same with what entities hold; peaks go on from those of the window before.
    fn with_memory(mut self, window: &Window, before: Option<&Capacities>) -> Self {
        self.memory = Capacities::of(window, &self.naming, before);
        self
    }
}

impl View {
    /// Names and rolls up what a window has. `before` is the window before, whose totals go on;
    /// None for the first window of a session.
    #[must_use]
    pub fn join(&self, plan: &Plan, window: &Window, before: Option<&Joined>) -> Joined {
        let naming = before.map(|before| &before.naming);
        let naming = naming.filter(|naming| naming.is_of(self, &window.names));
        let naming = naming.map_or_else(|| Arc::new(self.naming(&window.names)), Arc::clone);
        let samples = before.and_then(|before| before.samples.as_ref());
        let mut joined = joined(
            plan,
            window,
            naming,
            before.map(|before| &before.rows),
            samples,
        );
        joined.sampled = window.sampled.as_ref().map(|now| {
            let before = before.and_then(|before| before.sampled.as_ref());
            Rows::new(&joined.naming, &now.usage, window.start, before)
        });
        let processes = before.and_then(|before| before.processes.as_ref());
        joined.processes = self.processes(&joined.naming, window, processes);
        joined.with_memory(window, before.and_then(|before| before.memory.as_ref()))
    }

    /// The same of the first window after a restart: the totals of these rows go on.
    pub(crate) fn resume(
        &self,
        plan: &Plan,
        window: &Window,
        rows: &Rows<Usage>,
        samples: Option<&Rows<SpeUsage>>,
    ) -> Joined {
        let naming = Arc::new(self.naming(&window.names));
        let mut joined = joined(plan, window, naming, Some(rows), samples);
        joined.processes = self.processes(&joined.naming, window, None);
        joined.with_memory(window, None)
    }

    /// Processes beside the rows of a window, where some are shown.
    fn processes(
        &self,
        naming: &Naming,
        window: &Window,
        before: Option<&Rows<Usage>>,
    ) -> Option<Rows<Usage>> {
        let entity = |owner| naming.process_of(owner);
        (self.processes > 0).then(|| Rows::of_owners(entity, &window.usage, window.start, before))
    }

    /// How owners become rows where these are the names of all cgroups.
    pub(crate) fn naming(&self, names: &Arc<Names>) -> Naming {
        Naming::new(self, names)
    }
}

/// The rows of a window; those before it, with whose totals they go on.
fn joined(
    plan: &Plan,
    window: &Window,
    naming: Arc<Naming>,
    before: Option<&Rows<Usage>>,
    samples: Option<&Rows<SpeUsage>>,
) -> Joined {
    let shared = |of: MetricShares| {
        let entities = of.shares.as_ref().map(|shares| by_entity(&naming, shares));
        EntityShares {
            entities: entities.unwrap_or_default(),
            of,
        }
    };
    let shares = share::of_window(plan, window, &naming).into_iter();
    let shares = shares.map(shared).collect();
    let sampled = window.samples.as_ref();
    Joined {
        rows: Rows::new(&naming, &window.usage, window.start, before),
        processes: None,
        samples: sampled.map(|now| Rows::new(&naming, &now.usage, window.start, samples)),
        sampled: None,
        spots: window
            .sampled
            .as_ref()
            .map_or_else(BTreeMap::new, |now| hot::by_owner(now, &naming)),
        lines: sampled.map_or_else(Vec::new, |now| lines::by_owner(&now.lines, &naming)),
        shares,
        monitored: share::monitored(window, &naming),
        memory: None,
        naming,
    }
}

fn by_entity(naming: &Naming, shares: &Shares) -> Vec<(Entity, Part)> {
    let owners = shares.owners.iter();
    let named = owners.filter_map(|(owner, part)| Some((naming.entity(*owner)?, part)));
    rows::roll_up(named, Part::add)
}

#[cfg(test)]
mod tests;
