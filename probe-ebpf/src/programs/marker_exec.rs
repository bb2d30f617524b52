//! `marker_exec`: an observed process executes another program.

use aya_ebpf::{
    helpers::generated::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext,
};
use probe_common::MarkerKind;

use crate::{
    kernel::Task,
    markers::{emit, new_record, observed},
};

#[btf_tracepoint(function = "sched_process_exec")]
fn marker_exec(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_exec is the task, which is the current one.
    let task = unsafe { Task::new(ctx.arg(0)) };
    if observed(task.tgid()) {
        // SAFETY: the helper has no preconditions.
        let time = unsafe { bpf_ktime_get_ns() };
        emit(&new_record(MarkerKind::Exec, time, task.tgid(), task.pid()));
    }
    0
}
