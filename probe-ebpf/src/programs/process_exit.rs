//! `process_exit`: tells user space that a process ended, and what it was called.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::LifecycleKind;

use crate::{kernel::Task, lifecycle::emit};

/// A process whose last thread exits. The kernel has counted that thread out before it comes here;
/// of two that exit at once both may see it, and it is told twice. They still run for a moment.
#[btf_tracepoint(function = "sched_process_exit")]
fn process_exit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_exit is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    if task.live_threads() == 0 {
        // The name of a process is its first thread's, which is there as long as any other.
        emit(
            LifecycleKind::ProcessExited,
            u64::from(task.tgid()),
            task.leader().comm(),
        );
    }
    0
}
