//! Bytes that resctrl counted for each row of the view, where monitoring groups exist.

use std::collections::{BTreeMap, BTreeSet};

use probe_common::CgroupId;

use super::planned::ran;
use crate::{
    join::{By, Entity, Naming},
    machine::resctrl::GroupBytes,
    window::Window,
};

/// Bytes by row and socket, from the groups whose tasks all belong to one row. A row is left out if
/// one of its cgroups ran outside all groups.
pub(crate) fn monitored(
    deltas: &[GroupBytes],
    window: &Window,
    naming: &Naming,
) -> BTreeMap<(Entity, u32), u64> {
    let mut rows = BTreeMap::new();
    // Without groups there is nothing to name.
    if naming.view.by == By::Process || deltas.is_empty() {
        return rows;
    }
    let entity = |cgroup: &CgroupId| naming.entity((*cgroup).into());
    let entity_if_one = |cgroups: &BTreeSet<CgroupId>| {
        let entities: BTreeSet<Option<Entity>> = cgroups.iter().map(entity).collect();
        let mut entities = entities.into_iter();
        let first = entities.next()??;
        entities.next().is_none().then_some(first)
    };
    let mut in_groups: BTreeSet<CgroupId> = BTreeSet::new();
    for monitored in deltas {
        in_groups.extend(&monitored.group.cgroups);
        let Some(entity) = entity_if_one(&monitored.group.cgroups) else {
            continue;
        };
        // The counts of a control group include those of the monitoring groups in it.
        let is_in_outer_group = |socket: &u32| {
            deltas.iter().any(|other| {
                other.group.path != monitored.group.path
                    && monitored.group.path.starts_with(&other.group.path)
                    && other.bytes.contains_key(socket)
                    && entity_if_one(&other.group.cgroups).as_ref() == Some(&entity)
            })
        };
        for (socket, bytes) in monitored
            .bytes
            .iter()
            .filter(|(it, _)| !is_in_outer_group(it))
        {
            let sum: &mut u64 = rows.entry((entity.clone(), *socket)).or_default();
            *sum = sum.saturating_add(*bytes);
        }
    }
    for (_, owner) in ran(window) {
        if !in_groups.contains(&owner.cgroup)
            && let Some(entity) = naming.entity(owner)
        {
            rows.retain(|(monitored, _), _| *monitored != entity);
        }
    }
    rows
}
