//! `sample_preallocate_rows`: makes a CPU ready to have events sampled.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

use crate::sample;

/// Before events are sampled on a CPU: rows at hand for the burst with which the kernel finds the
/// period of a frequency. Never attached: user space runs it there once.
#[raw_tracepoint]
fn sample_preallocate_rows(_ctx: RawTracePointContext) -> i32 {
    sample::preallocate_rows();
    0
}
