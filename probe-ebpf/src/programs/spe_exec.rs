//! `spe_exec`: a thread that takes over the id of its process, for the map of threads.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CgroupId;

use crate::{
    kernel::Task,
    owner::{follows, owner_of},
    spe::{
        now,
        tasks::{exited, set},
    },
};

/// A thread that calls exec and is not the first of its process takes over the first one's id. Its
/// own id is free then.
#[btf_tracepoint(function = "sched_process_exec")]
fn spe_exec(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_exec are the task and the id that it had.
    let (task, before): (_, i32) = unsafe { (Task::new(ctx.arg(0)), ctx.arg(1)) };
    let before = before.cast_unsigned();
    if before == task.pid() {
        return 0;
    }
    exited(before);
    let cgroup = if follows(task) {
        CgroupId::COMMAND
    } else {
        owner_of(task).cgroup
    };
    set(task.pid(), cgroup, task.tgid(), now());
    0
}
