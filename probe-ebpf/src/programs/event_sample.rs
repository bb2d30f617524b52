//! `event_sample`: runs where a sampled event overflows. The link's cookie says which event it is
//! (kernel 5.15).

use aya_ebpf::{macros::perf_event, programs::PerfEventContext};

use crate::sample;

/// Returns 0: the kernel makes no record.
#[perf_event]
fn event_sample(ctx: PerfEventContext) -> u32 {
    sample::add(ctx.ctx);
    0
}
