//! `follow_free`: removes ended processes from a followed command.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::Task, owner::COMMAND};

/// The kernel may reuse the id of a freed process.
#[btf_tracepoint(function = "sched_process_free")]
fn follow_free(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_free is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    if task.pid() == task.tgid() {
        let _ = COMMAND.remove(task.tgid());
    }
    0
}
