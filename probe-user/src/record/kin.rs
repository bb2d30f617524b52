//! Which processes are recorded where events sample all tasks of a CPU: a command from its exec on,
//! or a process, and what it starts.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use super::Target;
use crate::sys::records::{Event, Task};

/// Since when a process with this id is recorded, or another one is not, in rising order of time.
type Lives = Vec<(u64, bool)>;

/// The processes of a target.
#[derive(Debug)]
pub(super) struct Kin {
    lives: HashMap<u32, Lives>,
    /// A command that has not made its exec.
    waiting: Option<u32>,
    /// Those whose first thread ended in the last round, and in this one: others may go on.
    ended: [HashSet<u32>; 2],
    proc: PathBuf,
}

impl Kin {
    /// None where these are those of a cgroup.
    pub(super) fn of(target: &Target, proc: &Path) -> Option<Self> {
        let (lives, waiting) = match target {
            Target::Cgroup(_) => return None,
            Target::Command(pid) => (HashMap::new(), Some(*pid)),
            Target::Process(pid) => (HashMap::from([(*pid, vec![(0, true)])]), None),
        };
        Some(Self {
            lives,
            waiting,
            ended: Default::default(),
            proc: proc.to_owned(),
        })
    }

    /// Whether a process is one of them at a time, in ns of the records' clock.
    pub(super) fn has(&self, pid: u32, time: u64) -> bool {
        let lives = self.lives.get(&pid);
        let last = lives.and_then(|lives| lives.iter().rev().find(|(since, _)| *since <= time));
        last.is_some_and(|(_, is)| *is)
    }

    /// Handles a record about a task, and says whether it is about one of them. They come in rising
    /// order of time.
    pub(super) fn learn(&mut self, event: &Event<'_>, time: u64) -> bool {
        let pid = match *event {
            Event::Fork(Task { pid, parent, .. }) => {
                if pid != parent {
                    self.begin(pid, time, self.has(parent, time));
                }
                pid
            }
            Event::Comm { pid, exec, .. } => {
                if exec && self.waiting == Some(pid) {
                    self.waiting = None;
                    self.begin(pid, time, true);
                }
                pid
            }
            Event::Exit(Task { pid, tid, .. }) => {
                if pid == tid && self.has(pid, time) {
                    self.ended[1].insert(pid);
                }
                pid
            }
            Event::Map(map) => map.pid,
            Event::Aux { .. } | Event::Lost(_) | Event::KernelCode | Event::Other => return false,
        };
        self.has(pid, time)
    }

    fn begin(&mut self, pid: u32, time: u64, is: bool) {
        if is {
            self.lives.entry(pid).or_default().push((time, true));
        } else if let Some(lives) = self.lives.get_mut(&pid) {
            lives.push((time, false));
        }
    }

    /// Ends a round: samples of the rounds before it were all read.
    pub(super) fn round_ends(&mut self) {
        let [old, _] = &self.ended;
        for pid in old {
            if !self.proc.join(pid.to_string()).exists() {
                self.lives.remove(pid);
            }
        }
        self.lives.retain(|_, lives| {
            lives.drain(..lives.len().saturating_sub(1));
            lives.last().is_some_and(|(_, is)| *is)
        });
        self.ended.swap(0, 1);
        self.ended[1].clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tree::Tree;

    fn fork(kin: &mut Kin, time: u64, parent: u32, pid: u32) {
        let task = Task {
            pid,
            tid: pid,
            parent,
            parent_tid: parent,
        };
        kin.learn(&Event::Fork(task), time);
    }

    fn exit(kin: &mut Kin, time: u64, pid: u32) {
        let task = Task {
            pid,
            tid: pid,
            parent: 1,
            parent_tid: 1,
        };
        kin.learn(&Event::Exit(task), time);
    }

    #[test]
    fn a_command_is_recorded_from_its_exec_on_with_what_it_starts() {
        let proc = Tree::new();
        let mut kin = Kin::of(&Target::Command(7), proc.path()).unwrap();
        fork(&mut kin, 5, 7, 8);
        let comm = |pid| Event::Comm {
            pid,
            tid: pid,
            name: b"x",
            exec: true,
        };
        assert!(!kin.learn(&comm(6), 9));
        assert!(kin.learn(&comm(7), 10));
        fork(&mut kin, 20, 7, 9);
        fork(&mut kin, 30, 9, 10);
        fork(&mut kin, 30, 8, 11);
        let has = [
            (7, 9),
            (7, 10),
            (8, 99),
            (9, 19),
            (9, 20),
            (10, 30),
            (11, 99),
        ];
        let has = has.map(|(pid, time)| kin.has(pid, time));
        assert_eq!(has, [false, true, false, false, true, true, false]);
    }

    /// An id is given out again, in the same round or later.
    #[test]
    fn an_id_that_is_another_process_now_is_not_recorded() {
        let proc = Tree::new();
        proc.write("7/comm", "x");
        let mut kin = Kin::of(&Target::Process(7), proc.path()).unwrap();
        fork(&mut kin, 10, 7, 8);
        exit(&mut kin, 20, 8);
        fork(&mut kin, 30, 1, 8);
        assert_eq!([25, 30].map(|time| kin.has(8, time)), [true, false]);
        kin.round_ends();
        assert!(!kin.has(8, 40));
        // Its first thread ends; others go on.
        exit(&mut kin, 50, 7);
        kin.round_ends();
        kin.round_ends();
        assert!(kin.has(7, 60));
        exit(&mut kin, 70, 7);
        std::fs::remove_dir_all(proc.join("7")).unwrap();
        kin.round_ends();
        assert!(
            kin.has(7, 70),
            "its last samples may come in the next round"
        );
        kin.round_ends();
        assert!(!kin.has(7, 70));
        assert!(kin.lives.is_empty());
    }
}
