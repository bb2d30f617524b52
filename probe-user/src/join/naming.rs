//! The row of each cgroup, by the names of all cgroups ([`Naming`]). A [`Naming`] is reused from
//! window to window until a name changes.

use std::{collections::HashMap, sync::Arc};

use probe_common::CgroupId;

use super::{By, CommandOwner, Entity, View};
use crate::{
    names::CgroupOwnerCheck,
    snapshot::{ENDED, Names, OVERFLOW, UNATTRIBUTED},
    window::Owner,
};

/// The rows of all cgroups in a view, by their names.
#[derive(Debug)]
pub(crate) struct Naming {
    pub(super) view: View,
    pub(super) names: Arc<Names>,
    cgroups: HashMap<CgroupId, CgroupRow>,
}

/// The row of a cgroup's counts.
#[derive(Clone, Debug, PartialEq)]
enum CgroupRow {
    /// The cgroup is in this row.
    Of(Entity),
    /// Each process has its own row. Other rows name the cgroup by this container or cgroup.
    OfItsProcesses(Entity),
    /// Outside the part of the hierarchy that the user selected. Visible rows name the cgroup by
    /// this container or cgroup.
    Hidden(Entity),
}

/// Finds the row of a cgroup's path.
struct PathRows<'a> {
    view: &'a View,
    owner_check: CgroupOwnerCheck<'a>,
    /// The path of the command's cgroup. The cgroup and its children may be gone by the last pull.
    command: Option<&'a String>,
}

impl Naming {
    /// Rows share the memory of their names with equal rows of `before`, since totals and histories
    /// hold the names of many windows.
    pub(super) fn new(view: &View, names: &Arc<Names>, before: Option<&Self>) -> Self {
        let command = view.command.as_ref();
        let paths = PathRows {
            view,
            owner_check: match view.by {
                By::Container | By::Pod | By::Process => CgroupOwnerCheck::new(
                    names.cgroups.values().map(String::as_str),
                    &names.delegated,
                ),
                By::Cgroup => CgroupOwnerCheck::default(),
            },
            command: command.and_then(|command| names.cgroups.get(&command.owner)),
        };
        let row = |(id, path): (&CgroupId, &String)| {
            let row = paths.row(path);
            let earlier = before.and_then(|before| before.cgroups.get(id));
            let equal = earlier.filter(|earlier| **earlier == row);
            (*id, equal.cloned().unwrap_or(row))
        };
        Self {
            cgroups: names.cgroups.iter().map(row).collect(),
            view: view.clone(),
            names: Arc::clone(names),
        }
    }

    /// Whether [`Self::new`] would return an equal value for this view and these names.
    pub(super) fn is_valid_for(&self, view: &View, names: &Arc<Names>) -> bool {
        Arc::ptr_eq(&self.names, names) && self.view == *view
    }

    /// The rows of all existing cgroups.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Entity> {
        self.cgroups.values().filter_map(|row| match row {
            CgroupRow::Of(entity) => Some(entity),
            CgroupRow::OfItsProcesses(_) | CgroupRow::Hidden(_) => None,
        })
    }

    /// The paths of the cgroups that are counted in a row, sorted.
    pub(super) fn paths_of(&self, entity: &Entity) -> Vec<String> {
        let cgroups = self.cgroups.iter();
        let of_entity = cgroups
            .filter(|(_, row)| matches!(row, CgroupRow::Of(own) if own == entity))
            .filter_map(|(id, _)| self.names.cgroups.get(id));
        let mut paths: Vec<String> = of_entity.cloned().collect();
        paths.sort();
        paths
    }

    /// The row of an owner; None if the view hides it.
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
            Some(CgroupRow::Of(entity)) => Some(entity.clone()),
            Some(CgroupRow::OfItsProcesses(_)) if owner.tgid == ENDED => {
                Some(Entity::EndedProcesses)
            }
            Some(CgroupRow::OfItsProcesses(_)) => Some(self.process(owner.tgid)),
            None if view.below.is_none() => Some(Entity::Unnamed(owner.cgroup.0)),
            None | Some(CgroupRow::Hidden(_)) => None,
        }
    }

    /// The container or cgroup by which other rows name a cgroup without a row; None if it has one.
    pub(super) fn name_in_rows(&self, cgroup: CgroupId) -> Option<&Entity> {
        match self.cgroups.get(&cgroup)? {
            CgroupRow::Of(_) => None,
            CgroupRow::OfItsProcesses(entity) | CgroupRow::Hidden(entity) => Some(entity),
        }
    }
}

impl Naming {
    /// The row of the command, if pmuscope started one.
    pub(super) fn command(&self) -> Option<Entity> {
        self.view.command.as_ref().map(CommandOwner::entity)
    }

    /// The process that is listed in addition to an owner's row; None if the owner is no process,
    /// or hidden.
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

impl PathRows<'_> {
    fn row(&self, path: &str) -> CgroupRow {
        let Self {
            view, owner_check, ..
        } = self;
        if let Some((command, of_command)) = view.command.as_ref().zip(self.command)
            && is_at_or_below(path, of_command)
        {
            return CgroupRow::Of(command.entity());
        }
        let cgroup = || Entity::Cgroup(path.into());
        let container = || {
            let (id, pod) = owner_check.container(path)?;
            let (id, pod) = (id.into(), pod.map(Into::into));
            Some(Entity::Container { id, pod })
        };
        let pod = || owner_check.pod(path).map(|uid| Entity::Pod(uid.into()));
        let entity = match view.by {
            By::Cgroup => Some(cgroup()),
            By::Pod => pod().or_else(container),
            By::Container | By::Process => container(),
        };
        let selected = view.below.as_ref();
        if selected.is_some_and(|prefix| !is_at_or_below(path, prefix)) {
            return CgroupRow::Hidden(entity.unwrap_or_else(cgroup));
        }
        if view.by == By::Process {
            return CgroupRow::OfItsProcesses(entity.unwrap_or_else(cgroup));
        }
        // A cgroup outside containers is the system's, unless its name has the id of a container.
        let refused = || {
            owner_check
                .refused(path)
                .map(|path| Entity::Cgroup(path.into()))
        };
        CgroupRow::Of(entity.or_else(refused).unwrap_or(Entity::System))
    }
}

/// Whether the cgroup at `path` is the one at `prefix`, or below it.
fn is_at_or_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
