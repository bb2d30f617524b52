//! `cpu_hotplug`: stops counting on a CPU that goes offline, and restarts when it is back online.
//!
//! No program sees the last switch of such a CPU, and its counters end for good. User space opens
//! new counters shortly after the CPU is back online.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CpuState;

use crate::{slice, state};

/// `CPUHP_OFFLINE`, the first hotplug state.
const OFFLINE: i32 = 0;

/// One step of a CPU on its way down or up.
///
/// On the way down the CPU runs the first steps itself, while it still runs tasks. When only kernel
/// threads are left on it, another CPU takes it offline. On the way up, the first step that the CPU
/// runs itself comes after its first switch.
#[btf_tracepoint(function = "cpuhp_enter")]
fn cpu_hotplug(ctx: BtfTracePointContext) -> i32 {
    // Arguments 0 to 2 of cpuhp_enter are the CPU, its target state, and the state of this step.
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
        // The CPU is back online, or stays online because a part of the kernel refused. Interrupts
        // are on.
        state::claim(state);
        slice::arm(state);
        state::release(state);
    }
    0
}
