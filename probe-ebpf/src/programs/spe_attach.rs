//! `spe_attach`: updates the map of threads when a thread or process moves to another cgroup.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    helpers::generated::bpf_loop,
    macros::{btf_tracepoint, map},
    maps::PerCpuArray,
    programs::BtfTracePointContext,
};
use probe_common::CgroupId;

use crate::{
    kernel::{
        Cgroup, SIGNAL_THREAD_HEAD, TASK_PID, TASK_SIGNAL, TASK_TGID, TASK_THREAD_NODE, Task, read,
    },
    owner::is_followed,
    spe::{now, tasks::set_owner},
};

/// The state of a walk over the threads of a process that moves.
#[map]
static SPE_MOVE: PerCpuArray<Move> = PerCpuArray::with_max_entries(1, 0);

#[repr(C)]
struct Move {
    /// Head of the list of the process's threads.
    head: u64,
    /// Current node of the list.
    node: u64,
    cgroup: CgroupId,
    since: u64,
}

/// The most threads of a process that one walk can visit.
const MAX_THREADS: u32 = 1 << 20;

#[btf_tracepoint(function = "cgroup_attach_task")]
fn spe_attach(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0, 2 and 3 of cgroup_attach_task are the cgroup, the task, and whether all
    // threads of its process move.
    let (cgroup, task) = unsafe { (Cgroup::new(ctx.arg(0)), Task::new(ctx.arg(2))) };
    let whole_process: u64 = ctx.arg(3);
    if cgroup.hierarchy() != 0 || is_followed(task) {
        return 0;
    }
    let (cgroup, since) = (cgroup.id(), now());
    if whole_process & 0xff == 0 {
        set_owner(task.pid(), cgroup, task.tgid(), since);
        return 0;
    }
    let Some(task_move) = SPE_MOVE.get_ptr_mut(0) else {
        return 0;
    };
    let signal = task.address().wrapping_add(TASK_SIGNAL.load());
    let Some(signal) = read::<u64>(signal) else {
        return 0;
    };
    let head = signal.wrapping_add(SIGNAL_THREAD_HEAD.load());
    // SAFETY: this CPU's value. Only this program uses it, and the kernel does not run a program
    // again on a CPU on which it was interrupted.
    unsafe {
        (*task_move).head = head;
        (*task_move).node = read(head).unwrap_or(head);
        (*task_move).cgroup = cgroup;
        (*task_move).since = since;
        bpf_loop(
            MAX_THREADS,
            move_thread as *mut c_void,
            ptr::null_mut::<c_void>(),
            0,
        );
    }
    0
}

/// Sets the owner of one thread of the process. Returns 1 after the last thread.
#[inline(never)]
extern "C" fn move_thread(_: u32, _: *mut c_void) -> i64 {
    // SAFETY: as in `spe_attach`.
    let Some(task_move) = SPE_MOVE
        .get_ptr_mut(0)
        .map(|task_move| unsafe { &mut *task_move })
    else {
        return 1;
    };
    if task_move.node == task_move.head {
        return 1;
    }
    let task = task_move.node.wrapping_sub(TASK_THREAD_NODE.load());
    let (Some(pid), Some(tgid), Some(next)) = (
        read::<u32>(task.wrapping_add(TASK_PID.load())),
        read::<u32>(task.wrapping_add(TASK_TGID.load())),
        read::<u64>(task_move.node),
    ) else {
        return 1;
    };
    set_owner(pid, task_move.cgroup, tgid, task_move.since);
    task_move.node = next;
    0
}
