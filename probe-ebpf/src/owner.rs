//! The owner of a task's time: its cgroup (and its process where rows are keyed by process), or a
//! followed command.

use aya_ebpf::{Global, bindings::BPF_F_NO_PREALLOC, macros::map, maps::HashMap};
use probe_common::CgroupId;

use crate::kernel::Task;

/// The owner of a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) cgroup: CgroupId,
    pub(crate) tgid: u32,
}

/// 0: rows are keyed by cgroup. 1: rows are keyed by cgroup and process. 2: as 1, but rows of
/// samples are keyed by cgroup only.
#[unsafe(no_mangle)]
pub(crate) static BY_PROCESS: Global<u8> = Global::new(0);

/// 1: slices of processes in COMMAND, and of their children, belong to [`CgroupId::COMMAND`].
#[unsafe(no_mangle)]
pub(crate) static FOLLOW_COMMAND: Global<u8> = Global::new(0);

/// Processes of a command that has no cgroup of its own. User space sets the size.
#[map]
pub(crate) static COMMAND: HashMap<u32, u8> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// The owner of a slice of this task.
#[inline(always)]
pub(crate) fn owner_of(task: Task) -> Owner {
    // The fields of a running or switching task can be read.
    owner(task, || task.untyped().cgroup().unwrap_or(CgroupId::ROOT))
}

/// [`owner_of`] for the task that a switch brings in: faster at run time, slower to verify.
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
    if is_followed(task) {
        owner.cgroup = CgroupId::COMMAND;
    }
    owner
}

/// Whether the task belongs to the followed command.
#[inline(always)]
pub(crate) fn is_followed(task: Task) -> bool {
    FOLLOW_COMMAND.load() == 1 && COMMAND.get_ptr(task.tgid()).is_some()
}
