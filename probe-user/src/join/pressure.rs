//! Pressure, throttling, I/O and memory events of entities, in a window and since the session
//! began.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::{
    Entity, Naming,
    memory::{ancestors, entities_of_cgroups},
};
use crate::{
    machine::pressure::{CgroupCounter, CgroupCounts, PressureDelta},
    window::{Gained, Window},
};

/// Pressure, throttling, I/O and memory events of an entity.
#[derive(Clone, Debug)]
pub struct EntityPressure {
    /// Counts of its cgroups. Their `quota` is None.
    pub counts: Gained<CgroupCounts>,
    /// The least quota of its cgroup and those above it, in CPUs.
    pub quota: Option<f64>,
    /// Nanoseconds in the window for which the most throttled cgroup above it was throttled, added
    /// up over CPUs. None if no cgroup above has the CPU controller.
    pub throttled_above: Option<u64>,
}

/// Pressure, throttling, I/O and memory events of entities.
#[derive(Clone, Debug)]
pub struct PressureRows {
    /// By entity. The system has no entry: the kernel has no sum for it.
    pub entities: BTreeMap<Entity, EntityPressure>,
    /// The whole machine's pressure.
    pub machine: CgroupCounts,
    /// The time over which these values accumulated.
    pub length: Duration,
    /// Whether only [`CgroupCounter::BESIDE_WAITS`] were read.
    pub beside_waits: bool,
}

/// The counts of an entity's cgroups in a window.
#[derive(Default)]
struct Sum {
    /// The sum over all its cgroups of the counters that exclude inner cgroups.
    own: CgroupCounts,
    /// The other counters of its outermost cgroups.
    outer: Vec<CgroupCounts>,
    /// The least quota of the cgroups above these, in CPUs.
    quota_above: Option<f64>,
    /// As [`EntityPressure::throttled_above`].
    throttled_above: Option<u64>,
}

impl PressureRows {
    pub(super) fn from_delta(
        delta: &PressureDelta,
        window: &Window,
        naming: &Naming,
        before: Option<&Self>,
    ) -> Self {
        let entities = entities_of_cgroups(delta.cgroups.iter().map(|(id, _)| *id), naming);
        let path = |id| naming.names.cgroups.get(id).map(String::as_str);
        let with_paths = || {
            let cgroups = delta.cgroups.iter();
            cgroups.filter_map(|(id, counts)| Some((path(id)?, entities.get(id), counts)))
        };
        let by_path: HashMap<&str, _> = with_paths()
            .map(|(path, owner, counts)| (path, (owner, counts)))
            .collect();
        let mut sums: BTreeMap<&Entity, Sum> = BTreeMap::new();
        // Entities with another entity below them, whose hierarchical counts would be in two rows.
        let mut shared: HashSet<&Entity> = HashSet::new();
        for (path, owner, counts) in with_paths() {
            let Some(owner) = owner else { continue };
            let sum = sums.entry(&owner.entity).or_default();
            // A cgroup without the CPU controller has no such counters.
            sum.own = sum.own.merged(&counts.filtered(CgroupCounter::is_own));
            if owner.is_outer {
                sum.outer.push(counts.filtered(|counter| !counter.is_own()));
            }
            for (above, counts) in ancestors(path).filter_map(|above| by_path.get(above)) {
                match above {
                    Some(above) if above.entity == owner.entity => {}
                    _ => {
                        shared.extend(above.map(|above| &above.entity));
                        let quotas = [sum.quota_above, counts.quota].into_iter().flatten();
                        sum.quota_above = quotas.min_by(f64::total_cmp);
                        let throttled = counts.get(CgroupCounter::Throttled);
                        sum.throttled_above = sum.throttled_above.max(throttled);
                    }
                }
            }
        }
        let row = |(entity, sum): (&Entity, Sum)| {
            let is_shared = shared.contains(entity);
            let before = before.and_then(|before| before.entities.get(entity));
            let row = sum.into_row(is_shared, window.start, before);
            (entity.clone(), row)
        };
        Self {
            entities: sums.into_iter().map(row).collect(),
            machine: delta.machine,
            length: delta.length,
            beside_waits: delta.beside_waits,
        }
    }
}

impl Sum {
    fn into_row(
        self,
        is_shared: bool,
        start: Duration,
        before: Option<&EntityPressure>,
    ) -> EntityPressure {
        let outer = self.outer.into_iter().reduce(|a, b| a.and(&b));
        let outer = outer.unwrap_or_default();
        let visible = outer.filtered(|counter| counter.is_pressure() || !is_shared);
        let delta = CgroupCounts {
            quota: None,
            ..visible.merged(&self.own)
        };
        let before = before.map(|before| &before.counts);
        EntityPressure {
            counts: Gained {
                delta,
                total: before.map_or(delta, |before| before.total.then(&delta)),
                since: before.map_or(start, |before| before.since),
            },
            quota: [self.quota_above, outer.quota]
                .into_iter()
                .flatten()
                .min_by(f64::total_cmp),
            throttled_above: self.throttled_above,
        }
    }
}

#[cfg(test)]
mod tests;
