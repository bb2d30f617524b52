//! `sample_count_from`: sets the count at which the period of an event's next sample begins. The
//! sample then does not represent the events of a period that was dropped before its end.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::sample;

/// `arg(0)` is the number of the event, and `arg(1)` the count. Never attached: user space runs it
/// on a CPU where it changed the event's period.
#[raw_tracepoint]
fn sample_count_from(ctx: RawTracePointContext) -> i32 {
    sample::count_from(ctx.arg(0), ctx.arg(1));
    0
}
