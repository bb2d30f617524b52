//! Arm SPE, decoded and attributed in the kernel.
//!
//! No hook sees single SPE records, but the driver ends each chunk of its buffer with
//! `perf_aux_output_end`. `chunk` runs at this call, `window` gives the bytes to the decoder of
//! probe-common, and `account` adds each record to its owner's row. The owner comes from the task
//! map in `tasks` or, for records without a thread id, from the `timeline` of switches.
//!
//! Only sessions that use SPE load these programs. In other sessions their maps have one entry.

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

/// Counts of the bytes and records that SPE wrote on each CPU, by outcome.
#[map]
static SPE_CPU: PerCpuArray<SpeCpu> = PerCpuArray::with_max_entries(1, 0);

/// The counts of this CPU.
#[inline(always)]
fn cpu() -> Option<&'static mut SpeCpu> {
    // SAFETY: a per-CPU value. Chunks end with interrupts off. Programs that run with only
    // preemption off change words that chunks do not.
    unsafe { SPE_CPU.get_ptr_mut(0)?.as_mut() }
}

/// `CLOCK_MONOTONIC` nanoseconds.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
