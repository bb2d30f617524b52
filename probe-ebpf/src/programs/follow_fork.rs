//! `follow_fork`: adds the children of a followed command to it.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::Task, owner::COMMAND};

/// A child of a process in COMMAND belongs to the command.
#[btf_tracepoint(function = "sched_process_fork")]
fn follow_fork(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_fork are the parent and the child.
    let (parent, child) = unsafe { (Task::new(ctx.arg(0)), Task::new(ctx.arg(1))) };
    if COMMAND.get_ptr(parent.tgid()).is_some() {
        // If the table is full, the child's slices are charged to its cgroup.
        let _ = COMMAND.insert(child.tgid(), 1, 0);
    }
    0
}
