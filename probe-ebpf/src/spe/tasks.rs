//! The process and cgroup of each thread, and the time since which the thread has them.
//!
//! A walk over the kernel's list of tasks fills the map once. Programs at fork, exec, exit and
//! moves between cgroups keep it up to date. Exit deletes nothing, since a buffer may still hold
//! records of the thread. User space deletes threads that exited before its last drain.

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    macros::map,
    maps::{HashMap, Queue},
};
use probe_common::{
    CgroupId,
    spe::{SpeCpu, SpeTask, Unattributed},
};

use super::{cpu, unattributed::unattributed};
use crate::owner::Owner;

/// By thread id. User space sets the size.
#[map]
static SPE_TASKS: HashMap<u64, SpeTask> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Threads that exited, for user space to delete. User space sets the size.
#[map]
static SPE_EXITED: Queue<u64> = Queue::with_max_entries(1, 0);

/// The owner of a record with this thread and time.
#[inline(always)]
pub(super) fn owner(cpu: &mut SpeCpu, thread: u32, time: u64) -> Owner {
    let Some(task) = SPE_TASKS.get_ptr(u64::from(thread)) else {
        return unattributed(cpu, Unattributed::UnknownThread);
    };
    // SAFETY: changes replace the whole value, so this one does not change while a program runs.
    let task = unsafe { &*task };
    // An id without a previous owner belongs to this owner, whatever the error of the clock
    // conversion.
    if time >= task.since || task.previous_since == SpeTask::NO_PREVIOUS {
        return Owner {
            cgroup: task.cgroup,
            tgid: task.tgid,
        };
    }
    if time < task.previous_since {
        return unattributed(cpu, Unattributed::TooOld);
    }
    Owner {
        cgroup: task.previous_cgroup,
        tgid: task.previous_tgid,
    }
}

/// Sets the owner of a thread from `since` on.
#[inline(always)]
pub(crate) fn set_owner(thread: u32, cgroup: CgroupId, tgid: u32, since: u64) {
    let task = match SPE_TASKS.get_ptr(u64::from(thread)) {
        // SAFETY: as in `owner`.
        Some(before) => unsafe { (*before).reassigned(cgroup, tgid, since) },
        None => SpeTask::new(cgroup, tgid, since),
    };
    if SPE_TASKS.insert(u64::from(thread), task, 0).is_err()
        && let Some(cpu) = cpu()
    {
        cpu.unknown_threads += 1;
    }
}

/// Adds a thread that exists when sampling starts. Keeps an entry from a hook, which is newer.
#[inline(always)]
pub(crate) fn add_existing(thread: u32, cgroup: CgroupId, tgid: u32) {
    let thread = u64::from(thread);
    let entry = SpeTask::new(cgroup, tgid, 0);
    let inserted = SPE_TASKS.insert(thread, entry, BPF_NOEXIST.into());
    if inserted.is_err()
        && SPE_TASKS.get_ptr(thread).is_none()
        && let Some(cpu) = cpu()
    {
        cpu.unknown_threads += 1;
    }
}

/// Marks a thread as exited, and queues it for user space.
#[inline(always)]
pub(crate) fn mark_exited(thread: u32) {
    let thread = u64::from(thread);
    if let Some(entry) = SPE_TASKS.get_ptr_mut(thread) {
        // SAFETY: one word that only the thread's own exit sets.
        unsafe { (*entry).exited = 1 };
    }
    if SPE_EXITED.push(thread, 0).is_err()
        && let Some(cpu) = cpu()
    {
        cpu.lost_exits += 1;
    }
}
