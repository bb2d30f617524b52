//! CPU waits of entities in a window: what ran meanwhile, and the lengths of the waits.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
    time::Duration,
};

use probe_common::{CgroupId, WaitTimes};
use serde::{Deserialize, Serialize};

use super::{Entity, Naming, memory::ancestors};
use crate::{
    machine::pressure::CgroupCounter,
    snapshot::{OwnerWaits, WaitDelta, WaitPair},
    window::{Gained, Owner, Window, float},
};

/// What ran on the CPU that an entity waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WaitedFor {
    /// An entity, which may be the one that waits.
    Entity(Entity),
    /// The CPU was idle.
    Nobody,
    /// Not known: the wait was before the oldest slice that is kept for the CPU.
    Earlier,
    /// Not known: the thread waited in the run queue of another CPU and then migrated.
    OtherCpu,
}

/// Waits of an entity.
#[derive(Clone, Debug, Default)]
pub struct EntityWaits {
    /// Nanoseconds in the window, by what ran.
    pub behind: BTreeMap<WaitedFor, u64>,
    /// Nanoseconds of all waits in the window.
    pub waited: u64,
    /// Nanoseconds of the waits behind other entities.
    pub waited_for_others: u64,
    /// Whether a CPU quota throttled its cgroup, or one above it, in the window. Waits include the
    /// throttled time.
    pub throttled: bool,
    /// The waits by their lengths.
    pub lengths: Gained<WaitTimes>,
    /// The longest waits, as totals since the session began.
    pub most: MostWaitedFor,
}

/// Waits of entities.
#[derive(Clone, Debug, Default)]
pub struct WaitRows {
    /// By entity, without entities that the view hides.
    pub entities: BTreeMap<Entity, EntityWaits>,
    /// Nanoseconds of waits without room in the kernel's map.
    pub unplaced: u64,
    /// Number of waits without room in the kernel's map of lengths.
    pub unplaced_waits: u64,
}

/// Totals by what ran: a few by name, and the sum of all others. This bounds the number of series,
/// and no total decreases.
#[derive(Clone, Debug, Default)]
pub struct MostWaitedFor {
    /// The totals with a name.
    pub named: Vec<NamedWait>,
    /// Nanoseconds of waits behind entities that had no name at the time.
    pub others: u64,
    /// `CLOCK_MONOTONIC` at the start of the first window.
    pub since: Duration,
    /// Recent nanoseconds by what ran, the longest first. Each window multiplies the earlier ones
    /// by [`Self::DECAY`].
    recent: Vec<(WaitedFor, f64)>,
}

/// The total of the waits behind one entity.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedWait {
    /// What ran.
    pub behind: WaitedFor,
    /// Nanoseconds.
    pub total: u64,
    /// `CLOCK_MONOTONIC` at the start of the first window in which it is named.
    pub since: Duration,
}

impl MostWaitedFor {
    /// The most totals with a name.
    pub const NAMED: usize = 3;

    /// Decay of recent waits: ten windows halve them.
    const DECAY: f64 = 0.93;

    /// The smallest recent wait that is kept, relative to the longest.
    const LEAST: f64 = 0.001;

    /// The largest number of recent waits that are kept.
    const RECENT: usize = 16;

    /// An entity replaces a named one if its recent waits are longer by this factor.
    const REPLACES: f64 = 2.0;

    /// The totals after one more window. Entities that no longer exist lose their names.
    fn after_window(
        &self,
        behind: &BTreeMap<WaitedFor, u64>,
        start: Duration,
        exists: &impl Fn(&WaitedFor) -> bool,
    ) -> Self {
        let stays = |who: &WaitedFor| behind.contains_key(who) || exists(who);
        let mut recent: BTreeMap<&WaitedFor, f64> = { self.recent.iter() }
            .filter(|(who, _)| stays(who))
            .map(|(who, wait)| (who, wait * Self::DECAY))
            .collect();
        for (who, nanos) in behind {
            *recent.entry(who).or_default() += float(*nanos);
        }
        let longest = recent.values().copied().fold(0.0, f64::max);
        let mut recent: Vec<_> = { recent.into_iter() }
            .filter(|(_, wait)| *wait >= Self::LEAST * longest)
            .collect();
        // The sort is stable: equal waits stay in the order of names.
        recent.sort_by(|a, b| b.1.total_cmp(&a.1));
        recent.truncate(Self::RECENT);
        let recent = recent.into_iter().map(|(who, wait)| (who.clone(), wait));
        let named = self.named.iter().filter(|named| stays(&named.behind));
        let mut next = Self {
            named: named.cloned().collect(),
            recent: recent.collect(),
            ..*self
        };
        next.choose(start);
        for (who, nanos) in behind {
            match next.named.iter_mut().find(|named| named.behind == *who) {
                Some(named) => named.total = named.total.saturating_add(*nanos),
                None => next.others = next.others.saturating_add(*nanos),
            }
        }
        next
    }

    /// Chooses which totals have a name. `start`: the start of this window.
    fn choose(&mut self, start: Duration) {
        let recent = |who: &WaitedFor| {
            let found = self.recent.iter().find(|(known, _)| known == who);
            found.map_or(0.0, |(_, wait)| *wait)
        };
        let is_named = |who: &WaitedFor| self.named.iter().any(|named| named.behind == *who);
        let candidates = self.recent.iter().filter(|(who, _)| !is_named(who));
        let mut named = self.named.clone();
        for (behind, wait) in candidates {
            let new = NamedWait {
                behind: behind.clone(),
                total: 0,
                since: start,
            };
            let smallest = named
                .iter()
                .enumerate()
                .map(|(at, named)| (at, recent(&named.behind)))
                .min_by(|a, b| a.1.total_cmp(&b.1));
            match smallest {
                Some((at, least)) if named.len() >= Self::NAMED => {
                    if *wait <= Self::REPLACES * least {
                        break;
                    }
                    named[at] = new;
                }
                _ => named.push(new),
            }
        }
        self.named = named;
    }
}

impl WaitRows {
    pub(super) fn from_delta(
        delta: &WaitDelta,
        window: &Window,
        naming: &Naming,
        before: Option<&Self>,
    ) -> Self {
        let entity = |cgroup, tgid| naming.entity(Owner { cgroup, tgid });
        let throttled = throttled(window, naming);
        let mut entities: BTreeMap<Entity, EntityWaits> = BTreeMap::new();
        for owner in &delta.owners {
            let OwnerWaits {
                cgroup,
                tgid,
                lengths,
            } = *owner;
            if let Some(entity) = entity(cgroup, tgid) {
                let row = entities.entry(entity).or_default();
                row.lengths.delta = row.lengths.delta.plus(&lengths);
            }
        }
        // Caches the names of what ran, since there are many more pairs than owners.
        let mut ran: HashMap<CgroupId, WaitedFor> = HashMap::new();
        let owner = |(pair, _): &(WaitPair, u64)| (pair.waiting, pair.tgid);
        for pairs in delta.pairs.chunk_by(|a, b| owner(a) == owner(b)) {
            let (waiting, tgid) = owner(&pairs[0]);
            let Some(entity) = entity(waiting, tgid) else {
                continue;
            };
            let row = entities.entry(entity).or_default();
            row.throttled |= throttled.contains(&waiting);
            for (WaitPair { running, .. }, nanos) in pairs {
                let running = ran
                    .entry(*running)
                    .or_insert_with(|| waited_for(*running, naming));
                match row.behind.get_mut(running) {
                    Some(sum) => *sum = sum.saturating_add(*nanos),
                    None => drop(row.behind.insert(running.clone(), *nanos)),
                }
            }
        }
        let cgroups = naming.names.cgroups.keys();
        let existing: HashSet<WaitedFor> = cgroups.map(|id| waited_for(*id, naming)).collect();
        let exists = |who: &WaitedFor| match who {
            WaitedFor::Entity(Entity::Others) => true,
            WaitedFor::Entity(entity) => entity.never_ends() || existing.contains(who),
            _ => true,
        };
        for (entity, row) in &mut entities {
            let before = before.and_then(|before| before.entities.get(entity));
            row.add_up(entity);
            row.continue_from(before, window.start, &exists);
            row.keep_longest(naming.view.waited_for);
        }
        Self {
            entities,
            unplaced: delta.unplaced,
            unplaced_waits: delta.unplaced_waits,
        }
    }
}

impl EntityWaits {
    /// Sums the waits of the entity `own`. Call it before [`Self::keep_longest`], which merges
    /// waits.
    pub(crate) fn add_up(&mut self, own: &Entity) {
        for (behind, nanos) in &self.behind {
            self.waited = self.waited.saturating_add(*nanos);
            if matches!(behind, WaitedFor::Entity(other) if other != own) {
                self.waited_for_others = self.waited_for_others.saturating_add(*nanos);
            }
        }
    }

    /// Keeps the `most` longest waits, and adds up the others as [`Entity::Others`]. 0 keeps all.
    fn keep_longest(&mut self, most: usize) {
        if most == 0 || self.behind.len() <= most {
            return;
        }
        let mut parts: Vec<_> = mem::take(&mut self.behind).into_iter().collect();
        parts.sort_by_key(|(_, nanos)| Reverse(*nanos));
        let others = parts.split_off(most);
        self.behind = parts.into_iter().collect();
        let others = others.iter().map(|(_, nanos)| *nanos);
        let others = others.fold(0, u64::saturating_add);
        let entry = self.behind.entry(WaitedFor::Entity(Entity::Others));
        let sum = entry.or_default();
        *sum = sum.saturating_add(others);
    }

    /// Continues the totals of earlier windows. `start`: the start of this window.
    fn continue_from(
        &mut self,
        before: Option<&Self>,
        start: Duration,
        exists: &impl Fn(&WaitedFor) -> bool,
    ) {
        let delta = self.lengths.delta;
        let (total, since) = match before {
            Some(Self { lengths, .. }) => (lengths.total.plus(&delta), lengths.since),
            None => (delta, start),
        };
        self.lengths = Gained {
            delta,
            total,
            since,
        };
        let first = MostWaitedFor {
            since: start,
            ..MostWaitedFor::default()
        };
        let most = before.map_or(&first, |before| &before.most);
        self.most = most.after_window(&self.behind, start, exists);
    }
}

/// The cgroups that a CPU quota throttled in a window: their own, or one above them.
fn throttled(window: &Window, naming: &Naming) -> BTreeSet<CgroupId> {
    let Some(pressure) = &window.sources.pressure else {
        return BTreeSet::new();
    };
    let path = |id| naming.names.cgroups.get(id).map(String::as_str);
    let own = pressure.cgroups.iter().filter(|(_, counts)| {
        let nanos = counts.get(CgroupCounter::Throttled);
        nanos.is_some_and(|nanos| nanos > 0)
    });
    let own: BTreeSet<&str> = own.filter_map(|(id, _)| path(id)).collect();
    if own.is_empty() {
        return BTreeSet::new();
    }
    let cgroups = naming.names.cgroups.iter();
    let is_throttled =
        |path: &str| own.contains(path) || ancestors(path).any(|above| own.contains(above));
    cgroups
        .filter(|(_, path)| is_throttled(path))
        .map(|(id, _)| *id)
        .collect()
}

/// What ran, by its row of the view; by its container or cgroup if rows are processes, or if the
/// view hides the row.
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
    let name = naming.name_in_rows(running).cloned();
    let found = name.or_else(|| naming.entity(owner));
    WaitedFor::Entity(found.unwrap_or(Entity::Unnamed(running.0)))
}

#[cfg(test)]
mod tests;
