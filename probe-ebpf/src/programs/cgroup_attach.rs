//! `cgroup_attach`: a task changes its cgroup while it runs. The counters' deltas so far are
//! charged to the old cgroup.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{
    kernel::{Cgroup, Task},
    slice, state,
};

/// Runs after the kernel has moved a task, within the system call that moved it. Mostly the task
/// moves itself: a container's first process enters its cgroup this way.
///
/// If the task runs on another CPU, the open slice there stays with the old cgroup until the task
/// is switched out or the CPU is flushed. Such slices are counted
/// ([`probe_common::CpuCounts::moved`]).
#[btf_tracepoint(function = "cgroup_attach_task")]
fn cgroup_attach(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0, 2 and 3 of cgroup_attach_task are the cgroup, the task, and whether all
    // threads of its process move.
    let (cgroup, task) = unsafe { (Cgroup::new(ctx.arg(0)), Task::new(ctx.arg(2))) };
    let whole_process: u64 = ctx.arg(3);
    let current = Task::current();
    let current_moved = if whole_process & 0xff == 0 {
        task.address() == current.address()
    } else {
        task.tgid() == current.tgid()
    };
    if cgroup.hierarchy() == 0
        && current_moved
        && let Some(state) = state::this_cpu()
    {
        // With PREEMPT_RT, interrupts are on here.
        state::claim(state);
        slice::change_owner(state, current);
        state::release(state);
    }
    0
}
