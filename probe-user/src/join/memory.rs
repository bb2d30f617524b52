//! Memory that entities hold, and their peaks since the session began.

use std::{
    collections::{BTreeMap, HashMap},
    iter::successors,
    time::Duration,
};

use probe_common::CgroupId;

use super::{Entity, Naming};
use crate::{
    machine::memory::{MemoryHolder, MemoryReading, MemoryUse, PageSizes},
    window::Window,
};

/// A peak of memory use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPeak {
    /// The peak in bytes.
    pub bytes: u64,
    /// `CLOCK_MONOTONIC` at the end of the window of the peak.
    pub at: Duration,
}

/// Memory that an entity holds at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCapacity {
    /// Memory held. Its own `peak` may be from before the session.
    pub now: MemoryUse,
    /// Peak since the session began.
    pub peak: MemoryPeak,
}

/// Memory held, by entity and by the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCapacities {
    /// By entity. The system has no entry: the kernel has no sum for it.
    pub entities: BTreeMap<Entity, MemoryCapacity>,
    /// The machine's total minus its available memory; None if unknown.
    pub machine: Option<MemoryCapacity>,
    /// The sizes of pages, if known.
    pub pages: Option<PageSizes>,
}

impl MemoryCapacities {
    /// Memory at the end of a window, by the readings at both ends.
    pub(super) fn from_readings(
        [earlier, later]: &[MemoryReading; 2],
        window: &Window,
        naming: &Naming,
        before: Option<&Self>,
    ) -> Self {
        let (was, now) = (by_entity(earlier, naming), by_entity(later, naming));
        let end = window.start + window.length;
        let capacity =
            |was: Option<&MemoryUse>, now: MemoryUse, before: Option<&MemoryCapacity>| {
                let peak = MemoryPeak::from_window(was, now, window.start, end);
                let before = before.map(|before| before.peak);
                MemoryCapacity {
                    now,
                    peak: before.map_or(peak, |before| before.or_higher(peak)),
                }
            };
        let entities = now.into_iter().map(|(entity, now)| {
            let before = before.and_then(|before| before.entities.get(&entity));
            let capacity = capacity(was.get(&entity), now, before);
            (entity, capacity)
        });
        let before = before.and_then(|before| before.machine.as_ref());
        let was = earlier.machine.as_ref();
        Self {
            entities: entities.collect(),
            machine: later.machine.map(|now| capacity(was, now, before)),
            pages: later.pages,
        }
    }
}

impl MemoryPeak {
    /// The peak of a window: the kernel's own maximum if it rose in the window, else the higher of
    /// the values at both ends. A holder that was created in the window reached its maximum in the
    /// window. A process without an earlier value may be older than the window: its `age` decides.
    fn from_window(
        was: Option<&MemoryUse>,
        now: MemoryUse,
        start: Duration,
        end: Duration,
    ) -> Self {
        let created_in_window = now.age.is_none_or(|age| age <= end.saturating_sub(start));
        let max_before = was.map_or(created_in_window.then_some(0), |was| was.peak);
        let new_peak = now
            .peak
            .zip(max_before)
            .filter(|(now, before)| now > before);
        let bytes = new_peak.map_or(now.used, |(peak, _)| peak.max(now.used));
        let used_at_start = was.map_or(0, |was| was.used);
        match used_at_start > bytes {
            true => Self {
                bytes: used_at_start,
                at: start,
            },
            false => Self { bytes, at: end },
        }
    }

    /// The higher peak; the earlier one if they are equal.
    fn or_higher(self, later: Self) -> Self {
        match later.bytes > self.bytes {
            true => later,
            false => self,
        }
    }
}

/// Memory held by each entity. Of an entity's nested cgroups only the outermost one counts.
fn by_entity(reading: &MemoryReading, naming: &Naming) -> BTreeMap<Entity, MemoryUse> {
    let cgroups = reading.held.iter().filter_map(|(holder, _)| match holder {
        MemoryHolder::Cgroup(cgroup) => Some(*cgroup),
        MemoryHolder::Process(_) | MemoryHolder::Command => None,
    });
    let cgroups = entities_of_cgroups(cgroups, naming);
    let mut sums: BTreeMap<Entity, MemoryUse> = BTreeMap::new();
    for (holder, held) in &reading.held {
        let entity = match holder {
            // The command comes last in the order of holders. If it has a cgroup of its own, the
            // value of the memory controller is used, since it includes the page cache.
            MemoryHolder::Command => naming.command().filter(|it| !sums.contains_key(it)),
            MemoryHolder::Process(tgid) => Some(naming.process(*tgid)),
            MemoryHolder::Cgroup(id) => cgroups
                .get(id)
                .filter(|cgroup| cgroup.is_outer)
                .map(|cgroup| cgroup.entity.clone()),
        };
        if let Some(entity) = entity {
            // Sibling cgroups of one entity are added up, such as the containers of a pod without a
            // known cgroup of its own.
            let sum = sums.entry(entity).and_modify(|sum| *sum = sum.with(held));
            sum.or_insert(*held);
        }
    }
    sums
}

/// The entity that a cgroup belongs to.
pub(super) struct CgroupEntity {
    pub(super) entity: Entity,
    /// Whether no cgroup above it belongs to the same entity. The kernel's values for such a cgroup
    /// include its inner cgroups.
    pub(super) is_outer: bool,
}

/// The entities of cgroups, without cgroups of the system and cgroups without a name.
pub(super) fn entities_of_cgroups(
    cgroups: impl Iterator<Item = CgroupId>,
    naming: &Naming,
) -> HashMap<CgroupId, CgroupEntity> {
    let named = |cgroup: CgroupId| {
        let entity = naming.entity(cgroup.into())?;
        // Rows of processes do not have the values of a cgroup.
        let has_values = !matches!(
            entity,
            Entity::System | Entity::Unnamed(_) | Entity::Process { .. } | Entity::EndedProcesses
        );
        let path = naming.names.cgroups.get(&cgroup).filter(|_| has_values)?;
        Some((cgroup, path.as_str(), entity))
    };
    let all: Vec<_> = cgroups.filter_map(named).collect();
    let by_path: HashMap<&str, &Entity> = all
        .iter()
        .map(|(_, path, entity)| (*path, entity))
        .collect();
    let of_cgroup = |(cgroup, path, entity): &(CgroupId, &str, Entity)| {
        let is_outer = !ancestors(path).any(|above| by_path.get(above) == Some(&entity));
        let entity = entity.clone();
        (*cgroup, CgroupEntity { entity, is_outer })
    };
    all.iter().map(of_cgroup).collect()
}

/// The paths above a path.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    successors(Some(path), |path| Some(&path[..path.rfind('/')?])).skip(1)
}

#[cfg(test)]
mod tests;
