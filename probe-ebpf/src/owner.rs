//! The owner of a task's time: its cgroup, also its process where rows are by process, or a command
//! that is followed.

use aya_ebpf::{Global, bindings::BPF_F_NO_PREALLOC, macros::map, maps::HashMap};
use probe_common::CgroupId;

use crate::kernel::Task;

/// Whom a slice belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) cgroup: CgroupId,
    pub(crate) tgid: u32,
}

/// 1: rows are keyed by process as well; 2: those of memory accesses are not.
#[unsafe(no_mangle)]
pub(crate) static BY_PROCESS: Global<u8> = Global::new(0);

/// 1: processes in COMMAND, and their children, own their slices under [`CgroupId::COMMAND`].
#[unsafe(no_mangle)]
pub(crate) static FOLLOW_COMMAND: Global<u8> = Global::new(0);

/// Processes of a command that could not be given a cgroup of its own. User space sets the size.
#[map]
pub(crate) static COMMAND: HashMap<u32, u8> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Whom a slice of this task belongs to.
#[inline(always)]
pub(crate) fn owner_of(task: Task) -> Owner {
    // The fields of a task that is switched or runs can be read.
    owner(task, || task.at().cgroup().unwrap_or(CgroupId::ROOT))
}

/// The same for the task that comes in at a switch: sooner found, and later verified.
#[inline(always)]
pub(crate) fn owner_of_next(next: Task) -> Owner {
    owner(next, || next.cgroup())
}

#[inline(always)]
fn owner(task: Task, cgroup: impl FnOnce() -> CgroupId) -> Owner {
    if task.pid() == 0 {
        return Owner {
            cgroup: CgroupId::IDLE,
            tgid: 0,
        };
    }
    let mut owner = Owner {
        cgroup: cgroup(),
        tgid: 0,
    };
    if BY_PROCESS.load() != 0 {
        owner.tgid = task.tgid();
    }
    if follows(task) {
        owner.cgroup = CgroupId::COMMAND;
    }
    owner
}

/// Whether its slices are the command's.
#[inline(always)]
pub(crate) fn follows(task: Task) -> bool {
    FOLLOW_COMMAND.load() == 1 && COMMAND.get_ptr(task.tgid()).is_some()
}
