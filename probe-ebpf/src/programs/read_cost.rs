//! `read_cost`: measures how long a program takes to read a counter on this CPU.
//!
//! Never attached: user space runs it on one CPU by `BPF_PROG_TEST_RUN` (kernel 5.10).

use core::ffi::c_void;

use aya_ebpf::{helpers::bpf_ktime_get_ns, programs::RawTracePointContext};

use crate::{
    counters::{self, EVENTS},
    state,
};

/// Nanoseconds to read the counter of slot `arg(0)` once; for an unused slot, the cost of the
/// measurement itself.
// Without aya's macro, like `flush`: the macro drops the return value.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
fn read_cost(ctx: *mut c_void) -> u32 {
    let wanted: u64 = RawTracePointContext::new(ctx).arg(0);
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    // SAFETY: the helper has no preconditions.
    let started = unsafe { bpf_ktime_get_ns() };
    if wanted < EVENTS.load() {
        let _ = counters::read(state, wanted as usize, true);
    }
    // SAFETY: the helper has no preconditions.
    let nanos = unsafe { bpf_ktime_get_ns() } - started;
    nanos as u32
}
