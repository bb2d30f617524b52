//! Join: gives every owner of a window the name under which the user wants to see it.

mod rows;
pub mod share;

use std::collections::BTreeMap;

use probe_common::CgroupId;

pub use self::rows::Rows;
use self::share::{MetricShares, Part, Shares};
use crate::{
    names::Claims,
    plan::Plan,
    snapshot::{ENDED, Names, OVERFLOW, UNATTRIBUTED},
    window::{Gained, Owner, SpeUsage, Usage, Window},
};

/// What a row of the output stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entity {
    /// The command that pmuscope started.
    Command(String),
    /// A pod, by its uid.
    Pod(String),
    /// A container, by its id, with the uid of its pod.
    Container {
        /// The runtime's id.
        id: String,
        /// The pod it is in.
        pod: Option<String>,
    },
    /// A cgroup, by its path.
    Cgroup(String),
    /// A process.
    Process {
        /// Process id in the initial pid namespace.
        tgid: u32,
        /// Command name, where it is known.
        name: Option<String>,
    },
    /// Processes that ended in a window, more than are shown one by one.
    EndedProcesses,
    /// A cgroup whose name was lost (see `lost_events`).
    Unnamed(u64),
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
}

/// The command that pmuscope started, and whom it is charged to.
#[derive(Clone, Debug)]
pub struct CommandOwner {
    /// As the user wrote it.
    pub name: String,
    /// Its cgroup or [`CgroupId::COMMAND`].
    pub owner: CgroupId,
}

/// How owners become rows.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What a row stands for.
    pub by: By,
    /// Only cgroups at and below this path; idle and the total are of the machine all the same.
    pub below: Option<String>,
    /// The command, where there is one.
    pub command: Option<CommandOwner>,
    /// True where the hook cannot tell idle from the root cgroup.
    pub merged_idle: bool,
    /// Whether sampled accesses are shown by what they did and where they were served, and how many
    /// of each process's most accessed pages.
    pub accesses: Option<usize>,
}

/// A view of the cgroups and processes of one window.
pub(crate) struct Naming<'a> {
    view: &'a View,
    names: &'a Names,
    claims: Claims<'a>,
    /// The path of the command's cgroup, which may be gone by the last pull, with its children's.
    command_path: Option<&'a String>,
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
    /// What was sampled, in a session that samples.
    pub samples: Option<Rows<SpeUsage>>,
    /// Who caused what sockets counted.
    pub shares: Vec<EntityShares>,
    /// Bytes that resctrl counted, by entity and socket.
    pub monitored: BTreeMap<(Entity, u32), u64>,
}

impl Joined {
    /// What an entity used.
    #[must_use]
    pub fn of(&self, entity: &Entity) -> Option<&Gained<Usage>> {
        self.rows.of(entity)
    }
}

impl View {
    /// Names and rolls up what a window has. `before` is the window before, whose totals go on;
    /// None for the first window of a session.
    #[must_use]
    pub fn join(&self, plan: &Plan, window: &Window, before: Option<&Joined>) -> Joined {
        let naming = self.naming(&window.names);
        let shared = |of: MetricShares| {
            let entities = of.shares.as_ref().map(|shares| by_entity(&naming, shares));
            EntityShares {
                entities: entities.unwrap_or_default(),
                of,
            }
        };
        let shares = share::of_window(plan, window, self).into_iter();
        let shares = shares.map(shared).collect();
        Joined {
            rows: Rows::new(
                &naming,
                &window.usage,
                window.start,
                before.map(|before| &before.rows),
            ),
            samples: window.samples.as_ref().map(|samples| {
                let before = before.and_then(|before| before.samples.as_ref());
                Rows::new(&naming, &samples.usage, window.start, before)
            }),
            shares,
            monitored: share::monitored(window, self),
        }
    }

    /// How owners become rows where these are the names of all cgroups.
    pub(crate) fn naming<'a>(&'a self, names: &'a Names) -> Naming<'a> {
        let command = self.command.as_ref();
        Naming {
            view: self,
            names,
            claims: match self.by {
                By::Container | By::Pod => Claims::of(names.cgroups.values().map(String::as_str)),
                By::Cgroup | By::Process => Claims::default(),
            },
            command_path: command.and_then(|command| names.cgroups.get(&command.owner)),
        }
    }
}

impl Naming<'_> {
    /// The row that an owner belongs to; None where the user asked for others only.
    pub(crate) fn entity(&self, owner: Owner) -> Option<Entity> {
        let Self { view, names, .. } = self;
        match owner.cgroup {
            CgroupId::IDLE => return Some(Entity::Idle),
            OVERFLOW => return Some(Entity::Overflow),
            UNATTRIBUTED => return Some(Entity::Unattributed),
            CgroupId::ROOT if view.merged_idle => return Some(Entity::SystemAndIdle),
            _ => {}
        }
        let path = names.cgroups.get(&owner.cgroup);
        if let Some(command) = &view.command {
            let inside = || {
                path.zip(self.command_path)
                    .is_some_and(|(path, command)| below(path, command))
            };
            if owner.cgroup == command.owner || inside() {
                return Some(Entity::Command(command.name.clone()));
            }
        }
        let Some(path) = path else {
            return view
                .below
                .is_none()
                .then_some(Entity::Unnamed(owner.cgroup.0));
        };
        if view
            .below
            .as_ref()
            .is_some_and(|prefix| !below(path, prefix))
        {
            return None;
        }
        Some(match view.by {
            By::Process if owner.tgid == ENDED => Entity::EndedProcesses,
            By::Process => Entity::Process {
                tgid: owner.tgid,
                name: names.processes.get(&owner.tgid).cloned(),
            },
            By::Cgroup => Entity::Cgroup(path.clone()),
            By::Pod => match (self.claims.pod(path), self.claims.container(path)) {
                (Some(pod), _) => Entity::Pod(pod),
                (None, Some((id, _))) => Entity::Container { id, pod: None },
                (None, None) => self.outside(path),
            },
            By::Container => match self.claims.container(path) {
                Some((id, pod)) => Entity::Container { id, pod },
                None => self.outside(path),
            },
        })
    }

    /// The row of a cgroup that is in no container.
    fn outside(&self, path: &str) -> Entity {
        let refused = self.claims.refused(path);
        refused.map_or(Entity::System, |path| Entity::Cgroup(path.to_owned()))
    }
}

/// True for the cgroup itself and everything below it.
fn below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn by_entity(naming: &Naming<'_>, shares: &Shares) -> Vec<(Entity, Part)> {
    let owners = shares.owners.iter();
    let named = owners.filter_map(|(owner, part)| Some((naming.entity(*owner)?, part)));
    rows::roll_up(named, Part::add)
}

#[cfg(test)]
mod tests;
