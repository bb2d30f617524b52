//! `clock`: the programs' clock, for user space, whose own `CLOCK_MONOTONIC` differs in a time
//! namespace.
//!
//! Never attached: user space runs it by `BPF_PROG_TEST_RUN` (kernel 5.10).

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{map, raw_tracepoint},
    maps::Array,
    programs::RawTracePointContext,
};
use probe_common::Clock;

/// The time of the last run, and what user space keeps beside it.
#[map]
static CLOCK: Array<Clock> = Array::with_max_entries(1, 0);

#[raw_tracepoint]
fn clock(_: RawTracePointContext) -> i32 {
    if let Some(clock) = CLOCK.get_ptr_mut(0) {
        // SAFETY: one run at a time writes it; the helper has no preconditions.
        unsafe { (*clock).now = bpf_ktime_get_ns() };
    }
    0
}
