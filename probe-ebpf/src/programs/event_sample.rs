//! `event_sample`: runs at each overflow of a sampled event. The link's cookie is the event's
//! number (kernel 5.15).

use aya_ebpf::{macros::perf_event, programs::PerfEventContext};

use crate::sample;

/// Returns 0, so that the kernel writes no record.
#[perf_event]
fn event_sample(ctx: PerfEventContext) -> u32 {
    sample::add(ctx.ctx);
    0
}
