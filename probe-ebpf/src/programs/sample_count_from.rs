//! `sample_count_from`: leaves events of a dropped period out of the next sample.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::sample;

/// Lets the next period of event number `arg(0)` begin at the count `arg(1)`. Never attached: user
/// space runs it on a CPU where it changed the event's period.
#[raw_tracepoint]
fn sample_count_from(ctx: RawTracePointContext) -> i32 {
    sample::count_from(ctx.arg(0), ctx.arg(1));
    0
}
