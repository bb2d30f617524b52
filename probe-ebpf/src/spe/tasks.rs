//! Which process and cgroup a thread belongs to, and since when.
//!
//! Filled once by a walk over the kernel's own list, then kept by
//! the tracepoints of fork, exit and moves between cgroups. Nothing is deleted at exit: records of
//! the thread may still lie in a buffer. User space deletes what exited before its last drain.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    helpers::generated::bpf_loop,
    macros::{btf_tracepoint, map},
    maps::{HashMap, PerCpuArray, Queue},
    programs::BtfTracePointContext,
};
use probe_common::{
    CgroupId,
    spe::{SpeCpu, SpeTask, Unattributed},
};

use super::{account::unattributed, cpu, now, read};
use crate::{
    account::Owner,
    kernel::{
        Cgroup, SIGNAL_THREAD_HEAD, TASK_PID, TASK_SIGNAL, TASK_TGID, TASK_THREAD_NODE, Task,
    },
    switch::{self, owner_of},
};

/// By thread id. User space sets the size.
#[map]
static SPE_TASKS: HashMap<u64, SpeTask> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Threads that exited, for user space to delete. User space sets the size.
#[map]
static SPE_EXITED: Queue<u64> = Queue::with_max_entries(1, 0);

/// A move of all threads of a process.
#[map]
static SPE_MOVE: PerCpuArray<Move> = PerCpuArray::with_max_entries(1, 0);

#[repr(C)]
struct Move {
    /// The list of the process' threads, and the place in it.
    head: u64,
    node: u64,
    cgroup: CgroupId,
    since: u64,
}

/// Threads that one process may have (this many fit a walk).
const MAX_THREADS: u32 = 1 << 20;

/// Whose a record of this thread and time is.
#[inline(always)]
pub(super) fn owner(cpu: &mut SpeCpu, thread: u32, time: u64) -> Owner {
    let Some(task) = SPE_TASKS.get_ptr(u64::from(thread)) else {
        return unattributed(cpu, Unattributed::UnknownThread);
    };
    // SAFETY: changes replace the whole value, so this one stays as it is while a program runs.
    let task = unsafe { &*task };
    // An id that nobody had before is this owner's, whatever the clocks' error.
    if time >= task.since || task.previous_since == SpeTask::NOBODY {
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

/// From now on the thread belongs to this owner.
#[inline(always)]
fn set(thread: u32, cgroup: CgroupId, tgid: u32, since: u64) {
    let task = match SPE_TASKS.get_ptr(u64::from(thread)) {
        // SAFETY: as in `owner`.
        Some(before) => unsafe { (*before).then(cgroup, tgid, since) },
        None => SpeTask::new(cgroup, tgid, since),
    };
    if SPE_TASKS.insert(u64::from(thread), task, 0).is_err()
        && let Some(cpu) = cpu()
    {
        cpu.unknown_threads += 1;
    }
}

/// A thread that lives when sampling begins. A hook that was quicker knows better.
#[inline(always)]
pub(crate) fn enter(thread: u32, cgroup: CgroupId, tgid: u32) {
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

#[btf_tracepoint(function = "sched_process_fork")]
fn spe_fork(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_fork are the parent and the child.
    let (parent, child) = unsafe { (Task::new(ctx.arg(0)), Task::new(ctx.arg(1))) };
    let cgroup = if switch::follows(parent) {
        CgroupId::COMMAND
    } else {
        owner_of(child).cgroup
    };
    set(child.pid(), cgroup, child.tgid(), now());
    0
}

#[btf_tracepoint(function = "sched_process_exit")]
fn spe_exit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_exit is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    let (thread, first) = (task.pid(), task.tgid());
    if thread != first {
        exited(thread);
    }
    // The id of the first thread lives as long as its process: another thread may take it over.
    if task.live_threads() == 0 {
        exited(first);
    }
    0
}

/// A thread that is not its process' first and becomes another program takes the first one's id over: its own is
/// nobody's then.
#[btf_tracepoint(function = "sched_process_exec")]
fn spe_exec(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_exec are the task and the id that it had.
    let (task, before): (_, i32) = unsafe { (Task::new(ctx.arg(0)), ctx.arg(1)) };
    let before = before.cast_unsigned();
    if before == task.pid() {
        return 0;
    }
    exited(before);
    let cgroup = if switch::follows(task) {
        CgroupId::COMMAND
    } else {
        owner_of(task).cgroup
    };
    set(task.pid(), cgroup, task.tgid(), now());
    0
}

/// Marks a thread, and tells user space.
#[inline(always)]
fn exited(thread: u32) {
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

#[btf_tracepoint(function = "cgroup_attach_task")]
fn spe_attach(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 2 of cgroup_attach_task are the cgroup and the task, 3 says whether
    // all threads of its process move.
    let (cgroup, task) = unsafe { (Cgroup::new(ctx.arg(0)), Task::new(ctx.arg(2))) };
    let whole_process: u64 = ctx.arg(3);
    if cgroup.hierarchy() != 0 || switch::follows(task) {
        return 0;
    }
    let (cgroup, since) = (cgroup.id(), now());
    if whole_process & 0xff == 0 {
        set(task.pid(), cgroup, task.tgid(), since);
        return 0;
    }
    let Some(shift) = SPE_MOVE.get_ptr_mut(0) else {
        return 0;
    };
    let signal = task.address().wrapping_add(TASK_SIGNAL.load());
    let Some(signal) = read::<u64>(signal) else {
        return 0;
    };
    let head = signal.wrapping_add(SIGNAL_THREAD_HEAD.load());
    // SAFETY: this CPU's value; tracepoints run with preemption off, and no chunk uses it.
    unsafe {
        (*shift).head = head;
        (*shift).node = read(head).unwrap_or(head);
        (*shift).cgroup = cgroup;
        (*shift).since = since;
        bpf_loop(
            MAX_THREADS,
            thread_moved as *mut c_void,
            ptr::null_mut::<c_void>(),
            0,
        );
    }
    0
}

/// One thread of the process that moves; 1 after the last.
#[inline(never)]
extern "C" fn thread_moved(_: u32, _: *mut c_void) -> i64 {
    // SAFETY: as in `spe_attach`.
    let Some(shift) = SPE_MOVE.get_ptr_mut(0).map(|shift| unsafe { &mut *shift }) else {
        return 1;
    };
    if shift.node == shift.head {
        return 1;
    }
    let task = shift.node.wrapping_sub(TASK_THREAD_NODE.load());
    let (Some(pid), Some(tgid), Some(next)) = (
        read::<u32>(task.wrapping_add(TASK_PID.load())),
        read::<u32>(task.wrapping_add(TASK_TGID.load())),
        read::<u64>(shift.node),
    ) else {
        return 1;
    };
    set(pid, shift.cgroup, tgid, shift.since);
    shift.node = next;
    0
}
