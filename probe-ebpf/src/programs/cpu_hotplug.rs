//! `cpu_hotplug`: a CPU that leaves: its last switch is shown to no program, and its counters end
//! for good.
//!
//! So it counts no more from the moment at which the kernel stops it, and again when it is back.
//! User space gives it new counters a moment later.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CpuState;

use crate::{slice, state};

/// `CPUHP_OFFLINE`, the first state of all.
const OFFLINE: i32 = 0;

/// One step on the way of a CPU down or up.
///
/// On the way down the CPU itself makes its steps to a state between while it still runs tasks;
/// when none but the kernel's own are left there, another CPU takes it offline. On the way up its
/// own first step is after its first switch.
#[btf_tracepoint(function = "cpuhp_enter")]
fn cpu_hotplug(ctx: BtfTracePointContext) -> i32 {
    // Arguments 0 to 2 of cpuhp_enter are the CPU, the state that it goes to, and the one of this
    // step.
    let (cpu, target, step): (u32, i32, i32) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    if cpu != state::cpu() {
        if target == OFFLINE
            && let Some(state) = state::of_cpu(cpu)
            && state.armed == CpuState::ARMED
        {
            state.armed = CpuState::AWAY;
        }
    } else if target > step
        && let Some(state) = state::this_cpu()
        && state.armed == CpuState::AWAY
    {
        // It is back, or stays since some part of the kernel does not let it go. Interrupts are on
        // here.
        state::claim(state);
        slice::arm(state);
        state::release(state);
    }
    0
}
