//! `spe_switch`: records context switches in the timeline.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{
    kernel::Task,
    spe::{now, timeline::record_switch},
};

#[btf_tracepoint(function = "sched_switch")]
fn spe_switch(ctx: BtfTracePointContext) -> i32 {
    // Read first: from here on the time belongs to the next task.
    let since = now();
    // SAFETY: argument 2 of sched_switch is the next task.
    record_switch(unsafe { Task::new(ctx.arg(2)) }, since);
    0
}
