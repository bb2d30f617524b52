//! `spe_switch`: a context switch, for the timeline.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{
    kernel::Task,
    spe::{now, timeline::note},
};

#[btf_tracepoint(function = "sched_switch")]
fn spe_switch(ctx: BtfTracePointContext) -> i32 {
    // Read first: all time from here on is the next task's.
    let since = now();
    // SAFETY: argument 2 of sched_switch is the next task.
    note(unsafe { Task::new(ctx.arg(2)) }, since);
    0
}
