//! The region of each sample (docs/reference/regions.md), from the markers of programs or the kind
//! of memory, and its phase, from markers. [`RegionIndex`] collects regions and phases, `ViewCache`
//! looks them up for a decoding thread.

mod counts;
mod ended_list;
mod limits;
mod memory_map;
mod phases;
mod summary;
mod tag_set;
mod tags;
#[cfg(test)]
mod tests;
mod view;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use probe_common::{MARKER_NAME, MarkerEvent, MarkerRecord};

use self::{
    ended_list::{EndedList, HasStart},
    limits::{EntryBudget, NameTable},
    memory_map::MemoryMap,
    phases::ThreadPhases,
    tags::{TagOutcome, Tags},
};
use crate::sys::records::{PerfRecord, Task};

pub(super) use self::view::{ProcessView, ViewCache};
pub use self::{
    counts::MarkerCounts,
    memory_map::MemoryKind,
    phases::Phase,
    summary::{GroupBy, RegionRow, RegionSummary},
    tag_set::Tag,
};

/// How long ended tags and phases are kept, in ns: samples may be drained so much later.
const KEPT_NS: u64 = 60_000_000_000;

/// Replaces a name that could not be read.
const UNREADABLE: &str = "(unreadable)";

/// A tag or phase with its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithTask<T> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The tag or phase.
    pub item: T,
}

/// Markers of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessMarkers {
    tags: Tags,
    threads: HashMap<u32, ThreadPhases>,
    /// When the process exited or executed another program, in ns of `CLOCK_MONOTONIC`; None before
    /// that, and after a later marker.
    ended: Option<u64>,
}

/// Markers and memory maps of all processes.
#[derive(Debug)]
pub struct RegionIndex {
    markers: HashMap<u32, Arc<ProcessMarkers>>,
    memory_maps: HashMap<u32, Arc<MemoryMap>>,
    /// Processes of `memory_maps` that the last check did not find in procfs.
    gone: HashSet<u32>,
    budget: EntryBudget,
    names: NameTable,
    proc: PathBuf,
    round: u64,
    /// The latest time of a marker, in ns of `CLOCK_MONOTONIC`.
    latest: u64,
    pub(super) counts: MarkerCounts,
    /// The ended tags of all processes.
    tags: EndedList<Tag>,
    /// The ended phases of all processes.
    phases: EndedList<Phase>,
}

impl RegionIndex {
    /// Creates an empty index; `proc` is procfs.
    #[must_use]
    pub fn new(proc: &Path) -> Self {
        Self {
            markers: HashMap::new(),
            memory_maps: HashMap::new(),
            gone: HashSet::new(),
            budget: EntryBudget::default(),
            names: NameTable::default(),
            proc: proc.to_owned(),
            round: 0,
            latest: 0,
            counts: MarkerCounts::default(),
            tags: EndedList::default(),
            phases: EndedList::default(),
        }
    }

    /// Handles a marker. Markers of one thread come in order.
    pub fn mark(&mut self, marked: &MarkerRecord<'_>) {
        let MarkerRecord {
            time,
            tgid: pid,
            tid,
            what,
        } = *marked;
        self.latest = self.latest.max(time);
        match what {
            MarkerEvent::Tag { name, start, end } => {
                self.counts.tags += 1;
                let text = self.text(name);
                let name = self.names.intern(&text);
                let markers = running_process(&mut self.markers, pid);
                let range = (start, end);
                let TagOutcome { ended, dropped } =
                    { &mut markers.tags }.tag(time, name.as_ref(), range, &mut self.budget);
                self.counts.dropped_tags += dropped;
                let ended = ended.into_iter().map(|item| WithTask { pid, tid, item });
                add_ended(&mut self.tags, ended, &mut self.counts);
            }
            MarkerEvent::Start { name } => {
                self.counts.starts += 1;
                let name = self.text(name);
                let markers = running_process(&mut self.markers, pid);
                let thread = markers.threads.entry(tid).or_default();
                let (names, budget) = (&mut self.names, &mut self.budget);
                // Three entries: the open phase, the change at its start, and the change at its
                // end.
                let intern = |name: &str| names.intern(name).filter(|_| budget.reserve(3));
                let fits = thread.start(time, &name, intern);
                self.counts.dropped_phases += u64::from(!fits);
            }
            MarkerEvent::Stop => {
                self.counts.stops += 1;
                let markers = running_process(&mut self.markers, pid);
                match markers.threads.entry(tid).or_default().stop(time) {
                    Ok(ended) => {
                        let ended = ended.into_iter().map(|item| WithTask { pid, tid, item });
                        add_ended(&mut self.phases, ended, &mut self.counts);
                    }
                    Err(()) => self.counts.unbalanced_stops += 1,
                }
            }
            MarkerEvent::Fork(child) => {
                let markers = self.markers.get(&pid).and_then(|parent| {
                    let thread =
                        { parent.threads.get(&tid) }.map(|thread| (child, thread.forked(time)));
                    let entries = 1 + thread.as_ref().map_or(0, |(_, thread)| thread.stored());
                    if !self.budget.reserve(entries) {
                        self.counts.dropped_tags += parent.tags.active_count() as u64;
                        self.counts.dropped_phases += entries as u64 - 1;
                        return None;
                    }
                    Some(ProcessMarkers {
                        tags: parent.tags.forked(time),
                        threads: thread.into_iter().collect(),
                        ended: None,
                    })
                });
                self.close(child, time);
                if let Some(markers) = markers {
                    self.markers.insert(child, Arc::new(markers));
                }
            }
            MarkerEvent::Exec => self.close(pid, time),
            MarkerEvent::Exit { last } => {
                let Some(markers) = self.markers.get_mut(&pid) else {
                    return;
                };
                if last {
                    self.close(pid, time);
                } else if markers.threads.contains_key(&tid)
                    && let Some(thread) = Arc::make_mut(markers).threads.get_mut(&tid)
                {
                    let ended =
                        thread
                            .end(time)
                            .into_iter()
                            .map(|item| WithTask { pid, tid, item });
                    add_ended(&mut self.phases, ended, &mut self.counts);
                }
            }
        }
    }

    /// Ends all tags and phases of a process that exits or executes another program.
    fn close(&mut self, pid: u32, time: u64) {
        let Some(markers) = self.markers.get_mut(&pid) else {
            return;
        };
        let markers = Arc::make_mut(markers);
        for (tid, thread) in &mut markers.threads {
            let ended = thread.end(time).into_iter().map(|item| WithTask {
                pid,
                tid: *tid,
                item,
            });
            add_ended(&mut self.phases, ended, &mut self.counts);
        }
        let ended = markers.tags.end_all(time).into_iter().map(|item| WithTask {
            pid,
            tid: pid,
            item,
        });
        add_ended(&mut self.tags, ended, &mut self.counts);
        markers.ended = Some(time);
    }

    /// The text of a marker's name. Counts names that are unreadable or were truncated.
    fn text<'a>(&mut self, name: Option<&'a [u8]>) -> Cow<'a, str> {
        let Some(name) = name else {
            self.counts.unreadable_names += 1;
            return UNREADABLE.into();
        };
        self.counts.cut_names += u64::from(name.len() == MARKER_NAME - 1);
        String::from_utf8_lossy(name)
    }

    /// Handles a record about memory or processes. Within a round, records come in ascending order
    /// of time.
    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>) {
        match *event {
            PerfRecord::Fork(Task { pid, parent, .. }) if pid != parent => {
                match self.memory_maps.get(&parent) {
                    Some(memory_map) => self.memory_maps.insert(pid, Arc::clone(memory_map)),
                    None => self.memory_maps.remove(&pid),
                };
            }
            // An exec drops the old mappings; records of the new program's mappings follow.
            PerfRecord::Comm {
                pid, exec: true, ..
            } => {
                self.memory_maps.insert(pid, Arc::default());
            }
            PerfRecord::Exit(Task { pid, tid, .. }) if pid == tid => {
                // Lets the next lookup read procfs again: other threads of the process may keep
                // running.
                if let Some(memory_map) = self.memory_maps.get_mut(&pid) {
                    Arc::make_mut(memory_map).read_in = None;
                }
            }
            PerfRecord::Map(map) => {
                let memory_map = Arc::make_mut(self.memory_maps.entry(map.pid).or_default());
                self.counts.dropped_mappings += memory_map.add(&map);
            }
            _ => {}
        }
    }

    /// Snapshot of a process's markers and memory map in this round.
    pub(super) fn view(&mut self, pid: u32) -> ProcessView {
        let was_read = |memory_map: &Arc<MemoryMap>| memory_map.read_in.is_some();
        if !self.memory_maps.get(&pid).is_some_and(was_read) {
            self.memory_map(pid);
        }
        ProcessView {
            markers: self.markers.get(&pid).cloned().unwrap_or_default(),
            memory_map: self.memory_maps.get(&pid).cloned().unwrap_or_default(),
        }
    }

    /// The memory map of a process, read from procfs unless it was read in this round.
    fn memory_map(&mut self, pid: u32) -> Arc<MemoryMap> {
        let memory_map = self.memory_maps.entry(pid).or_default();
        if memory_map.read_in != Some(self.round) {
            let dropped = Arc::make_mut(memory_map).read_procfs(&self.proc, pid, self.round);
            self.counts.dropped_mappings += dropped;
        }
        Arc::clone(memory_map)
    }

    /// Call it after all markers of a round and before lookups. Drops old entries, and counts the
    /// remaining ones.
    pub fn prepare_lookups(&mut self) {
        let horizon = self.latest.saturating_sub(KEPT_NS);
        for markers in self.markers.values_mut() {
            let has_old =
                |thread: &ThreadPhases| thread.is_blank(horizon) || thread.has_old(horizon);
            if !markers.tags.has_old(horizon) && !markers.threads.values().any(has_old) {
                continue;
            }
            let markers = Arc::make_mut(markers);
            markers.tags.forget(horizon);
            markers.threads.retain(|_, thread| {
                thread.forget(horizon);
                !thread.is_blank(horizon)
            });
        }
        let mut counted_sets = HashSet::new();
        let entries = { self.markers.values() }.map(|markers| {
            let threads = markers
                .threads
                .values()
                .map(ThreadPhases::stored)
                .sum::<usize>();
            1 + threads + markers.tags.stored(&mut counted_sets)
        });
        self.budget.set_used(entries.sum());
    }

    /// Ends a round: forgets processes that ended long ago.
    pub(super) fn end_round(&mut self) {
        let horizon = self.latest.saturating_sub(KEPT_NS);
        self.markers.retain(|_, markers| {
            let is_old = markers.ended.is_some_and(|ended| ended < horizon);
            !is_old || markers.tags.active_count() > 0
        });
        // Checks every 600 rounds which processes exited, since processes without samples have
        // memory maps too. A map is kept until the second check after the exit: the last samples
        // may come in later rounds.
        if self.round.is_multiple_of(600) {
            let is_gone = |pid: &u32| !self.proc.join(pid.to_string()).exists();
            let gone: HashSet<u32> = self.memory_maps.keys().copied().filter(is_gone).collect();
            self.memory_maps
                .retain(|pid, _| !(gone.contains(pid) && self.gone.contains(pid)));
            self.gone = gone;
        }
        self.names.end_round();
        self.round += 1;
    }

    /// Counts of markers and losses.
    #[must_use]
    pub const fn counts(&self) -> &MarkerCounts {
        &self.counts
    }

    /// The tags so far; active tags come last. A tag that a child inherits is listed for its parent
    /// only.
    #[must_use]
    pub fn tags(&self) -> Vec<WithTask<Tag>> {
        self.tags.with_active(self.active_tags())
    }

    /// The phases so far; open phases come last.
    #[must_use]
    pub fn phases(&self) -> Vec<WithTask<Phase>> {
        self.phases.with_active(self.open_phases())
    }

    /// Tags and phases that ended or began since the last call. Some active tags and phases are
    /// returned by two calls.
    #[must_use]
    pub fn take_new(&mut self) -> (Vec<WithTask<Tag>>, Vec<WithTask<Phase>>) {
        let (active, open) = (self.active_tags(), self.open_phases());
        let tags = self.tags.take_new(active, self.latest);
        (tags, self.phases.take_new(open, self.latest))
    }

    fn active_tags(&self) -> Vec<WithTask<Tag>> {
        let mut active: Vec<_> = { &self.markers }
            .iter()
            .flat_map(|(pid, markers)| {
                markers.tags.own().map(|tag| WithTask {
                    pid: *pid,
                    tid: *pid,
                    item: tag.clone(),
                })
            })
            .collect();
        active.sort_by_key(|it| (it.item.since, it.pid, it.item.start));
        active
    }

    fn open_phases(&self) -> Vec<WithTask<Phase>> {
        let mut open: Vec<_> = { &self.markers }
            .iter()
            .flat_map(|(pid, markers)| {
                let threads = markers.threads.iter();
                threads.flat_map(|(tid, thread)| {
                    thread.open().iter().map(|phase| WithTask {
                        pid: *pid,
                        tid: *tid,
                        item: phase.clone(),
                    })
                })
            })
            .collect();
        open.sort_by_key(|it| (it.item.since, it.tid));
        open
    }

    /// Region and phase of a thread's access at a time, or now. Call [`Self::prepare_lookups`]
    /// first.
    #[must_use]
    pub fn lookup(
        &mut self,
        (pid, tid): (u32, u32),
        address: u64,
        time: Option<u64>,
    ) -> (Option<Arc<str>>, Option<Arc<str>>) {
        let view = self.view(pid);
        let phase = view.phase((pid, tid), time).cloned();
        (view.region(address, time), phase)
    }
}

/// The markers of a process that calls a marker now, and so runs; creates them if needed.
fn running_process(
    markers: &mut HashMap<u32, Arc<ProcessMarkers>>,
    pid: u32,
) -> &mut ProcessMarkers {
    let markers = Arc::make_mut(markers.entry(pid).or_default());
    markers.ended = None;
    markers
}

/// Adds ended items to a list, and counts those beyond its limit.
fn add_ended<T: HasStart + Clone>(
    list: &mut EndedList<T>,
    ended: impl Iterator<Item = WithTask<T>>,
    counts: &mut MarkerCounts,
) {
    counts.unlisted += list.add(ended);
}
