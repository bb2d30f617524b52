//! `spe_exit`: marks an exiting thread in the map of threads.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::Task, spe::tasks::mark_exited};

#[btf_tracepoint(function = "sched_process_exit")]
fn spe_exit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_exit is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    let (thread, first) = (task.pid(), task.tgid());
    if thread != first {
        mark_exited(thread);
    }
    // The first thread's id stays in use until the process ends: another thread may take it over.
    if task.live_threads() == 0 {
        mark_exited(first);
    }
    0
}
