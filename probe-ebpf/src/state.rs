//! The state of each CPU, which all programs of the accounting share.

use aya_ebpf::{
    helpers::generated::{bpf_get_smp_processor_id, bpf_map_lookup_percpu_elem},
    macros::map,
    maps::PerCpuArray,
};
use probe_common::CpuState;

use crate::words::keep_order;

/// What each CPU is doing.
#[map]
static STATE: PerCpuArray<CpuState> = PerCpuArray::with_max_entries(1, 0);

/// The state of this CPU.
#[inline(always)]
pub(crate) fn this_cpu() -> Option<&'static mut CpuState> {
    // SAFETY: a per-CPU value that only this CPU writes, in programs that do not interrupt each
    // other: switch hooks run with interrupts off, the flush in an IPI or with preemption off. What
    // runs with interrupts on claims the state, or writes a field of its own (lost_events).
    unsafe { STATE.get_ptr_mut(0)?.as_mut() }
}

/// The state of another CPU, for a word that this one may write there.
#[inline(always)]
pub(crate) fn of_cpu(cpu: u32) -> Option<&'static mut CpuState> {
    let key = 0_u32;
    // SAFETY: the map and a key of its size, and the value's type is that of the map.
    unsafe {
        bpf_map_lookup_percpu_elem(
            (&raw const STATE).cast_mut().cast(),
            (&raw const key).cast(),
            cpu,
        )
        .cast::<CpuState>()
        .as_mut()
    }
}

/// Makes a flush return without doing anything until [`release`].
#[inline(always)]
pub(crate) fn claim(state: &mut CpuState) {
    state.busy = 1;
    keep_order();
}

/// Ends what [`claim`] began.
#[inline(always)]
pub(crate) fn release(state: &mut CpuState) {
    keep_order();
    state.busy = 0;
}

/// The number of this CPU.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_smp_processor_id() }
}
