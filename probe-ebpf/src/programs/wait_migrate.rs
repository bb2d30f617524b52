//! `wait_migrate`: a task moves from the run queue of one CPU to another's. The ledger of waits
//! divides the task's wait so far among the owners of the first CPU's slices, which the second CPU
//! cannot read.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::Task, waits};

// A task that wakes up on another CPU has not waited.
#[btf_tracepoint(function = "sched_migrate_task")]
fn wait_migrate(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_migrate_task is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    if waits::is_on() && task.is_migrating() {
        waits::migrate(task, ctx.arg(1));
    }
    0
}
