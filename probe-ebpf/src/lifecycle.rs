//! The ring that tells user space about new and removed cgroups, ended processes, and the first
//! switch that was missed.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::{bpf_probe_read_kernel_str, bpf_ringbuf_output},
    macros::map,
    maps::{PerCpuArray, RingBuf},
};
use probe_common::{LIFECYCLE_HEADER, LIFECYCLE_PATH, Lifecycle, LifecycleKind};

use crate::{kernel_log, state};

/// Bytes of the ring; a power of two of pages of 64 KiB.
const RING_SIZE: u32 = 256 * 1024;

/// Bytes in the ring at which the reader is woken. A wake-up costs some microseconds, and no name
/// is needed before the next pull. Three quarters of the ring stay free until the reader runs.
const WAKE_FROM: u64 = RING_SIZE as u64 / 4;

#[map]
static LIFECYCLE: RingBuf = RingBuf::with_byte_size(RING_SIZE, 0);

/// Where a record is put together: it is too large for the stack.
#[map]
static RECORD: PerCpuArray<Lifecycle> = PerCpuArray::with_max_entries(1, 0);

/// Tells that the first switch was missed on `cpu`. Runs under the scheduler's locks and may have
/// interrupted [`emit`], so it does not use [`RECORD`].
#[inline(always)]
pub(crate) fn switch_missed(cpu: u32) {
    let record = [u64::from(cpu), LifecycleKind::SwitchMissed as u64];
    const { assert!(LIFECYCLE_HEADER == 16) };
    // If the record is lost, the next pull sees the count. The kind is the lower half of the second
    // word and the length, 0, the upper one: all targets are little-endian. Without the flag the
    // kernel wakes no reader while earlier records of a batch are in the ring.
    let _ = LIFECYCLE.output::<[u64; 2]>(&record, u64::from(BPF_RB_FORCE_WAKEUP));
}

/// Puts a record into the ring. `text` is a string of the kernel, cut to the size of a record, or
/// null.
#[inline(always)]
pub(crate) fn emit(kind: LifecycleKind, id: u64, text: *const u8) {
    let Some(record) = RECORD.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: the record is this CPU's, and tracepoints run with preemption off.
    unsafe {
        (*record).id = id;
        (*record).kind = kind as u32;
        let mut len = 0;
        if !text.is_null() {
            let buffer = (&raw mut (*record).text).cast();
            // The length counts the terminating NUL.
            let read = bpf_probe_read_kernel_str(buffer, LIFECYCLE_PATH as u32, text.cast());
            if read > 0 && read <= LIFECYCLE_PATH as i64 {
                len = read.cast_unsigned() - 1;
            }
        }
        (*record).len = len as u32;
        let size = LIFECYCLE_HEADER as u64 + (len & (LIFECYCLE_PATH as u64 - 1));
        let failed = bpf_ringbuf_output(
            (&raw const LIFECYCLE).cast_mut().cast(),
            record.cast(),
            size,
            wake_up(&LIFECYCLE, WAKE_FROM, size),
        );
        if failed != 0
            && let Some(state) = state::this_cpu()
        {
            state.counts.lost_events += 1;
            if kernel_log::is_on() {
                kernel_log::event_lost(kind, id, failed);
            }
        }
    }
}

/// Whether a record of `size` bytes fills a batch of `from` bytes, as a flag of
/// `bpf_ringbuf_output`.
#[inline(always)]
pub(crate) fn wake_up(ring: &RingBuf, from: u64, size: u64) -> u64 {
    let waiting = ring.query(u64::from(BPF_RB_AVAIL_DATA));
    u64::from(if waiting + size < from {
        BPF_RB_NO_WAKEUP
    } else {
        BPF_RB_FORCE_WAKEUP
    })
}
