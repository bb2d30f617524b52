//! Names of cgroups and processes, kept as long as they have rows, and what ended.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use probe_common::{CgroupId, Lifecycle as Record, LifecycleKind, UsageKey};

use super::processes::Found;
use crate::{
    machine::cgroup::Hierarchy,
    names::{contested, resolver::Resolver},
    session::object::Ring,
    snapshot::Names,
};

/// Owners whose rows can be freed.
#[derive(Clone, Default)]
pub(crate) struct Ended {
    cgroups: HashSet<CgroupId>,
    processes: HashSet<u32>,
}

impl Ended {
    pub(super) fn is_empty(&self) -> bool {
        self.cgroups.is_empty() && self.processes.is_empty()
    }

    pub(crate) fn contains(&self, key: &UsageKey) -> bool {
        self.owns(key.cgroup, key.tgid)
    }

    pub(crate) fn owns(&self, cgroup: CgroupId, tgid: u32) -> bool {
        self.cgroups.contains(&cgroup) || self.processes.contains(&tgid)
    }
}

/// What the lifecycle programs told so far.
pub(crate) struct Lifecycle {
    names: Arc<Names>,
    /// Who is asked what the containers among the cgroups are called.
    resolver: Option<Arc<Resolver>>,
    /// Ended since the last pull.
    ended: Ended,
    /// Ended before the last pull, and before the one before it. The last moments of a dead task
    /// may be charged once more, so rows are looked for twice, and names are kept as long.
    before: [Arc<Ended>; 2],
    /// Ended before those: the next snapshot is the last that may show them.
    old: Vec<Arc<Ended>>,
    /// Records that were lost until the last walk.
    lost: u64,
    /// Some cgroups or processes may have gone without a record.
    unsure: bool,
    /// A switch was missed, and that was not told yet.
    switch_missed: bool,
    /// A program found the map of counts full since [`Self::take_rows_full`].
    rows_full: bool,
    /// The cgroups that have names changed since [`Self::look_up_owners`].
    changed: bool,
}

impl Lifecycle {
    pub(crate) fn new(names: Names, resolver: Option<Arc<Resolver>>) -> Self {
        if let Some(resolver) = &resolver {
            resolver.wanted(names.cgroups.values().map(String::as_str));
        }
        Self {
            names: Arc::new(names),
            resolver,
            ended: Ended::default(),
            before: Default::default(),
            old: Vec::new(),
            lost: 0,
            unsure: false,
            switch_missed: false,
            rows_full: false,
            changed: true,
        }
    }

    /// Takes in every record of the ring.
    pub(crate) fn drain(&mut self, ring: &mut Ring) {
        ring.drain(|record| {
            let Some((kind, id, text)) = Record::parse(record) else {
                tracing::error!(
                    "a record of {} bytes in the LIFECYCLE ring is none of ours",
                    record.len()
                );
                return;
            };
            let text = || String::from_utf8_lossy(text).into_owned();
            match kind {
                LifecycleKind::CgroupMade => {
                    let path = text();
                    // At once: a container that ends soon may be forgotten soon.
                    if let Some(resolver) = &self.resolver {
                        resolver.wanted([path.as_str()]);
                    }
                    let names = Arc::make_mut(&mut self.names);
                    names.cgroups.insert(CgroupId(id), path);
                    self.changed = true;
                }
                LifecycleKind::CgroupRemoved => {
                    self.ended.cgroups.insert(CgroupId(id));
                }
                LifecycleKind::ProcessExited => {
                    let tgid = u32::try_from(id).unwrap_or_default();
                    Arc::make_mut(&mut self.names)
                        .processes
                        .insert(tgid, text());
                    self.ended.processes.insert(tgid);
                }
                LifecycleKind::SwitchMissed => self.switch_missed = true,
                LifecycleKind::RowsFull => self.rows_full = true,
            }
        });
    }

    /// Whether a switch was missed since this was asked last.
    pub(crate) fn take_switch_missed(&mut self) -> bool {
        std::mem::take(&mut self.switch_missed)
    }

    /// Whether the map of counts was full since this was asked last.
    pub(super) fn take_rows_full(&mut self) -> bool {
        std::mem::take(&mut self.rows_full)
    }

    /// Owners whose end was told, and not to [`Self::take_ended`] yet.
    pub(super) fn ended(&self) -> usize {
        self.ended.cgroups.len() + self.ended.processes.len()
    }

    /// What ended before now and may have rows.
    pub(crate) fn take_ended(&mut self) -> [Arc<Ended>; 2] {
        let ended = Arc::new(std::mem::take(&mut self.ended));
        let [last, older] = std::mem::take(&mut self.before);
        if !older.is_empty() {
            self.old.push(older);
        }
        self.before = [ended, last];
        self.before.clone()
    }

    /// Forgets the names of owners whose rows are in no later snapshot.
    pub(super) fn forget(&mut self) {
        let any_cgroup = self.old.iter().any(|old| !old.cgroups.is_empty());
        for old in std::mem::take(&mut self.old) {
            // One that still ends is among those that ended later, too.
            let gone = old.processes.iter().copied();
            let gone: HashSet<u32> = gone.filter(|tgid| !self.has_ended(*tgid)).collect();
            let names = Arc::make_mut(&mut self.names);
            names.cgroups.retain(|id, _| !old.cgroups.contains(id));
            names.processes.retain(|tgid, _| !gone.contains(tgid));
        }
        self.changed |= any_cgroup;
        if let Some(resolver) = self.resolver.as_ref().filter(|_| any_cgroup) {
            resolver.wanted_only(self.names.cgroups.values().map(String::as_str));
        }
    }

    /// Forgets the names of processes that ended, but for those that are kept.
    pub(super) fn forget_processes(&mut self, kept: &HashSet<u32>) {
        let mut names = Arc::clone(&self.names);
        let old = Arc::make_mut(&mut names);
        old.processes
            .retain(|tgid, _| kept.contains(tgid) || self.has_ended(*tgid));
        self.names = names;
        let cgroups = self.old.drain(..).flat_map(|old| old.cgroups.clone());
        let ended = Ended {
            cgroups: cgroups.collect(),
            processes: HashSet::new(),
        };
        self.old = vec![Arc::new(ended)];
    }

    /// Whether more records are lost than when this was asked last, or were told to another
    /// process.
    pub(super) fn has_lost(&mut self, lost: u64) -> bool {
        let more = std::mem::replace(&mut self.lost, lost) < lost;
        std::mem::take(&mut self.unsure) || more
    }

    /// Records were told to an earlier process, and what came of that is not known.
    pub(crate) fn doubt(&mut self) {
        self.unsure = true;
    }

    /// Takes in the names that an earlier process knew. Of those that are gone a walk tells.
    pub(crate) fn recall(&mut self, known: &Names) {
        let names = Arc::make_mut(&mut self.names);
        for (id, path) in &known.cgroups {
            names.cgroups.entry(*id).or_insert_with(|| path.clone());
        }
        self.changed = true;
        for (tgid, name) in &known.processes {
            names.processes.entry(*tgid).or_insert_with(|| name.clone());
        }
        self.doubt();
    }

    /// Cgroups that have a name.
    pub(super) fn named(&self) -> impl Iterator<Item = CgroupId> {
        self.names.cgroups.keys().copied()
    }

    /// Cgroups that a walk has found.
    pub(super) fn add_cgroups(&mut self, found: Vec<(CgroupId, String)>) {
        if let Some(resolver) = &self.resolver {
            resolver.wanted(found.iter().map(|(_, path)| path.as_str()));
        }
        Arc::make_mut(&mut self.names).cgroups.extend(found);
        self.changed = true;
    }

    /// Owners that a walk has not found, and whose end was not told.
    pub(super) fn add_ended(
        &mut self,
        cgroups: impl IntoIterator<Item = CgroupId>,
        processes: impl IntoIterator<Item = u32>,
    ) {
        self.ended.cgroups.extend(cgroups);
        self.ended.processes.extend(processes);
    }

    /// Whether a cgroup has a name, and its end was not told.
    pub(super) fn lives(&self, cgroup: CgroupId) -> bool {
        let before = self.before.iter().chain(&self.old).map(AsRef::as_ref);
        let mut ended = before.chain([&self.ended]);
        self.names.cgroups.contains_key(&cgroup)
            && !ended.any(|ended| ended.cgroups.contains(&cgroup))
    }

    /// Whether the end of a process was told whose rows may still be there.
    pub(super) fn has_ended(&self, tgid: u32) -> bool {
        self.lately().any(|ended| ended.processes.contains(&tgid))
    }

    /// All of these.
    pub(super) fn ended_processes(&self) -> impl Iterator<Item = u32> {
        self.lately().flat_map(|ended| &ended.processes).copied()
    }

    /// What ended, as far as its rows may still be there.
    fn lately(&self) -> impl Iterator<Item = &Ended> {
        self.before.iter().map(AsRef::as_ref).chain([&self.ended])
    }

    /// What a walk found of processes that have rows; what exec changes is seen at the next pull.
    pub(super) fn add_processes(&mut self, found: Found) {
        let Found {
            names,
            ending,
            gone,
        } = found;
        for tgid in names.keys().filter(|tgid| !ending.contains(tgid)) {
            self.forget_end(*tgid);
        }
        Arc::make_mut(&mut self.names).processes.extend(names);
        // The records of the others were lost, or are on their way.
        let gone = gone.into_iter().filter(|tgid| !self.has_ended(*tgid));
        let gone: Vec<u32> = gone.collect();
        self.add_ended([], gone);
        // Their ends were told, and they run until they have freed what they held.
        self.add_ended([], ending);
    }

    /// A process has the id of one that ended.
    fn forget_end(&mut self, tgid: u32) {
        self.ended.processes.remove(&tgid);
        for ended in self.before.iter_mut().chain(&mut self.old) {
            if ended.processes.contains(&tgid) {
                Arc::make_mut(ended).processes.remove(&tgid);
            }
        }
    }

    /// Looks up who may make cgroups where several bear one id, if any came or went.
    pub(super) fn look_up_owners(&mut self, hierarchy: &Hierarchy) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let contested = contested(self.names.cgroups.values().map(String::as_str));
        // Owners change, and no record tells.
        self.changed = !contested.is_empty();
        // A directory that is gone was whose it was: cgroups in it still have their names.
        let known = |path| {
            hierarchy
                .is_delegated(path)
                .or(self.names.delegated.get(path).copied())
        };
        let owned = contested.into_iter();
        let owned = owned.filter_map(|path| Some((path.to_owned(), known(path)?)));
        let owned: BTreeMap<String, bool> = owned.collect();
        if owned != self.names.delegated {
            Arc::make_mut(&mut self.names).delegated = owned;
        }
    }

    /// All names, with what runtimes have told by now.
    pub(crate) fn names(&mut self) -> Arc<Names> {
        let described = self.resolver.as_ref().map(|resolver| resolver.names());
        // Where the names are the same the value stays too: rows then keep their names.
        if let Some(described) = described
            && !Arc::ptr_eq(&described, &self.names.described)
        {
            Arc::make_mut(&mut self.names).described = described;
        }
        Arc::clone(&self.names)
    }
}
