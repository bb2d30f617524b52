//! The region and the phase of each sample (docs/regions.md): what programs say by markers, and
//! what their memory is where they say nothing.

mod areas;
mod counts;
mod listed;
mod phases;
mod room;
mod set;
mod summary;
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

use probe_common::{MARKER_NAME, Marked, What};

use self::{
    areas::Areas,
    listed::{Begun, Listed},
    phases::Thread,
    room::{Names, Room},
    tags::{Done, Tags},
};
use crate::sys::records::{Event, Task};

pub(super) use self::view::{View, Viewer};
pub use self::{
    areas::Area,
    counts::Counts,
    phases::Phase,
    set::Tag,
    summary::{By, Row, Summary},
};

/// How long what has ended is kept: so late a sample may come out of its buffer, in ns.
const KEPT: u64 = 60_000_000_000;

/// What a name is called that could not be read.
const UNREADABLE: &str = "(unreadable)";

/// A tag or phase with whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Of<T> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// What it is.
    pub is: T,
}

/// What one process said of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    tags: Tags,
    threads: HashMap<u32, Thread>,
    /// When it ended, ns of `CLOCK_MONOTONIC`.
    ended: Option<u64>,
}

/// What all processes said of themselves, and what their memory is.
#[derive(Debug)]
pub struct Book {
    said: HashMap<u32, Arc<Said>>,
    areas: HashMap<u32, Arc<Areas>>,
    /// Of those, the processes that were not there at the last look.
    gone: HashSet<u32>,
    room: Room,
    names: Names,
    proc: PathBuf,
    round: u64,
    /// The time of the last marker, ns of `CLOCK_MONOTONIC`.
    latest: u64,
    pub(super) counts: Counts,
    tags: Listed<Tag>,
    phases: Listed<Phase>,
}

impl Book {
    /// An empty one; `proc` is procfs.
    #[must_use]
    pub fn new(proc: &Path) -> Self {
        Self {
            said: HashMap::new(),
            areas: HashMap::new(),
            gone: HashSet::new(),
            room: Room::default(),
            names: Names::default(),
            proc: proc.to_owned(),
            round: 0,
            latest: 0,
            counts: Counts::default(),
            tags: Listed::default(),
            phases: Listed::default(),
        }
    }

    /// Handles a marker. Those of one thread come in their order.
    pub fn mark(&mut self, marked: &Marked<'_>) {
        let Marked {
            time,
            tgid: pid,
            tid,
            what,
        } = *marked;
        self.latest = self.latest.max(time);
        match what {
            What::Tag { name, start, end } => {
                self.counts.tags += 1;
                let name = self.text(name);
                let name = self.names.get(&name);
                let said = speaking(&mut self.said, pid);
                let range = (start, end);
                let Done { ended, dropped } =
                    { &mut said.tags }.tag(time, name.as_ref(), range, &mut self.room);
                self.counts.dropped_tags += dropped;
                let ended = ended.into_iter().map(|is| Of { pid, tid, is });
                list(&mut self.tags, ended, &mut self.counts);
            }
            What::Start { name } => {
                self.counts.starts += 1;
                let name = self.text(name);
                let said = speaking(&mut self.said, pid);
                let thread = said.threads.entry(tid).or_default();
                let (names, room) = (&mut self.names, &mut self.room);
                // It is open, and a change, and its end is one too.
                let named = |name: &str| names.get(name).filter(|_| room.take(3));
                let begins = thread.start(time, &name, named);
                self.counts.dropped_phases += u64::from(!begins);
            }
            What::Stop => {
                self.counts.stops += 1;
                let said = speaking(&mut self.said, pid);
                match said.threads.entry(tid).or_default().stop(time) {
                    Ok(ended) => {
                        let ended = ended.into_iter().map(|is| Of { pid, tid, is });
                        list(&mut self.phases, ended, &mut self.counts);
                    }
                    Err(()) => self.counts.unbalanced_stops += 1,
                }
            }
            What::Fork(child) => {
                let said = self.said.get(&pid).and_then(|parent| {
                    let thread = parent.threads.get(&tid);
                    let thread = thread.map(|thread| (child, thread.forked(time)));
                    let places = 1 + thread.as_ref().map_or(0, |(_, thread)| thread.kept());
                    if !self.room.take(places) {
                        self.counts.dropped_tags += parent.tags.count() as u64;
                        self.counts.dropped_phases += places as u64 - 1;
                        return None;
                    }
                    Some(Said {
                        tags: parent.tags.forked(time),
                        threads: thread.into_iter().collect(),
                        ended: None,
                    })
                });
                self.close(child, time);
                if let Some(said) = said {
                    self.said.insert(child, Arc::new(said));
                }
            }
            What::Exec => self.close(pid, time),
            What::Exit { last } => {
                let Some(said) = self.said.get_mut(&pid) else {
                    return;
                };
                if last {
                    self.close(pid, time);
                } else if said.threads.contains_key(&tid)
                    && let Some(thread) = Arc::make_mut(said).threads.get_mut(&tid)
                {
                    let ended = thread.end(time).into_iter();
                    let ended = ended.map(|is| Of { pid, tid, is });
                    list(&mut self.phases, ended, &mut self.counts);
                }
            }
        }
    }

    /// Ends all that a process said: it is another program, or none, from now on.
    fn close(&mut self, pid: u32, time: u64) {
        let Some(said) = self.said.get_mut(&pid) else {
            return;
        };
        let said = Arc::make_mut(said);
        for (tid, thread) in &mut said.threads {
            let ended = thread.end(time).into_iter();
            let ended = ended.map(|is| Of { pid, tid: *tid, is });
            list(&mut self.phases, ended, &mut self.counts);
        }
        let ended = said.tags.end_all(time).into_iter();
        let ended = ended.map(|is| Of { pid, tid: pid, is });
        list(&mut self.tags, ended, &mut self.counts);
        said.ended = Some(time);
    }

    fn text<'a>(&mut self, name: Option<&'a [u8]>) -> Cow<'a, str> {
        let Some(name) = name else {
            self.counts.unreadable_names += 1;
            return UNREADABLE.into();
        };
        self.counts.cut_names += u64::from(name.len() == MARKER_NAME - 1);
        String::from_utf8_lossy(name)
    }

    /// Handles a record about memory or processes. Within a round they come in rising order of
    /// time.
    pub(super) fn learn(&mut self, event: &Event<'_>) {
        match *event {
            Event::Fork(Task { pid, parent, .. }) if pid != parent => {
                match self.areas.get(&parent) {
                    Some(areas) => self.areas.insert(pid, Arc::clone(areas)),
                    None => self.areas.remove(&pid),
                };
            }
            // The new program's mappings follow.
            Event::Comm {
                pid, exec: true, ..
            } => {
                self.areas.insert(pid, Arc::default());
            }
            Event::Exit(Task { pid, tid, .. }) if pid == tid => {
                // Others of its threads may go on: procfs has them then.
                if let Some(areas) = self.areas.get_mut(&pid) {
                    Arc::make_mut(areas).asked = None;
                }
            }
            Event::Map(map) => {
                let areas = Arc::make_mut(self.areas.entry(map.pid).or_default());
                self.counts.dropped_mappings += areas.add(&map);
            }
            _ => {}
        }
    }

    /// What is known of a process in this round.
    pub(super) fn view(&mut self, pid: u32) -> View {
        let asked = |areas: &Arc<Areas>| areas.asked.is_some();
        if !self.areas.get(&pid).is_some_and(asked) {
            self.ask(pid);
        }
        View {
            said: self.said.get(&pid).cloned().unwrap_or_default(),
            areas: self.areas.get(&pid).cloned().unwrap_or_default(),
        }
    }

    /// The memory of a process, read anew, unless it was read in this round.
    fn ask(&mut self, pid: u32) -> Arc<Areas> {
        let areas = self.areas.entry(pid).or_default();
        if areas.asked != Some(self.round) {
            let dropped = Arc::make_mut(areas).ask(&self.proc, pid, self.round);
            self.counts.dropped_mappings += dropped;
        }
        Arc::clone(areas)
    }

    /// Makes ready for samples: all markers of this round were handled.
    pub fn settle(&mut self) {
        let horizon = self.latest.saturating_sub(KEPT);
        for said in self.said.values_mut() {
            let old = |thread: &Thread| thread.is_blank(horizon) || thread.has_old(horizon);
            if !said.tags.has_old(horizon) && !said.threads.values().any(old) {
                continue;
            }
            let said = Arc::make_mut(said);
            said.tags.forget(horizon);
            said.threads.retain(|_, thread| {
                thread.forget(horizon);
                !thread.is_blank(horizon)
            });
        }
        let mut sets = HashSet::new();
        let kept = { self.said.values() }.map(|said| {
            let threads = said.threads.values().map(Thread::kept).sum::<usize>();
            1 + threads + said.tags.kept(&mut sets)
        });
        self.room.counted(kept.sum());
    }

    /// Ends a round: forgets processes that ended long ago.
    pub(super) fn round_ends(&mut self) {
        let horizon = self.latest.saturating_sub(KEPT);
        self.said.retain(|_, said| {
            let over = said.ended.is_some_and(|ended| ended < horizon);
            !over || said.tags.count() > 0
        });
        // Memory is learnt also of processes without samples. Of one that has ended it is kept up
        // to the next look: its last samples may come in later rounds.
        if self.round.is_multiple_of(600) {
            let is_gone = |pid: &u32| !self.proc.join(pid.to_string()).exists();
            let gone: HashSet<u32> = self.areas.keys().copied().filter(is_gone).collect();
            self.areas
                .retain(|pid, _| !(gone.contains(pid) && self.gone.contains(pid)));
            self.gone = gone;
        }
        self.names.round_ends();
        self.round += 1;
    }

    /// What became of the markers.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The tags so far, those that hold last. Those that a child has of its parent are listed once.
    #[must_use]
    pub fn tags(&self) -> Vec<Of<Tag>> {
        self.tags.with(self.live_tags())
    }

    /// The phases so far, those that are open last.
    #[must_use]
    pub fn phases(&self) -> Vec<Of<Phase>> {
        self.phases.with(self.open_phases())
    }

    /// The tags and phases that have ended or begun since the last call; some of those that hold
    /// come twice.
    #[must_use]
    pub fn news(&mut self) -> (Vec<Of<Tag>>, Vec<Of<Phase>>) {
        let (live, open) = (self.live_tags(), self.open_phases());
        let tags = self.tags.news(live, self.latest);
        (tags, self.phases.news(open, self.latest))
    }

    fn live_tags(&self) -> Vec<Of<Tag>> {
        let live = { &self.said }.iter().flat_map(|(pid, said)| {
            said.tags.own().map(|tag| Of {
                pid: *pid,
                tid: *pid,
                is: tag.clone(),
            })
        });
        let mut live: Vec<_> = live.collect();
        live.sort_by_key(|of| (of.is.since, of.pid, of.is.start));
        live
    }

    fn open_phases(&self) -> Vec<Of<Phase>> {
        let open = { &self.said }.iter().flat_map(|(pid, said)| {
            let threads = said.threads.iter();
            threads.flat_map(|(tid, thread)| {
                thread.open().iter().map(|phase| Of {
                    pid: *pid,
                    tid: *tid,
                    is: phase.clone(),
                })
            })
        });
        let mut open: Vec<_> = open.collect();
        open.sort_by_key(|of| (of.is.since, of.tid));
        open
    }

    /// The region and the phase of an access of a thread at a moment, or now; after
    /// [`Self::settle`].
    #[must_use]
    pub fn place(
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

/// What a process that lives has said.
fn speaking(said: &mut HashMap<u32, Arc<Said>>, pid: u32) -> &mut Said {
    let said = Arc::make_mut(said.entry(pid).or_default());
    said.ended = None;
    said
}

fn list<T: Begun + Clone>(
    into: &mut Listed<T>,
    ended: impl Iterator<Item = Of<T>>,
    counts: &mut Counts,
) {
    counts.unlisted += into.add(ended);
}
