//! `wait_migrate`: a task leaves the run queue of a CPU for that of another one. The ledger of
//! waits divides what it has waited there by the slices of that CPU, which the other one cannot
//! read.

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
