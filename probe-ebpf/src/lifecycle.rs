//! The ring that reports new and removed cgroups, ended processes, the first missed switch and a
//! full map of rows to user space.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::{bpf_probe_read_kernel_str, bpf_ringbuf_output},
    macros::map,
    maps::{PerCpuArray, RingBuf},
};
use probe_common::{LIFECYCLE_HEADER, LIFECYCLE_PATH, LifecycleKind, LifecycleRecord};

use crate::{asm::add_shared, kernel_log, state};

/// Bytes of the ring: a power of two, and a multiple of 64 KiB pages.
const RING_SIZE: u32 = 256 * 1024;

/// Bytes in the ring at which the reader is woken. A wake-up costs some microseconds, and no name
/// is needed before the next pull. Three quarters of the ring stay free until the reader runs.
const WAKE_FROM: u64 = RING_SIZE as u64 / 4;

#[map]
static LIFECYCLE: RingBuf = RingBuf::with_byte_size(RING_SIZE, 0);

/// Buffer for the record of a path, which is too large for the stack. From Linux 7.0 on programs at
/// tracepoints may be preempted, but not those that get a path: the kernel calls these with
/// `trace_cgroup_path_lock` held, which one CPU has at a time.
#[map]
static RECORD: PerCpuArray<LifecycleRecord> = PerCpuArray::with_max_entries(1, 0);

/// Bytes of a command name.
const NAME: usize = 16;

/// Sends a record about `cpu` and wakes the reader at once. Runs under the scheduler's locks.
#[inline(always)]
pub(crate) fn notify(kind: LifecycleKind, cpu: u32) {
    let record = [u64::from(cpu), kind as u64];
    const { assert!(LIFECYCLE_HEADER == 16) };
    // If the record is lost, the next pull sees the event in the CPU's counts. The kind is the
    // lower half of the second word and the length, 0, the upper half: all targets are
    // little-endian. Without the flag the kernel wakes no reader while earlier records of a batch
    // are in the ring.
    let _ = LIFECYCLE.output::<[u64; 2]>(&record, u64::from(BPF_RB_FORCE_WAKEUP));
}

/// Puts the record of a new cgroup into the ring. `path` is the path argument of the tracepoint.
#[inline(always)]
pub(crate) fn emit_cgroup(id: u64, path: *const u8) {
    let Some(record) = RECORD.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: only this run uses the record until it returns.
    unsafe {
        (*record).id = id;
        (*record).kind = LifecycleKind::CgroupMade as u32;
        let buffer = (&raw mut (*record).text).cast();
        let len = read_text::<LIFECYCLE_PATH>(buffer, path);
        (*record).len = len as u32;
        output(LifecycleKind::CgroupMade, id, record.cast(), len);
    }
}

/// Puts a record with a name from kernel memory into the ring; a null `name` means none. The record
/// is on the stack: programs of several tasks may preempt each other on one CPU.
#[inline(always)]
pub(crate) fn emit(kind: LifecycleKind, id: u64, name: *const u8) {
    const { assert!(LIFECYCLE_HEADER == 16) };
    let mut record = [id, kind as u64, 0, 0];
    // SAFETY: the last two words have room for a name. The length is the upper half of the second
    // word: all targets are little-endian.
    unsafe {
        let mut len = 0;
        if !name.is_null() {
            len = read_text::<NAME>((&raw mut record[2]).cast(), name);
        }
        record[1] |= len << 32;
        output(kind, id, (&raw mut record).cast(), len);
    }
}

/// Copies a string of the kernel, cut to `N` bytes. Returns its length.
///
/// # Safety
///
/// `buffer` has room for `N` bytes.
#[inline(always)]
unsafe fn read_text<const N: usize>(buffer: *mut c_void, text: *const u8) -> u64 {
    // SAFETY: the caller's promise.
    let read = unsafe { bpf_probe_read_kernel_str(buffer, N as u32, text.cast()) };
    // The length counts the terminating NUL.
    if read > 0 && read <= N as i64 {
        (read.cast_unsigned() - 1) & (N as u64 - 1)
    } else {
        0
    }
}

/// Puts a record with `len` bytes of text into the ring, or counts it as lost.
///
/// # Safety
///
/// `record` is a header with `len` bytes after it.
#[inline(always)]
unsafe fn output(kind: LifecycleKind, id: u64, record: *mut c_void, len: u64) {
    let size = LIFECYCLE_HEADER as u64 + len;
    let ring = (&raw const LIFECYCLE).cast_mut().cast();
    // SAFETY: the caller's promise.
    let failed =
        unsafe { bpf_ringbuf_output(ring, record, size, wake_up(&LIFECYCLE, WAKE_FROM, size)) };
    if failed != 0
        && let Some(state) = state::this_cpu()
    {
        // SAFETY: a word of a map's value. Atomic, since two programs that preempt each other may
        // both add.
        unsafe { add_shared(&raw mut state.counts.lost_events, 1) };
        if kernel_log::is_on() {
            kernel_log::event_lost(kind, id, failed);
        }
    }
}

/// The flag for `bpf_ringbuf_output`: the reader is woken if the ring has at least `from` bytes
/// with the next record of `size` bytes.
#[inline(always)]
pub(crate) fn wake_up(ring: &RingBuf, from: u64, size: u64) -> u64 {
    let waiting = ring.query(u64::from(BPF_RB_AVAIL_DATA));
    u64::from(if waiting + size < from {
        BPF_RB_NO_WAKEUP
    } else {
        BPF_RB_FORCE_WAKEUP
    })
}
