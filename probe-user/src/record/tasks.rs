//! Process, name and cgroup of a thread id: from the fork, name and exit records of the rings, and
//! from procfs for threads that existed before.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Who, drain::Lives, wire::Stamp};
use crate::{
    machine::cgroup::{GONE, of_process},
    sys::records::{Event, Task},
};

/// The time for which a thread had one name.
#[derive(Clone, Debug)]
struct Life {
    /// ns of perf's clock.
    since: u64,
    pid: u32,
    name: Arc<str>,
}

#[derive(Debug, Default)]
struct Thread {
    /// In rising order of `since`; never empty.
    lives: Vec<Life>,
    /// The round in which it ended: samples of it may be in a buffer until the end of the next one.
    ended: Option<u64>,
}

/// The cgroup of a process, as of some round.
#[derive(Debug)]
struct TaskState {
    path: Option<Arc<str>>,
    /// The round in which it was read; none where it was taken from the parent.
    asked: Option<u64>,
    /// The round in which it was last wanted.
    used: u64,
}

/// All threads met so far.
#[derive(Debug)]
pub(super) struct Tasks {
    threads: HashMap<u32, Thread>,
    places: HashMap<u32, TaskState>,
    /// Threads that procfs did not know in this round.
    strangers: HashSet<u32>,
    proc: PathBuf,
    round: u64,
}

impl Tasks {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            threads: HashMap::new(),
            places: HashMap::new(),
            strangers: HashSet::new(),
            proc: proc.to_owned(),
            round: 0,
        }
    }

    /// Handles a record about a thread. Within a round records come in rising order of time.
    pub(super) fn learn(&mut self, event: &Event<'_>, stamp: Stamp) {
        match *event {
            Event::Comm { pid, tid, name, .. } => {
                let name = String::from_utf8_lossy(name).into();
                self.live(tid, stamp.time, pid, name);
            }
            Event::Fork(Task {
                pid,
                tid,
                parent_tid,
                ..
            }) => {
                let parent = self.life(parent_tid, Some(stamp.time)).cloned();
                let name = match &parent {
                    Some(parent) => Arc::clone(&parent.name),
                    None => name_of(&self.proc, tid).unwrap_or_else(|| "".into()),
                };
                self.live(tid, stamp.time, pid, name);
                // A new process begins in its parent's cgroup.
                let place = parent.and_then(|parent| self.cgroup(parent.pid));
                let used = self.round;
                self.places.entry(pid).or_insert(TaskState {
                    path: place,
                    asked: None,
                    used,
                });
            }
            Event::Exit(Task { tid, .. }) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.ended = Some(self.round);
                }
            }
            Event::Aux { .. }
            | Event::Lost(_)
            | Event::Map(_)
            | Event::KernelCode
            | Event::Other => {}
        }
    }

    fn live(&mut self, tid: u32, since: u64, pid: u32, name: Arc<str>) {
        let thread = self.threads.entry(tid).or_default();
        thread.ended = None;
        let at = thread.lives.partition_point(|life| life.since <= since);
        thread.lives.insert(at, Life { since, pid, name });
    }

    fn life(&self, tid: u32, time: Option<u64>) -> Option<&Life> {
        let lives = &self.threads.get(&tid)?.lives;
        let known = match time {
            Some(time) => lives.iter().rev().find(|life| life.since <= time),
            None => lives.last(),
        };
        // Before the first record its name is the best guess.
        known.or(lives.first())
    }

    /// Who the thread was at `time` (ns of perf's clock), or is.
    #[cfg(test)]
    fn who(&mut self, tid: u32, time: Option<u64>) -> Option<Who> {
        let lives = self.lives(tid)?;
        Some((**super::drain::at_time(&lives, time)).clone())
    }

    /// Whom the thread was since when; never empty.
    pub(super) fn lives(&mut self, tid: u32) -> Option<Lives> {
        if !self.threads.contains_key(&tid) {
            if self.strangers.contains(&tid) {
                return None;
            }
            match (process_of(&self.proc, tid), name_of(&self.proc, tid)) {
                (Some(pid), Some(name)) => self.live(tid, 0, pid, name),
                _ => {
                    self.strangers.insert(tid);
                    return None;
                }
            }
        }
        let lives = self.threads.get(&tid)?.lives.clone();
        let lives = lives.into_iter().map(|Life { since, pid, name }| {
            let cgroup = self.cgroup(pid);
            (since, Arc::new(Who { pid, name, cgroup }))
        });
        Some(lives.collect())
    }

    /// The cgroup of a process, read once a round. A process that is gone keeps the last one.
    fn cgroup(&mut self, pid: u32) -> Option<Arc<str>> {
        let fresh = |place: &&TaskState| place.asked == Some(self.round);
        if let Some(place) = self.places.get(&pid).filter(fresh) {
            return place.path.clone();
        }
        let read = of_process(&self.proc.join(pid.to_string()));
        let read = read.as_deref().ok();
        let read = read.map(|path| Arc::from(path.strip_suffix(GONE).unwrap_or(path)));
        // The kernel shows dead processes in the root: such a path is used only if none is known.
        let dead = || process_of(&self.proc, pid).is_none();
        let round = self.round;
        let place = self.places.entry(pid).or_insert(TaskState {
            path: None,
            asked: None,
            used: round,
        });
        (place.asked, place.used) = (Some(round), round);
        match read {
            Some(path) if &*path != "/" || place.path.is_none() => place.path = Some(path),
            Some(path) if !dead() => place.path = Some(path),
            _ => {}
        }
        place.path.clone()
    }

    /// The threads that have not ended, as far as is known.
    pub(super) fn living(&self) -> impl Iterator<Item = u32> {
        let living = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.ended.is_none());
        living.map(|(tid, _)| *tid)
    }

    /// Ends a round in which all buffers were read: forgets threads that ended two rounds ago, and
    /// all but the last name of each thread.
    pub(super) fn round_ends(&mut self) {
        let round = self.round;
        self.threads
            .retain(|_, thread| thread.ended.is_none_or(|ended| ended + 2 > round));
        for thread in self.threads.values_mut() {
            let old = thread.lives.len().saturating_sub(2);
            thread.lives.drain(..old);
        }
        self.places.retain(|_, place| place.used + 64 > round);
        self.strangers.clear();
        self.round += 1;
    }
}

/// The process that a thread belongs to; none where it is gone or a zombie.
fn process_of(proc: &Path, tid: u32) -> Option<u32> {
    let status = fs::read_to_string(proc.join(format!("{tid}/status"))).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    if field("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X'])) {
        return None;
    }
    field("Tgid:")?.trim().parse().ok()
}

fn name_of(proc: &Path, tid: u32) -> Option<Arc<str>> {
    let name = fs::read(proc.join(format!("{tid}/comm"))).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tree::Tree;

    fn stamp(time: u64) -> Stamp {
        Stamp {
            time,
            ..Stamp::default()
        }
    }

    fn fork(tasks: &mut Tasks, time: u64, pid: u32, tid: u32, parent_tid: u32) {
        let task = Task {
            pid,
            tid,
            parent: 1,
            parent_tid,
        };
        tasks.learn(&Event::Fork(task), stamp(time));
    }

    fn comm(tasks: &mut Tasks, time: u64, pid: u32, name: &[u8]) {
        let tid = pid;
        let exec = false;
        tasks.learn(
            &Event::Comm {
                pid,
                tid,
                name,
                exec,
            },
            stamp(time),
        );
    }

    fn name(tasks: &mut Tasks, tid: u32, time: u64) -> Option<(u32, String)> {
        let who = tasks.who(tid, Some(time))?;
        Some((who.pid, who.name.to_string()))
    }

    fn place(proc: &Tree, pid: u32, state: &str, cgroup: &str) {
        proc.write(&format!("{pid}/comm"), "shell\n");
        let status = format!("Name:\tshell\nState:\t{state}\nTgid:\t{pid}\n");
        proc.write(&format!("{pid}/status"), status);
        let cgroups = format!("5:cpu:/x\n0::{cgroup}\n");
        proc.write(&format!("{pid}/cgroup"), cgroups);
    }

    #[test]
    fn a_name_holds_from_its_time_on() {
        let proc = Tree::new();
        place(&proc, 10, "S (sleeping)", "/a");
        let mut tasks = Tasks::new(proc.path());
        assert_eq!(name(&mut tasks, 10, 5), Some((10, "shell".into())));
        fork(&mut tasks, 100, 20, 20, 10);
        comm(&mut tasks, 200, 20, b"make");
        fork(&mut tasks, 300, 20, 21, 20);
        assert_eq!(name(&mut tasks, 20, 150), Some((20, "shell".into())));
        assert_eq!(name(&mut tasks, 20, 200), Some((20, "make".into())));
        assert_eq!(name(&mut tasks, 21, 300), Some((20, "make".into())));
        assert_eq!(name(&mut tasks, 22, 300), None);
        assert_eq!(tasks.who(20, None).unwrap().cgroup.as_deref(), Some("/a"));
    }

    #[test]
    fn a_thread_is_known_until_its_last_records_were_read() {
        let proc = Tree::new();
        let mut tasks = Tasks::new(proc.path());
        comm(&mut tasks, 1, 30, b"short");
        let task = Task {
            pid: 30,
            tid: 30,
            parent: 1,
            parent_tid: 1,
        };
        tasks.learn(&Event::Exit(task), stamp(2));
        tasks.round_ends();
        assert_eq!(name(&mut tasks, 30, 2), Some((30, "short".into())));
        tasks.round_ends();
        tasks.round_ends();
        assert_eq!(name(&mut tasks, 30, 2), None);
        // The number is given out again.
        comm(&mut tasks, 9, 30, b"next");
        assert_eq!(name(&mut tasks, 30, 9), Some((30, "next".into())));
    }

    #[test]
    fn a_cgroup_is_asked_for_each_round_and_kept_when_the_process_is_gone() {
        let proc = Tree::new();
        place(&proc, 40, "R (running)", "/a");
        let mut tasks = Tasks::new(proc.path());
        let cgroup = |tasks: &mut Tasks| {
            let who = tasks.who(40, None).unwrap();
            who.cgroup.map(|path| path.to_string())
        };
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/a"));
        place(&proc, 40, "R (running)", "/b");
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/a"));
        tasks.round_ends();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/b"));
        // The kernel shows a zombie in the root.
        place(&proc, 40, "Z (zombie)", "/");
        tasks.round_ends();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/b"));
        place(&proc, 40, "R (running)", "/");
        tasks.round_ends();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/"));
        fs::remove_dir_all(proc.join("40")).unwrap();
        tasks.round_ends();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/"));
    }
}
