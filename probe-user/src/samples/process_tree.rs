//! Tracks which processes belong to the target if events sample all tasks of a CPU. The target is a
//! command from its exec on, or a process, with all descendants.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use super::RecordTarget;
use crate::sys::records::{PerfRecord, Task};

/// Changes of a process id's membership in the target, in ascending order of time: each is the
/// time, and whether the id belongs to the target from then on.
type Membership = Vec<(u64, bool)>;

/// A target process and its descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    members: HashMap<u32, Membership>,
    /// The target command, before its exec.
    awaiting_exec: Option<u32>,
    /// Processes whose main thread exited: in the previous round, and in this round. Their other
    /// threads may still run.
    ended: [HashSet<u32>; 2],
    proc: PathBuf,
}

impl ProcessTree {
    /// The tree of a command or process; None for a cgroup, which
    /// [`Subtree`](super::subtree::Subtree) tracks.
    pub(super) fn for_target(target: &RecordTarget, proc: &Path) -> Option<Self> {
        let (members, awaiting_exec) = match target {
            RecordTarget::Cgroup(_) => return None,
            RecordTarget::Command(pid) => (HashMap::new(), Some(*pid)),
            RecordTarget::Process(pid) => (HashMap::from([(*pid, vec![(0, true)])]), None),
        };
        Some(Self {
            members,
            awaiting_exec,
            ended: Default::default(),
            proc: proc.to_owned(),
        })
    }

    /// Whether a process belongs to the target at `time`, in ns of the records' clock.
    pub(super) fn has(&self, pid: u32, time: u64) -> bool {
        let changes = self.members.get(&pid);
        let last =
            changes.and_then(|changes| changes.iter().rev().find(|(since, _)| *since <= time));
        last.is_some_and(|(_, is_member)| *is_member)
    }

    /// Handles a record about a task. Returns whether its process belongs to the target. Records
    /// come in ascending order of time.
    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>, time: u64) -> bool {
        let pid = match *event {
            PerfRecord::Fork(Task { pid, parent, .. }) => {
                if pid != parent {
                    self.add(pid, time, self.has(parent, time));
                }
                pid
            }
            PerfRecord::Comm { pid, exec, .. } => {
                if exec && self.awaiting_exec == Some(pid) {
                    self.awaiting_exec = None;
                    self.add(pid, time, true);
                }
                pid
            }
            PerfRecord::Exit(Task { pid, tid, .. }) => {
                if pid == tid && self.has(pid, time) {
                    self.ended[1].insert(pid);
                }
                pid
            }
            PerfRecord::Map(map) => map.pid,
            PerfRecord::Aux { .. }
            | PerfRecord::Lost(_)
            | PerfRecord::KernelCode
            | PerfRecord::Other => return false,
        };
        self.has(pid, time)
    }

    fn add(&mut self, pid: u32, time: u64, is_member: bool) {
        if is_member {
            self.members.entry(pid).or_default().push((time, true));
        } else if let Some(changes) = self.members.get_mut(&pid) {
            changes.push((time, false));
        }
    }

    /// Ends a round. Forgets processes that ended in the previous round, since all their samples
    /// have been read, unless procfs still has them. Keeps only the last change of each process id.
    pub(super) fn end_round(&mut self) {
        let [previous_round, _] = &self.ended;
        for pid in previous_round {
            if !self.proc.join(pid.to_string()).exists() {
                self.members.remove(pid);
            }
        }
        self.members.retain(|_, changes| {
            changes.drain(..changes.len().saturating_sub(1));
            changes.last().is_some_and(|(_, is_member)| *is_member)
        });
        self.ended.swap(0, 1);
        self.ended[1].clear();
    }
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    fn fork(process_tree: &mut ProcessTree, time: u64, parent: u32, pid: u32) {
        let task = Task {
            pid,
            tid: pid,
            parent,
            parent_tid: parent,
        };
        process_tree.on_record(&PerfRecord::Fork(task), time);
    }

    fn exit(process_tree: &mut ProcessTree, time: u64, pid: u32) {
        let task = Task {
            pid,
            tid: pid,
            parent: 1,
            parent_tid: 1,
        };
        process_tree.on_record(&PerfRecord::Exit(task), time);
    }

    #[test]
    fn a_command_is_recorded_from_its_exec_with_its_descendants() {
        let proc = Tree::new();
        let mut process_tree =
            ProcessTree::for_target(&RecordTarget::Command(7), proc.path()).unwrap();
        fork(&mut process_tree, 5, 7, 8);
        let comm = |pid| PerfRecord::Comm {
            pid,
            tid: pid,
            name: b"x",
            exec: true,
        };
        assert!(!process_tree.on_record(&comm(6), 9));
        assert!(process_tree.on_record(&comm(7), 10));
        fork(&mut process_tree, 20, 7, 9);
        fork(&mut process_tree, 30, 9, 10);
        fork(&mut process_tree, 30, 8, 11);
        let pids_and_times = [
            (7, 9),
            (7, 10),
            (8, 99),
            (9, 19),
            (9, 20),
            (10, 30),
            (11, 99),
        ];
        let is_member = pids_and_times.map(|(pid, time)| process_tree.has(pid, time));
        assert_eq!(is_member, [false, true, false, false, true, true, false]);
    }

    /// A process id is reused, in the same round or later.
    #[test]
    fn a_process_with_a_reused_id_is_not_recorded() {
        let proc = Tree::new();
        proc.write("7/comm", "x");
        let mut process_tree =
            ProcessTree::for_target(&RecordTarget::Process(7), proc.path()).unwrap();
        fork(&mut process_tree, 10, 7, 8);
        exit(&mut process_tree, 20, 8);
        fork(&mut process_tree, 30, 1, 8);
        assert_eq!(
            [25, 30].map(|time| process_tree.has(8, time)),
            [true, false]
        );
        process_tree.end_round();
        assert!(!process_tree.has(8, 40));
        // The main thread of process 7 exits; procfs still has the process, so other threads run.
        exit(&mut process_tree, 50, 7);
        process_tree.end_round();
        process_tree.end_round();
        assert!(process_tree.has(7, 60));
        exit(&mut process_tree, 70, 7);
        std::fs::remove_dir_all(proc.join("7")).unwrap();
        process_tree.end_round();
        assert!(
            process_tree.has(7, 70),
            "its last samples may come in the next round"
        );
        process_tree.end_round();
        assert!(!process_tree.has(7, 70));
        assert!(process_tree.members.is_empty());
    }
}
