//! `spe_exec`: updates the map of threads when a thread takes over the id of its process.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CgroupId;

use crate::{
    kernel::Task,
    owner::{is_followed, owner_of},
    spe::{
        now,
        tasks::{mark_exited, set_owner},
    },
};

/// A thread that calls exec and is not the first of its process takes over the first thread's id.
/// Its own id becomes free.
#[btf_tracepoint(function = "sched_process_exec")]
fn spe_exec(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_exec are the task and its previous id.
    let (task, old_id): (_, i32) = unsafe { (Task::new(ctx.arg(0)), ctx.arg(1)) };
    let old_id = old_id.cast_unsigned();
    if old_id == task.pid() {
        return 0;
    }
    mark_exited(old_id);
    let cgroup = if is_followed(task) {
        CgroupId::COMMAND
    } else {
        owner_of(task).cgroup
    };
    set_owner(task.pid(), cgroup, task.tgid(), now());
    0
}
