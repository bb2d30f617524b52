//! `clock`: gives user space the programs' clock. In a time namespace, user space's own
//! `CLOCK_MONOTONIC` differs.
//!
//! Never attached: user space runs it by `BPF_PROG_TEST_RUN` (kernel 5.10).

use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{map, raw_tracepoint},
    maps::Array,
    programs::RawTracePointContext,
};
use probe_common::ProgramClock;

/// The time of the last run, and values that user space stores with it.
#[map]
static CLOCK: Array<ProgramClock> = Array::with_max_entries(1, 0);

#[raw_tracepoint]
fn clock(_: RawTracePointContext) -> i32 {
    if let Some(clock) = CLOCK.get_ptr_mut(0) {
        // SAFETY: one run at a time writes it; the helper has no preconditions.
        unsafe { (*clock).now = bpf_ktime_get_ns() };
    }
    0
}
