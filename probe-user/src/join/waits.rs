//! For whom entities wait, in a window.

use std::collections::BTreeMap;

use probe_common::CgroupId;

use super::{By, Entity, Naming};
use crate::{
    snapshot::{WaitDelta, WaitPair},
    window::Owner,
};

/// Who ran on the CPU that an entity waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitedFor {
    /// An entity, which may be the one that waits.
    Entity(Entity),
    /// The CPU was idle.
    Nobody,
    /// Not known: longer ago than the last slices of the CPU that are kept.
    Earlier,
    /// Not known: in the run queue of another CPU, which the thread left.
    OtherCpu,
}

/// For whom entities waited.
#[derive(Clone, Debug, Default)]
pub struct WaitRows {
    /// Nanoseconds by entity and by who ran. Without entities that the view hides.
    pub entities: BTreeMap<Entity, BTreeMap<WaitedFor, u64>>,
    /// Nanoseconds for which the kernel's map had no room.
    pub unplaced: u64,
}

impl WaitRows {
    pub(super) fn from_delta(delta: &WaitDelta, naming: &Naming) -> Self {
        let mut entities: BTreeMap<Entity, BTreeMap<WaitedFor, u64>> = BTreeMap::new();
        for (pair, nanos) in &delta.pairs {
            let WaitPair { waiting, tgid, .. } = *pair;
            let owner = Owner {
                cgroup: waiting,
                tgid,
            };
            if let Some(entity) = naming.entity(owner) {
                let parts = entities.entry(entity).or_default();
                *parts.entry(waited_for(pair.running, naming)).or_default() += nanos;
            }
        }
        Self {
            entities,
            unplaced: delta.unplaced,
        }
    }
}

/// Who ran: a row of the view. Where rows are processes, or the view hides it, its cgroup.
fn waited_for(running: CgroupId, naming: &Naming) -> WaitedFor {
    match running {
        CgroupId::IDLE => return WaitedFor::Nobody,
        CgroupId::EARLIER => return WaitedFor::Earlier,
        CgroupId::OTHER_CPU => return WaitedFor::OtherCpu,
        _ => {}
    }
    let owner = Owner {
        cgroup: running,
        tgid: 0,
    };
    let row = || naming.entity(owner);
    let path = naming.names.cgroups.get(&running);
    let cgroup = || path.map(|path| Entity::Cgroup(path.as_str().into()));
    let found = match naming.view.by {
        By::Process if running.is_cgroup() => cgroup(),
        _ => row().or_else(cgroup),
    };
    WaitedFor::Entity(found.unwrap_or(Entity::Unnamed(running.0)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{join::View, snapshot::Names};

    fn rows(by: By, below: Option<&str>) -> WaitRows {
        let container = |digit: &str| format!("/docker/{}", digit.repeat(64));
        let names = Names {
            cgroups: [
                (CgroupId(7), container("a")),
                (CgroupId(8), container("b")),
                (CgroupId(9), "/init.scope".to_owned()),
            ]
            .into(),
            processes: [(42, "redis".to_owned())].into(),
            ..Names::default()
        };
        let pair = |waiting, tgid, running| WaitPair {
            waiting: CgroupId(waiting),
            tgid,
            running,
        };
        let delta = WaitDelta {
            pairs: vec![
                (pair(7, 42, CgroupId::IDLE), 1),
                (pair(7, 42, CgroupId(7)), 2),
                (pair(7, 42, CgroupId(8)), 4),
                (pair(7, 42, CgroupId(9)), 8),
                (pair(8, 0, CgroupId(77)), 16),
                (pair(9, 0, CgroupId::OTHER_CPU), 32),
            ],
            unplaced: 64,
        };
        let view = View {
            by,
            below: below.map(str::to_owned),
            ..View::default()
        };
        WaitRows::from_delta(&delta, &view.naming(&Arc::new(names)))
    }

    fn entity(name: &str) -> WaitedFor {
        WaitedFor::Entity(Entity::Container {
            id: name.repeat(64).into(),
            pod: None,
        })
    }

    #[test]
    fn owners_become_rows_on_both_sides() {
        let rows = rows(By::Container, None);
        let WaitedFor::Entity(a) = entity("a") else {
            unreachable!()
        };
        let system = WaitedFor::Entity(Entity::System);
        let expected = [
            (entity("a"), 2),
            (entity("b"), 4),
            (system, 8),
            (WaitedFor::Nobody, 1),
        ];
        assert_eq!(rows.entities[&a], expected.into());
        let of_system = &rows.entities[&Entity::System];
        assert_eq!(*of_system, [(WaitedFor::OtherCpu, 32)].into());
        assert_eq!((rows.entities.len(), rows.unplaced), (3, 64));
    }

    #[test]
    fn a_process_waits_for_cgroups_and_hidden_rows_are_named_by_theirs() {
        let by_process = rows(By::Process, None);
        let process = Entity::Process {
            tgid: 42,
            name: Some("redis".into()),
        };
        let cgroup = |path: &str| WaitedFor::Entity(Entity::Cgroup(path.into()));
        let of_process = &by_process.entities[&process];
        assert_eq!(of_process[&cgroup("/init.scope")], 8);
        let hidden = rows(By::Container, Some("/docker"));
        let parts: Vec<_> = hidden.entities.values().collect();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0][&cgroup("/init.scope")], 8);
    }
}
