//! `sample_preallocate_rows`: prepares a CPU for sampled events.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::sample;

/// Preallocates rows on a CPU for the burst of samples with which the kernel adapts the period to a
/// frequency, and expects counts from 0. Never attached: user space runs it once on each CPU,
/// before events are sampled.
#[raw_tracepoint]
fn sample_preallocate_rows(_ctx: RawTracePointContext) -> i32 {
    sample::reset_counts();
    sample::preallocate_rows();
    0
}
