//! `spe_exit`: a thread that exits, for the map of threads.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::Task, spe::tasks::exited};

#[btf_tracepoint(function = "sched_process_exit")]
fn spe_exit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_exit is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    let (thread, first) = (task.pid(), task.tgid());
    if thread != first {
        exited(thread);
    }
    // The id of the first thread stays in use until the process ends: another thread may take it
    // over.
    if task.live_threads() == 0 {
        exited(first);
    }
    0
}
