//! `marker_fork`: an observed process forks another one.

use aya_ebpf::{
    helpers::generated::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext,
};
use probe_common::MarkerKind;

use crate::{
    kernel::Task,
    markers::{emit, new_record, observed},
};

/// The current task is the parent. New threads are not reported: they start without phases.
#[btf_tracepoint(function = "sched_process_fork")]
fn marker_fork(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_fork are the parent and the child.
    let (parent, child) = unsafe { (Task::new(ctx.arg(0)), Task::new(ctx.arg(1))) };
    if child.tgid() == parent.tgid() || !observed(parent.tgid()) {
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let time = unsafe { bpf_ktime_get_ns() };
    let mut record = new_record(MarkerKind::Fork, time, parent.tgid(), parent.pid());
    record.start = u64::from(child.tgid());
    emit(&record);
    0
}
