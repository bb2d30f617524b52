//! Process, name and cgroup of each thread id: from the COMM, FORK and EXIT records of the rings,
//! and from procfs for threads that existed before.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{TaskInfo, drain::Incarnations, wire::Stamp};
use crate::{
    machine::cgroup::{DELETED_SUFFIX, path_of_process},
    sys::records::{PerfRecord, Task},
};

/// A process and name that a thread id has from a time on.
#[derive(Clone, Debug)]
struct Incarnation {
    /// ns of perf's clock.
    since: u64,
    pid: u32,
    name: Arc<str>,
}

#[derive(Debug, Default)]
struct Thread {
    /// In ascending order of `since`; never empty.
    incarnations: Vec<Incarnation>,
    /// The round in which the thread exited. Its samples may be in a buffer until the end of the
    /// next round.
    ended: Option<u64>,
}

/// The cached cgroup of a process.
#[derive(Debug)]
struct ProcessCgroup {
    path: Option<Arc<str>>,
    /// The round in which the path was read; None if it was inherited from the parent.
    read_in: Option<u64>,
    /// The round in which the path was last used.
    used_in: u64,
}

/// All threads seen so far.
#[derive(Debug)]
pub(super) struct Tasks {
    threads: HashMap<u32, Thread>,
    cgroups: HashMap<u32, ProcessCgroup>,
    /// Threads that procfs did not have in this round.
    unknown: HashSet<u32>,
    proc: PathBuf,
    round: u64,
}

impl Tasks {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            threads: HashMap::new(),
            cgroups: HashMap::new(),
            unknown: HashSet::new(),
            proc: proc.to_owned(),
            round: 0,
        }
    }

    /// Handles a record about a thread. Within a round, records come in ascending order of time.
    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>, stamp: Stamp) {
        match *event {
            PerfRecord::Comm { pid, tid, name, .. } => {
                let name = String::from_utf8_lossy(name).into();
                self.add_incarnation(tid, stamp.time, pid, name);
            }
            PerfRecord::Fork(Task {
                pid,
                tid,
                parent_tid,
                ..
            }) => {
                let parent = self.incarnation_at(parent_tid, Some(stamp.time)).cloned();
                let name = match &parent {
                    Some(parent) => Arc::clone(&parent.name),
                    None => name_of(&self.proc, tid).unwrap_or_else(|| "".into()),
                };
                self.add_incarnation(tid, stamp.time, pid, name);
                // A new process starts in its parent's cgroup.
                let path = parent.and_then(|parent| self.cgroup(parent.pid));
                let cgroup = ProcessCgroup {
                    path,
                    read_in: None,
                    used_in: self.round,
                };
                if tid == pid {
                    // The id may have belonged to a process that has ended.
                    self.cgroups.insert(pid, cgroup);
                } else {
                    self.cgroups.entry(pid).or_insert(cgroup);
                }
            }
            PerfRecord::Exit(Task { tid, .. }) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.ended = Some(self.round);
                }
            }
            PerfRecord::Aux { .. }
            | PerfRecord::Lost(_)
            | PerfRecord::Map(_)
            | PerfRecord::KernelCode
            | PerfRecord::Other => {}
        }
    }

    fn add_incarnation(&mut self, tid: u32, since: u64, pid: u32, name: Arc<str>) {
        let thread = self.threads.entry(tid).or_default();
        thread.ended = None;
        let at = thread
            .incarnations
            .partition_point(|incarnation| incarnation.since <= since);
        thread
            .incarnations
            .insert(at, Incarnation { since, pid, name });
    }

    fn incarnation_at(&self, tid: u32, time: Option<u64>) -> Option<&Incarnation> {
        let incarnations = &self.threads.get(&tid)?.incarnations;
        let found = match time {
            Some(time) => incarnations
                .iter()
                .rev()
                .find(|incarnation| incarnation.since <= time),
            None => incarnations.last(),
        };
        // For times before the first record, the first incarnation is the best guess.
        found.or(incarnations.first())
    }

    /// Process and name of a thread at `time` (ns of perf's clock), or now.
    #[cfg(test)]
    fn task(&mut self, tid: u32, time: Option<u64>) -> Option<TaskInfo> {
        let incarnations = self.incarnations(tid)?;
        Some((**super::drain::at_time(&incarnations, time)).clone())
    }

    /// All incarnations of a thread id, never empty; None if the thread is unknown.
    pub(super) fn incarnations(&mut self, tid: u32) -> Option<Incarnations> {
        if !self.threads.contains_key(&tid) {
            if self.unknown.contains(&tid) {
                return None;
            }
            match (process_of(&self.proc, tid), name_of(&self.proc, tid)) {
                (Some(pid), Some(name)) => self.add_incarnation(tid, 0, pid, name),
                _ => {
                    self.unknown.insert(tid);
                    return None;
                }
            }
        }
        let incarnations = self
            .threads
            .get(&tid)?
            .incarnations
            .clone()
            .into_iter()
            .map(|Incarnation { since, pid, name }| {
                let cgroup = self.cgroup(pid);
                (since, Arc::new(TaskInfo { pid, name, cgroup }))
            });
        Some(incarnations.collect())
    }

    /// The cgroup of a process, read from procfs once a round. A process that is gone keeps its
    /// last cgroup.
    fn cgroup(&mut self, pid: u32) -> Option<Arc<str>> {
        let is_fresh = |cached: &&ProcessCgroup| cached.read_in == Some(self.round);
        if let Some(cached) = self.cgroups.get(&pid).filter(is_fresh) {
            return cached.path.clone();
        }
        let read = path_of_process(&self.proc.join(pid.to_string()))
            .as_deref()
            .ok()
            .map(|path| Arc::from(path.strip_suffix(DELETED_SUFFIX).unwrap_or(path)));
        // The kernel shows dead processes in the root cgroup, so `/` replaces a known path only
        // while the process runs.
        let is_dead = || process_of(&self.proc, pid).is_none();
        let round = self.round;
        let cached = self.cgroups.entry(pid).or_insert(ProcessCgroup {
            path: None,
            read_in: None,
            used_in: round,
        });
        (cached.read_in, cached.used_in) = (Some(round), round);
        match read {
            Some(path) if &*path != "/" || cached.path.is_none() => cached.path = Some(path),
            Some(path) if !is_dead() => cached.path = Some(path),
            _ => {}
        }
        cached.path.clone()
    }

    /// Threads without an EXIT record.
    pub(super) fn living(&self) -> impl Iterator<Item = u32> {
        let living = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.ended.is_none());
        living.map(|(tid, _)| *tid)
    }

    /// Ends a round in which all buffers were read: forgets threads that exited two rounds ago, and
    /// keeps the last two incarnations of each thread.
    pub(super) fn end_round(&mut self) {
        let round = self.round;
        self.threads
            .retain(|_, thread| thread.ended.is_none_or(|ended| ended + 2 > round));
        for thread in self.threads.values_mut() {
            let old = thread.incarnations.len().saturating_sub(2);
            thread.incarnations.drain(..old);
        }
        self.cgroups.retain(|_, cached| cached.used_in + 64 > round);
        self.unknown.clear();
        self.round += 1;
    }
}

/// The process of a thread; None if the thread is gone or a zombie.
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
    use test_support::Tree;

    use super::*;

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
        tasks.on_record(&PerfRecord::Fork(task), stamp(time));
    }

    fn comm(tasks: &mut Tasks, time: u64, pid: u32, name: &[u8]) {
        let tid = pid;
        let exec = false;
        tasks.on_record(
            &PerfRecord::Comm {
                pid,
                tid,
                name,
                exec,
            },
            stamp(time),
        );
    }

    fn pid_and_name(tasks: &mut Tasks, tid: u32, time: u64) -> Option<(u32, String)> {
        let task = tasks.task(tid, Some(time))?;
        Some((task.pid, task.name.to_string()))
    }

    fn write_process(proc: &Tree, pid: u32, state: &str, cgroup: &str) {
        proc.write(&format!("{pid}/comm"), "shell\n");
        let status = format!("Name:\tshell\nState:\t{state}\nTgid:\t{pid}\n");
        proc.write(&format!("{pid}/status"), status);
        let cgroups = format!("5:cpu:/x\n0::{cgroup}\n");
        proc.write(&format!("{pid}/cgroup"), cgroups);
    }

    #[test]
    fn a_name_applies_from_its_time_on() {
        let proc = Tree::new();
        write_process(&proc, 10, "S (sleeping)", "/a");
        let mut tasks = Tasks::new(proc.path());
        assert_eq!(pid_and_name(&mut tasks, 10, 5), Some((10, "shell".into())));
        fork(&mut tasks, 100, 20, 20, 10);
        comm(&mut tasks, 200, 20, b"make");
        fork(&mut tasks, 300, 20, 21, 20);
        assert_eq!(
            pid_and_name(&mut tasks, 20, 150),
            Some((20, "shell".into()))
        );
        assert_eq!(pid_and_name(&mut tasks, 20, 200), Some((20, "make".into())));
        assert_eq!(pid_and_name(&mut tasks, 21, 300), Some((20, "make".into())));
        assert_eq!(pid_and_name(&mut tasks, 22, 300), None);
        assert_eq!(tasks.task(20, None).unwrap().cgroup.as_deref(), Some("/a"));
    }

    /// The new process ends before its own cgroup is read.
    #[test]
    fn a_process_with_a_reused_id_has_its_parents_cgroup() {
        let proc = Tree::new();
        write_process(&proc, 10, "S (sleeping)", "/a");
        write_process(&proc, 20, "S (sleeping)", "/b");
        let mut tasks = Tasks::new(proc.path());
        let cgroup = |tasks: &mut Tasks| tasks.task(20, None).unwrap().cgroup;
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/b"));
        fs::remove_dir_all(proc.path().join("20")).unwrap();
        assert_eq!(pid_and_name(&mut tasks, 10, 90), Some((10, "shell".into())));
        // A new thread of the old process keeps the old cgroup.
        fork(&mut tasks, 100, 20, 21, 20);
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/b"));
        fork(&mut tasks, 200, 20, 20, 10);
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/a"));
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
        tasks.on_record(&PerfRecord::Exit(task), stamp(2));
        tasks.end_round();
        assert_eq!(pid_and_name(&mut tasks, 30, 2), Some((30, "short".into())));
        tasks.end_round();
        tasks.end_round();
        assert_eq!(pid_and_name(&mut tasks, 30, 2), None);
        // The id is reused.
        comm(&mut tasks, 9, 30, b"next");
        assert_eq!(pid_and_name(&mut tasks, 30, 9), Some((30, "next".into())));
    }

    #[test]
    fn a_cgroup_is_read_each_round_and_kept_after_the_process_exits() {
        let proc = Tree::new();
        write_process(&proc, 40, "R (running)", "/a");
        let mut tasks = Tasks::new(proc.path());
        let cgroup = |tasks: &mut Tasks| {
            let task = tasks.task(40, None).unwrap();
            task.cgroup.map(|path| path.to_string())
        };
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/a"));
        write_process(&proc, 40, "R (running)", "/b");
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/a"));
        tasks.end_round();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/b"));
        // The kernel shows a zombie in the root cgroup, but the last known one is kept.
        write_process(&proc, 40, "Z (zombie)", "/");
        tasks.end_round();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/b"));
        write_process(&proc, 40, "R (running)", "/");
        tasks.end_round();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/"));
        fs::remove_dir_all(proc.join("40")).unwrap();
        tasks.end_round();
        assert_eq!(cgroup(&mut tasks).as_deref(), Some("/"));
    }
}
