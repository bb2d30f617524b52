//! What entities hold in memory, and the most that they held since the session began.

use std::{
    collections::{BTreeMap, HashMap},
    iter::successors,
    time::Duration,
};

use probe_common::CgroupId;

use super::{Entity, Naming};
use crate::{
    machine::memory::{Holder, MemoryReading, MemoryUse, PageSizes},
    window::{Owner, Window},
};

/// The most that was held at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// How much.
    pub bytes: u64,
    /// `CLOCK_MONOTONIC` at the end of the window in which that was.
    pub at: Duration,
}

/// What an entity holds at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// What it holds. Its own `peak` may be from before the session.
    pub now: MemoryUse,
    /// Since the session began.
    pub peak: Peak,
}

/// What everybody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// By entity. The system's own has none: the kernel adds it up for no cgroup.
    pub entities: BTreeMap<Entity, Capacity>,
    /// The machine's: what is not available of what there is; None where it is not told.
    pub machine: Option<Capacity>,
    /// The sizes of pages, where they are told.
    pub pages: Option<PageSizes>,
}

impl Capacities {
    /// At the end of a window; None in a session that does not look.
    pub(super) fn of(window: &Window, naming: &Naming, before: Option<&Self>) -> Option<Self> {
        let [earlier, later] = window.memory.as_ref()?;
        let (was, is) = (by_entity(earlier, naming), by_entity(later, naming));
        let end = window.start + window.length;
        let capacity = |was: Option<&MemoryUse>, now: MemoryUse, before: Option<&Capacity>| {
            let peak = Peak::of(was, now, window.start, end);
            let before = before.map(|before| before.peak);
            Capacity {
                now,
                peak: before.map_or(peak, |before| before.or_higher(peak)),
            }
        };
        let entities = is.into_iter().map(|(entity, now)| {
            let before = before.and_then(|before| before.entities.get(&entity));
            let capacity = capacity(was.get(&entity), now, before);
            (entity, capacity)
        });
        let before = before.and_then(|before| before.machine.as_ref());
        let was = earlier.machine.as_ref();
        Some(Self {
            entities: entities.collect(),
            machine: later.machine.map(|now| capacity(was, now, before)),
            pages: later.pages,
        })
    }
}

impl Peak {
    /// The most of a window. The kernel's own maximum tells what was held between its ends, if that
    /// was the most ever; else the ends alone are known. Of who came in the window all is: not of a
    /// process that slept until then.
    fn of(was: Option<&MemoryUse>, now: MemoryUse, start: Duration, end: Duration) -> Self {
        let came = now.age.is_none_or(|age| age <= end.saturating_sub(start));
        let ever_before = was.map_or(came.then_some(0), |was| was.peak);
        let new = now.peak.zip(ever_before);
        let new = new.filter(|(now, before)| now > before);
        let bytes = new.map_or(now.used, |(peak, _)| peak.max(now.used));
        let first = was.map_or(0, |was| was.used);
        match first > bytes {
            true => Self {
                bytes: first,
                at: start,
            },
            false => Self { bytes, at: end },
        }
    }

    /// The higher one; of equals the first.
    fn or_higher(self, later: Self) -> Self {
        match later.bytes > self.bytes {
            true => later,
            false => self,
        }
    }
}

/// What each entity holds: of cgroups within each other the outer one has what the inner ones have.
fn by_entity(reading: &MemoryReading, naming: &Naming) -> BTreeMap<Entity, MemoryUse> {
    let path = |id: &CgroupId| naming.names.cgroups.get(id).map(String::as_str);
    let cgroup = |holder: &Holder| {
        let Holder::Cgroup(cgroup) = *holder else {
            return None;
        };
        let entity = naming.entity(Owner { cgroup, tgid: 0 })?;
        let known = !matches!(entity, Entity::System | Entity::Unnamed(_));
        Some((path(&cgroup).filter(|_| known)?, entity))
    };
    let holders = reading.held.iter().map(|(holder, _)| holder);
    let cgroups: HashMap<&str, Entity> = holders.filter_map(cgroup).collect();
    let is_outer = |path: &str, entity: &Entity| {
        let mut above = ancestors(path);
        !above.any(|above| cgroups.get(above) == Some(entity))
    };
    let mut found: BTreeMap<Entity, MemoryUse> = BTreeMap::new();
    for (holder, held) in &reading.held {
        let entity = match holder {
            // The last in their order. What the memory controller says of its cgroup comes first:
            // it has the page cache too.
            Holder::Command => naming.command().filter(|it| !found.contains_key(it)),
            Holder::Process(tgid) => Some(naming.process(*tgid)),
            Holder::Cgroup(id) => path(id).and_then(|path| {
                let entity = cgroups.get(path)?;
                is_outer(path, entity).then(|| entity.clone())
            }),
        };
        if let Some(entity) = entity {
            // Cgroups beside each other that are one entity are added, as the containers of a pod
            // whose own cgroup is not known.
            let sum = found.entry(entity).and_modify(|sum| *sum = sum.with(held));
            sum.or_insert(*held);
        }
    }
    found
}

/// The paths above a path.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    successors(Some(path), |path| Some(&path[..path.rfind('/')?])).skip(1)
}

#[cfg(test)]
mod tests;
