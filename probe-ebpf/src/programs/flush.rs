//! `flush`: closes the open slice of a CPU before user space reads the maps or exchanges the
//! counters in the slots (rotation). Also arms and disarms a CPU, and frees one of its rows.
//!
//! Never attached: user space runs it on one CPU at a time by `BPF_PROG_TEST_RUN` (kernel 5.10).

use core::ffi::c_void;

use aya_ebpf::programs::RawTracePointContext;
use probe_common::{CpuState, FLUSH_BUSY, FlushMode, ROW_FREED};

use crate::{
    account::{self, Moment},
    kernel::Task,
    kernel_log,
    owner::owner_of,
    slice, state, waits,
};

// Without aya's macro, which drops the return value: user space must see FLUSH_BUSY.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
fn flush(ctx: *mut c_void) -> u32 {
    run(&RawTracePointContext::new(ctx))
}

#[inline(always)]
fn run(ctx: &RawTracePointContext) -> u32 {
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    if state.busy == 1 {
        return FLUSH_BUSY;
    }
    let mode: u64 = ctx.arg(0);
    let (live, live_events): (u64, u64) = (ctx.arg(1), ctx.arg(2));
    if mode == FlushMode::FreeRow as u64 {
        return match account::free_row([ctx.arg(1), ctx.arg(2)], ctx.arg(3)) {
            true => ROW_FREED,
            false => 0,
        };
    }
    if mode == FlushMode::Arm as u64 {
        (state.live, state.live_events) = (live, live_events);
        (state.turns, state.place) = (ctx.arg(3), ctx.arg(4));
        slice::arm(state);
        return 0;
    }
    if mode != FlushMode::ChargeAndForget as u64 {
        kernel_log::log_anomalies(state, Task::current());
    }
    account::read(state, Moment::Now);
    if state.armed == CpuState::ARMED {
        if mode == FlushMode::ChargeAndForget as u64 {
            slice::forget(state);
        }
        let task = Task::current();
        slice::charge(state, task, task.untyped().cgroup_set());
    }
    if mode == FlushMode::Disarm as u64 {
        // No switch continues the open slice.
        (state.armed, state.task) = (0, 0);
        return 0;
    }
    // Also for a CPU that is about to go offline: it may stay online.
    account::switch_group(state, live, live_events);
    if mode == FlushMode::ChargeAndForget as u64 {
        slice::forget(state);
    } else {
        // The running task may have been moved to another cgroup since it was switched in. Reading
        // its owner again limits the misattribution to one flush interval.
        let task = Task::current();
        let owner = owner_of(task);
        if owner != slice::stored_owner(state) {
            waits::change_owner(state, task);
        }
        slice::open(state, task, owner);
    }
    0
}
