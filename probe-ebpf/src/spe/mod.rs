//! Arm SPE, decoded and attributed in the kernel.
//!
//! No hook sees single SPE records, but the driver ends every chunk of its buffer by
//! `perf_aux_output_end`: `chunk` runs there, `window` lets the decoder of probe-common read the
//! bytes, `account` adds each record to its owner's row. The owner comes from the task map of
//! `tasks`, or, where records have no thread id, from the `timeline` of switches.
//!
//! These programs are loaded only by sessions that use SPE; for others their maps have one entry.

pub(crate) mod account;
pub(crate) mod chunk;
mod lines;
pub(crate) mod tasks;
pub(crate) mod timeline;
mod unattributed;
mod walk;
mod window;

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::map, maps::PerCpuArray};
use probe_common::spe::SpeCpu;

/// What became of everything that SPE wrote on each CPU.
#[map]
static SPE_CPU: PerCpuArray<SpeCpu> = PerCpuArray::with_max_entries(1, 0);

/// The account of this CPU.
#[inline(always)]
fn cpu() -> Option<&'static mut SpeCpu> {
    // SAFETY: a per-CPU value. Chunks end with interrupts off; the programs that only run with
    // preemption off change words of it that chunks do not.
    unsafe { SPE_CPU.get_ptr_mut(0)?.as_mut() }
}

/// `CLOCK_MONOTONIC` nanoseconds.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
