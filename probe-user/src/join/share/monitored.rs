//! Bytes that resctrl counted for each row of the view, where monitoring groups exist.

use std::collections::{BTreeMap, BTreeSet};

use probe_common::CgroupId;

use crate::{
    join::{By, Entity, Naming},
    machine::resctrl::GroupBytes,
};

/// Bytes by row and socket, from the groups with tasks of only that row.
pub(crate) fn monitored(deltas: &[GroupBytes], naming: &Naming) -> BTreeMap<(Entity, u32), u64> {
    let mut rows = BTreeMap::new();
    // Without groups there is nothing to name.
    if naming.view.by == By::Process || deltas.is_empty() {
        return rows;
    }
    let entity = |cgroup: &CgroupId| naming.entity((*cgroup).into());
    let only = |cgroups: &BTreeSet<CgroupId>| {
        let entities: BTreeSet<Option<Entity>> = cgroups.iter().map(entity).collect();
        let mut entities = entities.into_iter();
        let first = entities.next()??;
        entities.next().is_none().then_some(first)
    };
    for monitored in deltas {
        let Some(entity) = only(&monitored.group.cgroups) else {
            continue;
        };
        // The counts of a control group include those of the monitoring groups in it.
        let counted = deltas.iter().any(|other| {
            other.group.path != monitored.group.path
                && monitored.group.path.starts_with(&other.group.path)
                && only(&other.group.cgroups).as_ref() == Some(&entity)
        });
        if counted {
            continue;
        }
        for (socket, bytes) in &monitored.bytes {
            let sum: &mut u64 = rows.entry((entity.clone(), *socket)).or_default();
            *sum = sum.saturating_add(*bytes);
        }
    }
    rows
}
