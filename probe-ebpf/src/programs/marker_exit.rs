//! `marker_exit`: a thread of an observed process ends, and its phases with it.

use aya_ebpf::{
    helpers::generated::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext,
};
use probe_common::MarkerKind;

use crate::{
    kernel::Task,
    markers::{emit, new_record, observed},
};

#[btf_tracepoint(function = "sched_process_exit")]
fn marker_exit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_exit is the task, which is the current one.
    let task = unsafe { Task::new(ctx.arg(0)) };
    if observed(task.tgid()) {
        // SAFETY: the helper has no preconditions.
        let time = unsafe { bpf_ktime_get_ns() };
        let mut record = new_record(MarkerKind::Exit, time, task.tgid(), task.pid());
        // The process ends with its last thread.
        record.end = u64::from(task.live_threads() == 0);
        emit(&record);
    }
    0
}
