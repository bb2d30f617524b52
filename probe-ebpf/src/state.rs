//! The state of each CPU, shared by all accounting programs.

use aya_ebpf::{
    helpers::generated::{bpf_get_smp_processor_id, bpf_map_lookup_percpu_elem},
    macros::map,
    maps::PerCpuArray,
};
use probe_common::CpuState;

use crate::asm::keep_order;

/// The state of each CPU.
#[map]
static STATE: PerCpuArray<CpuState> = PerCpuArray::with_max_entries(1, 0);

/// The state of this CPU.
#[inline(always)]
pub(crate) fn this_cpu() -> Option<&'static mut CpuState> {
    // SAFETY: a per-CPU value that only this CPU writes, in programs that do not interrupt each
    // other: switch hooks run with interrupts off, the flush in an IPI or with preemption off.
    // Programs that run with interrupts on claim the state, or write only lost_events.
    unsafe { STATE.get_ptr_mut(0)?.as_mut() }
}

/// The state of another CPU, for the words that this CPU may write.
#[inline(always)]
pub(crate) fn of_cpu(cpu: u32) -> Option<&'static mut CpuState> {
    // SAFETY: the value of a map.
    unsafe { value_of_cpu(&STATE, cpu).as_mut() }
}

/// The value of another CPU at index 0; null if there is no such CPU.
#[inline(always)]
pub(crate) fn value_of_cpu<T>(map: &'static PerCpuArray<T>, cpu: u32) -> *mut T {
    let key = 0_u32;
    // SAFETY: the key has the map's key size, and the cast is to the map's value type.
    unsafe {
        bpf_map_lookup_percpu_elem(
            (&raw const *map).cast_mut().cast(),
            (&raw const key).cast(),
            cpu,
        )
        .cast::<T>()
    }
}

/// Makes flushes return at once until [`release`].
#[inline(always)]
pub(crate) fn claim(state: &mut CpuState) {
    state.busy = 1;
    keep_order();
}

/// Lets flushes run again after [`claim`].
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
