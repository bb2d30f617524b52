//! `sample_prepare`: prepares a CPU for the samples of an event.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::sample;

/// Never attached: user space runs it on a CPU with the number of an event and the count at which
/// the event's next period begins.
#[raw_tracepoint]
fn sample_prepare(ctx: RawTracePointContext) -> i32 {
    sample::count_from(ctx.arg(0), ctx.arg(1));
    sample::preallocate_rows();
    0
}
