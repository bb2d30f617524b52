//! Tracks cgroups and processes: their ends, and their names as long as they have rows.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use probe_common::{CgroupId, LifecycleKind, LifecycleRecord};

use super::{
    cgroups::find_gone,
    processes::{FoundProcesses, Processes},
};
use crate::{
    machine::cgroup::Hierarchy,
    names::{contested, resolver::Resolver},
    session::{EbpfObject, SessionError, object::RingMap, temporary_cgroup::remove_leftover},
    snapshot::Names,
};

/// Owners whose rows can be freed.
#[derive(Clone, Default)]
pub(crate) struct EndedOwners {
    cgroups: HashSet<CgroupId>,
    processes: HashSet<u32>,
}

impl EndedOwners {
    pub(super) fn is_empty(&self) -> bool {
        self.cgroups.is_empty() && self.processes.is_empty()
    }

    pub(super) fn owns(&self, cgroup: CgroupId, tgid: u32) -> bool {
        self.cgroups.contains(&cgroup) || self.processes.contains(&tgid)
    }
}

/// The names and ends of cgroups and processes, from the lifecycle programs and walks.
pub(crate) struct LifecycleTracker {
    pub(super) hierarchy: Hierarchy,
    names: Arc<Names>,
    /// Resolves the names of containers among the cgroups.
    resolver: Option<Arc<Resolver>>,
    /// Ended owners not yet returned by [`Self::take_ended`].
    ended: EndedOwners,
    /// Owners returned for the first time by the last two calls of [`Self::take_ended`]. The exit
    /// of a task may be charged after the first call, so rows are freed twice, and names are kept
    /// until then.
    previous: [Arc<EndedOwners>; 2],
    /// Owners that ended before those in `previous`. The next snapshot is the last that may show
    /// them.
    expired: Vec<Arc<EndedOwners>>,
    /// Number of lost records at the last call of [`Self::resync`].
    lost: u64,
    /// Whether some cgroups or processes may have ended without a record.
    stale: bool,
    processes: Processes,
    /// Processes that are looked up although they have no row.
    watched: HashSet<u32>,
    /// Processes that an earlier process named, until the next walk: it finds those that ended
    /// meanwhile.
    restored: HashSet<u32>,
    /// Whether a switch was missed since the last [`Self::take_switch_missed`].
    switch_missed: bool,
    /// Whether a program found the map of counts full since the last [`Self::take_rows_full`].
    rows_full: bool,
    /// Whether [`Self::update_delegated`] must look again: cgroups got or lost names, or share ids.
    changed: bool,
}

impl LifecycleTracker {
    /// Walks over the cgroups that exist. Must be called after the programs are attached, so that
    /// no cgroup is created unseen between the walk and the first record.
    pub(crate) fn start(
        hierarchy: &Hierarchy,
        resolver: Option<Arc<Resolver>>,
    ) -> Result<Self, SessionError> {
        let cgroups = hierarchy.walk()?;
        remove_leftover(hierarchy, cgroups.iter().map(|(_, path)| path.as_str()));
        let names = Names {
            cgroups: cgroups.into_iter().collect(),
            ..Names::default()
        };
        if let Some(resolver) = &resolver {
            resolver.request(names.cgroups.values().map(String::as_str));
        }
        Ok(Self {
            hierarchy: hierarchy.clone(),
            names: Arc::new(names),
            resolver,
            ended: EndedOwners::default(),
            previous: Default::default(),
            expired: Vec::new(),
            lost: 0,
            stale: false,
            processes: Processes::default(),
            watched: HashSet::new(),
            restored: HashSet::new(),
            switch_missed: false,
            rows_full: false,
            changed: true,
        })
    }

    /// Applies every record of the ring.
    pub(crate) fn drain(&mut self, ring: &mut RingMap) {
        ring.drain(|record| {
            let Some((kind, id, text)) = LifecycleRecord::parse(record) else {
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
                    // Asks at once: a runtime may soon forget a short-lived container.
                    if let Some(resolver) = &self.resolver {
                        resolver.request([path.as_str()]);
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

    /// Whether a switch was missed since the last call.
    pub(crate) fn take_switch_missed(&mut self) -> bool {
        std::mem::take(&mut self.switch_missed)
    }

    /// Whether a program found the map of counts full since the last call.
    pub(super) fn take_rows_full(&mut self) -> bool {
        std::mem::take(&mut self.rows_full)
    }

    /// Number of ended owners not yet returned by [`Self::take_ended`].
    pub(super) fn ended_count(&self) -> usize {
        self.ended.cgroups.len() + self.ended.processes.len()
    }

    /// Ended owners that may have rows: owners that ended since the last call, and owners that the
    /// last call returned for the first time.
    pub(crate) fn take_ended(&mut self) -> [Arc<EndedOwners>; 2] {
        let ended = Arc::new(std::mem::take(&mut self.ended));
        let [last, older] = std::mem::take(&mut self.previous);
        if !older.is_empty() {
            self.expired.push(older);
        }
        self.previous = [ended, last];
        self.previous.clone()
    }

    /// Removes the names of owners that no later snapshot can show.
    pub(super) fn forget(&mut self) {
        let any_cgroup = self.expired.iter().any(|old| !old.cgroups.is_empty());
        for old in std::mem::take(&mut self.expired) {
            // A process that is still exiting was added to the ended ones again.
            let gone: HashSet<u32> = old
                .processes
                .iter()
                .copied()
                .filter(|tgid| !self.has_ended(*tgid))
                .collect();
            let names = Arc::make_mut(&mut self.names);
            names.cgroups.retain(|id, _| !old.cgroups.contains(id));
            names.processes.retain(|tgid, _| !gone.contains(tgid));
        }
        self.changed |= any_cgroup;
        if let Some(resolver) = self.resolver.as_ref().filter(|_| any_cgroup) {
            resolver.request_only(self.names.cgroups.values().map(String::as_str));
        }
    }

    /// Removes the names of processes, except those in `keep` and those that ended recently.
    pub(super) fn forget_processes(&mut self, keep: &HashSet<u32>) {
        let mut names = Arc::clone(&self.names);
        let kept = Arc::make_mut(&mut names);
        kept.processes
            .retain(|tgid, _| keep.contains(tgid) || self.has_ended(*tgid));
        self.names = names;
        let cgroups = self.expired.drain(..).flat_map(|old| old.cgroups.clone());
        let ended = EndedOwners {
            cgroups: cgroups.collect(),
            processes: HashSet::new(),
        };
        self.expired = vec![Arc::new(ended)];
    }

    /// Walks over all cgroups if the number of `lost` records grew since the last call, or
    /// [`Self::mark_stale`] was called. The next pull then frees the rows of cgroups that no longer
    /// exist, and cgroups that the mount shows get their names. `owners` are the cgroups with rows.
    ///
    /// A cgroup that is created or removed during the walk has a record after the walk. If that
    /// record is lost too, the next pull walks again.
    pub(super) fn resync(
        &mut self,
        object: &mut EbpfObject,
        owners: impl Iterator<Item = CgroupId>,
        lost: u64,
    ) -> Result<(), SessionError> {
        let lost_more = std::mem::replace(&mut self.lost, lost) < lost;
        if !std::mem::take(&mut self.stale) && !lost_more {
            return Ok(());
        }
        // All known cgroups existed before the walk: one that it does not find is gone.
        let named = self.names.cgroups.keys().copied();
        let mut known: HashSet<CgroupId> = owners.chain(named).collect();
        known.retain(|id| id.is_cgroup());
        self.add_cgroups(self.hierarchy.walk()?);
        // The mount may show only a part of the hierarchy, so the kernel's tree decides.
        let gone = find_gone(object, &known)?;
        self.add_ended(gone, []);
        Ok(())
    }

    /// Marks the names as possibly outdated: an earlier process read records that this one cannot
    /// see.
    pub(crate) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Adds the names that an earlier process knew, those of processes only in a session with rows
    /// `by_process`. The next walks find the cgroups and processes among them that no longer exist.
    pub(crate) fn restore(&mut self, known: &Names, by_process: bool) {
        let names = Arc::make_mut(&mut self.names);
        for (id, path) in &known.cgroups {
            names.cgroups.entry(*id).or_insert_with(|| path.clone());
        }
        self.changed = true;
        // Without rows by process no walk finds the end of a process.
        for (tgid, name) in known.processes.iter().filter(|_| by_process) {
            names.processes.entry(*tgid).or_insert_with(|| name.clone());
            self.restored.insert(*tgid);
        }
        self.mark_stale();
    }

    /// Adds the cgroups that a walk has found.
    fn add_cgroups(&mut self, found: Vec<(CgroupId, String)>) {
        if let Some(resolver) = &self.resolver {
            resolver.request(found.iter().map(|(_, path)| path.as_str()));
        }
        Arc::make_mut(&mut self.names).cgroups.extend(found);
        self.changed = true;
    }

    /// Adds ended owners: a walk did not find them, or found them exiting.
    fn add_ended(
        &mut self,
        cgroups: impl IntoIterator<Item = CgroupId>,
        processes: impl IntoIterator<Item = u32>,
    ) {
        self.ended.cgroups.extend(cgroups);
        self.ended.processes.extend(processes);
    }

    /// Whether a cgroup has a name and has not ended.
    pub(super) fn exists(&self, cgroup: CgroupId) -> bool {
        let before = self.previous.iter().chain(&self.expired).map(AsRef::as_ref);
        let mut ended = before.chain([&self.ended]);
        self.names.cgroups.contains_key(&cgroup)
            && !ended.any(|ended| ended.cgroups.contains(&cgroup))
    }

    /// Whether the process has ended and may still have rows.
    fn has_ended(&self, tgid: u32) -> bool {
        self.recently_ended()
            .any(|ended| ended.processes.contains(&tgid))
    }

    /// Ended owners that may still have rows.
    fn recently_ended(&self) -> impl Iterator<Item = &EndedOwners> {
        self.previous.iter().map(AsRef::as_ref).chain([&self.ended])
    }

    /// Makes each walk look for these processes too, even if they have no row.
    pub(super) fn watch(&mut self, processes: HashSet<u32>) {
        self.watched = processes;
    }

    /// Walks for the processes with rows (`with_rows`), and names those that run. A name that exec
    /// changes is seen at the next pull. Records of exits have the names of ended processes; the
    /// walk looks for these processes too, since their exits may last.
    pub(super) fn name_processes(
        &mut self,
        object: &mut EbpfObject,
        with_rows: impl Iterator<Item = u32>,
    ) -> Result<(), SessionError> {
        let wanted = self.wanted_processes(with_rows);
        let found = self.processes.find(object, wanted)?;
        self.apply_found(found);
        Ok(())
    }

    /// The processes to look for: those with rows, watched, restored, or ended recently.
    fn wanted_processes(&mut self, with_rows: impl Iterator<Item = u32>) -> HashSet<u32> {
        let mut wanted = std::mem::take(&mut self.restored);
        let ended = self.recently_ended().flat_map(|ended| &ended.processes);
        wanted.extend(self.watched.iter().chain(ended));
        wanted.extend(with_rows);
        wanted.remove(&0);
        wanted
    }

    /// Names the processes that a walk has found, and adds the others to the ended ones.
    fn apply_found(&mut self, found: FoundProcesses) {
        let FoundProcesses {
            names,
            ending,
            gone,
        } = found;
        for tgid in names.keys().filter(|tgid| !ending.contains(tgid)) {
            self.unmark_ended(*tgid);
        }
        Arc::make_mut(&mut self.names).processes.extend(names);
        // The exit record of a process that is gone was lost, or is still to come.
        let gone: Vec<u32> = gone
            .into_iter()
            .filter(|tgid| !self.has_ended(*tgid))
            .collect();
        self.add_ended([], gone);
        // An ending process still runs until it has freed its memory, so it stays among the ended
        // ones.
        self.add_ended([], ending);
    }

    /// Removes a process id from the ended ones: a new process has this id.
    fn unmark_ended(&mut self, tgid: u32) {
        self.ended.processes.remove(&tgid);
        for ended in self.previous.iter_mut().chain(&mut self.expired) {
            if ended.processes.contains(&tgid) {
                Arc::make_mut(ended).processes.remove(&tgid);
            }
        }
    }

    /// Looks up whether users other than root can create cgroups in the ancestors of cgroups that
    /// share a container or pod id. While no cgroups share an id, it compares them only if the set
    /// of named cgroups changed.
    pub(super) fn update_delegated(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let contested = contested(self.names.cgroups.values().map(String::as_str));
        // Looks again at the next call, since a directory's owner may change without a record.
        self.changed = !contested.is_empty();
        // A removed directory keeps its last answer, since cgroups in it still have names.
        let known = |path| {
            self.hierarchy
                .is_delegated(path)
                .or(self.names.delegated.get(path).copied())
        };
        let delegated: BTreeMap<String, bool> = contested
            .into_iter()
            .filter_map(|path| Some((path.to_owned(), known(path)?)))
            .collect();
        if delegated != self.names.delegated {
            Arc::make_mut(&mut self.names).delegated = delegated;
        }
    }

    /// All names, with the descriptions that runtimes have given by now.
    pub(crate) fn names(&mut self) -> Arc<Names> {
        let described = self.resolver.as_ref().map(|resolver| resolver.names());
        // Unchanged names stay the same `Arc`, by which callers see that nothing changed.
        if let Some(described) = described
            && !Arc::ptr_eq(&described, &self.names.described)
        {
            Arc::make_mut(&mut self.names).described = described;
        }
        Arc::clone(&self.names)
    }
}

#[cfg(test)]
mod tests;
