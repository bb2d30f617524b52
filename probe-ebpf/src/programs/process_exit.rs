//! `process_exit`: reports the id and name of an ended process to user space.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::LifecycleKind;

use crate::{kernel::Task, lifecycle::emit};

/// The last thread of a process exits. The kernel decrements the count of threads before this runs.
/// If two threads exit at once, both may see a count of 0, and the process is reported twice. The
/// thread still runs for a moment.
#[btf_tracepoint(function = "sched_process_exit")]
fn process_exit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_exit is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    if task.live_threads() == 0 {
        // A process has the name of its first thread, which exists as long as any other thread
        // does.
        emit(
            LifecycleKind::ProcessExited,
            u64::from(task.tgid()),
            task.leader().comm(),
        );
    }
    0
}
