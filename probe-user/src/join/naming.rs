//! The row that each cgroup belongs to, by the names of all cgroups. It is kept from window to
//! window as long as no name changes.

use std::{collections::HashMap, sync::Arc};

use probe_common::CgroupId;

use super::{By, CommandOwner, Entity, View};
use crate::{
    names::Claims,
    snapshot::{ENDED, Names, OVERFLOW, UNATTRIBUTED},
    window::Owner,
};

/// A view of the cgroups and processes that have these names.
#[derive(Debug)]
pub(crate) struct Naming {
    pub(super) view: View,
    pub(super) names: Arc<Names>,
    cgroups: HashMap<CgroupId, Row>,
}

/// The row of a cgroup's counts.
#[derive(Debug)]
enum Row {
    Of(Entity),
    /// Each process has its own.
    OfItsProcesses,
    /// The user asked for others only.
    Hidden,
}

/// What the row of a path depends on.
struct Paths<'a> {
    view: &'a View,
    claims: Claims<'a>,
    /// The path of the command's cgroup, which may be gone by the last pull, with its children's.
    command: Option<&'a String>,
}

impl Naming {
    pub(super) fn new(view: &View, names: &Arc<Names>) -> Self {
        let command = view.command.as_ref();
        let paths = Paths {
            view,
            claims: match view.by {
                By::Container | By::Pod => {
                    Claims::of(names.cgroups.values().map(String::as_str), &names.delegated)
                }
                By::Cgroup | By::Process => Claims::default(),
            },
            command: command.and_then(|command| names.cgroups.get(&command.owner)),
        };
        let cgroups = names.cgroups.iter();
        Self {
            cgroups: cgroups.map(|(id, path)| (*id, paths.row(path))).collect(),
            view: view.clone(),
            names: Arc::clone(names),
        }
    }

    /// Whether it is what [`Self::new`] would make of these.
    pub(super) fn is_of(&self, view: &View, names: &Arc<Names>) -> bool {
        Arc::ptr_eq(&self.names, names) && self.view == *view
    }

    /// The rows of all cgroups that there are.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Entity> {
        self.cgroups.values().filter_map(|row| match row {
            Row::Of(entity) => Some(entity),
            Row::OfItsProcesses | Row::Hidden => None,
        })
    }

    /// The row that an owner belongs to; None where the user asked for others only.
    pub(crate) fn entity(&self, owner: Owner) -> Option<Entity> {
        let Self { view, .. } = self;
        match owner.cgroup {
            CgroupId::IDLE => return Some(Entity::Idle),
            OVERFLOW => return Some(Entity::Overflow),
            UNATTRIBUTED => return Some(Entity::Unattributed),
            CgroupId::ROOT if view.merged_idle => return Some(Entity::SystemAndIdle),
            _ if view
                .command
                .as_ref()
                .is_some_and(|it| it.owner == owner.cgroup) =>
            {
                return self.command();
            }
            _ => {}
        }
        match self.cgroups.get(&owner.cgroup) {
            Some(Row::Of(entity)) => Some(entity.clone()),
            Some(Row::OfItsProcesses) if owner.tgid == ENDED => Some(Entity::EndedProcesses),
            Some(Row::OfItsProcesses) => Some(self.process(owner.tgid)),
            None if view.below.is_none() => Some(Entity::Unnamed(owner.cgroup.0)),
            None | Some(Row::Hidden) => None,
        }
    }
}

impl Naming {
    /// The row of the command, where there is one.
    pub(super) fn command(&self) -> Option<Entity> {
        self.view.command.as_ref().map(CommandOwner::entity)
    }

    /// The process of an owner, beside its row; None where the owner is none.
    pub(super) fn process_of(&self, owner: Owner) -> Option<Entity> {
        if owner.tgid == 0 || owner.tgid == ENDED {
            return None;
        }
        let row = Box::new(self.entity(owner)?);
        let name = self.names.processes.get(&owner.tgid);
        Some(Entity::ProcessOf {
            tgid: owner.tgid,
            name: name.map(|name| name.as_str().into()),
            row,
        })
    }

    /// A process with its name.
    pub(super) fn process(&self, tgid: u32) -> Entity {
        let name = self.names.processes.get(&tgid);
        Entity::Process {
            tgid,
            name: name.map(|name| name.as_str().into()),
        }
    }
}

impl Paths<'_> {
    fn row(&self, path: &str) -> Row {
        let Self { view, claims, .. } = self;
        if let Some((command, of_command)) = view.command.as_ref().zip(self.command)
            && below(path, of_command)
        {
            return Row::Of(command.entity());
        }
        if view
            .below
            .as_ref()
            .is_some_and(|prefix| !below(path, prefix))
        {
            return Row::Hidden;
        }
        let container = || {
            let (id, pod) = claims.container(path)?;
            let (id, pod) = (id.into(), pod.map(Into::into));
            Some(Entity::Container { id, pod })
        };
        let pod = || claims.pod(path).map(|uid| Entity::Pod(uid.into()));
        let found = match view.by {
            By::Process => return Row::OfItsProcesses,
            By::Cgroup => Some(Entity::Cgroup(path.into())),
            By::Pod => pod().or_else(container),
            By::Container => container(),
        };
        // A cgroup of no container is the system's, unless it bears the id of another container.
        let refused = || claims.refused(path).map(|path| Entity::Cgroup(path.into()));
        Row::Of(found.or_else(refused).unwrap_or(Entity::System))
    }
}

/// True for the cgroup itself and everything below it.
fn below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
