//! The ring that reports the markers of observed processes (their names for memory and phases) and
//! their forks, execs and exits to user space.

use core::arch::asm;

use aya_ebpf::{
    Global,
    helpers::generated::{
        bpf_copy_from_user, bpf_get_current_ancestor_cgroup_id, bpf_probe_read_user_str,
        bpf_ringbuf_output,
    },
    macros::map,
    maps::{PerCpuArray, RingBuf},
};
use probe_common::{MARKER_HEADER, MARKER_NAME, Marker, MarkerCpu, MarkerKind, UNREADABLE};

use crate::{asm::add_shared, lifecycle::wake_up, owner::COMMAND};

/// User space sets its size: a power of two, and a multiple of 64 KiB pages.
#[map]
static MARKERS: RingBuf = RingBuf::with_byte_size(64 * 1024, 0);

/// Counts of written and lost records.
#[map]
static MARKER_CPU: PerCpuArray<MarkerCpu> = PerCpuArray::with_max_entries(1, 0);

/// The cgroup that is observed, with its descendants; 0: the processes in COMMAND are observed.
#[unsafe(no_mangle)]
static MARKER_CGROUP: Global<u64> = Global::new(0);

/// Bytes in the ring at which the reader is woken.
#[unsafe(no_mangle)]
static MARKER_WAKE_FROM: Global<u64> = Global::new(0);

/// Levels of the cgroup tree that are searched for the observed cgroup.
const LEVELS: i32 = 32;

/// Whether the current task, of the process `tgid`, is observed.
#[inline(always)]
pub(crate) fn observed(tgid: u32) -> bool {
    let wanted = MARKER_CGROUP.load();
    if wanted == 0 {
        return COMMAND.get_ptr(tgid).is_some();
    }
    let mut level = 0;
    while level < LEVELS {
        // SAFETY: the helper has no preconditions.
        let ancestor = unsafe { bpf_get_current_ancestor_cgroup_id(level) };
        if ancestor == wanted {
            return true;
        }
        if ancestor == 0 {
            return false;
        }
        level += 1;
    }
    false
}

/// A record without a name.
#[inline(always)]
pub(crate) fn new_record(kind: MarkerKind, time: u64, tgid: u32, tid: u32) -> Marker {
    Marker {
        time,
        start: 0,
        end: 0,
        tgid,
        tid,
        kind: kind as u32,
        len: 0,
        name: [0; MARKER_NAME],
    }
}

/// Reads a name from the memory of the current process. Only for programs that may sleep: a page
/// that is not in memory, such as a text not read before, is faulted in.
#[inline(always)]
pub(crate) fn read_name(record: &mut Marker, name: u64) {
    if name == 0 {
        return;
    }
    let mut read = read_text(record, name);
    if read < 0 {
        let mut byte = 0_u8;
        // Faults in both pages that the name may span; the second may not exist.
        let mut at = name;
        let mut tries = 0;
        while tries < 2 {
            // SAFETY: the helper checks the address.
            unsafe { bpf_copy_from_user((&raw mut byte).cast(), 1, at as *const _) };
            at = name.wrapping_add(MARKER_NAME as u64 - 1);
            tries += 1;
        }
        read = read_text(record, name);
    }
    record.len = match read {
        // The length counts the terminating NUL.
        1.. => (read - 1).cast_unsigned() as u32,
        0 => 0,
        _ => UNREADABLE,
    };
}

#[inline(always)]
fn read_text(record: &mut Marker, name: u64) -> i64 {
    let buffer = (&raw mut record.name).cast();
    // SAFETY: the buffer has this size; the helper checks the address.
    unsafe { bpf_probe_read_user_str(buffer, MARKER_NAME as u32, name as *const _) }
}

/// Puts a record into the ring. Counts are added atomically: a program that sleeps shares its CPU.
#[inline(always)]
pub(crate) fn emit(record: &Marker) {
    let mut len = if record.len == UNREADABLE {
        0
    } else {
        u64::from(record.len)
    };
    const { assert!(MARKER_NAME == 128) };
    // The verifier must see the bound, and LLVM knows that the length is no larger.
    // SAFETY: changes one register.
    unsafe { asm!("{len} &= 127", len = inout(reg) len) };
    let size = MARKER_HEADER as u64 + len;
    let flags = wake_up(&MARKERS, MARKER_WAKE_FROM.load(), size);
    // SAFETY: the record has at least that size.
    let failed = unsafe {
        bpf_ringbuf_output(
            (&raw const MARKERS).cast_mut().cast(),
            core::ptr::from_ref(record).cast_mut().cast(),
            size,
            flags,
        )
    };
    if let Some(counts) = MARKER_CPU.get_ptr_mut(0) {
        // SAFETY: words of a map value.
        unsafe {
            if failed == 0 {
                add_shared(&raw mut (*counts).written, 1);
            } else {
                add_shared(&raw mut (*counts).lost, 1);
            }
        }
    }
}
