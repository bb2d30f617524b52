//! `sample_prepare`: prepares a CPU for sampled events.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use probe_common::sample::SAMPLED_EVENTS;

use crate::sample;

/// Preallocates rows on a CPU for the burst of samples with which the kernel adapts the period to a
/// frequency, and sets the last count of every event to 0. Never attached: user space runs it once
/// on each CPU, before events are sampled.
#[raw_tracepoint]
fn sample_prepare(_ctx: RawTracePointContext) -> i32 {
    for event in 0..SAMPLED_EVENTS as u64 {
        sample::count_from(event, 0);
    }
    sample::preallocate_rows();
    0
}
