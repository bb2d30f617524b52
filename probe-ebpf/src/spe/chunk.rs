//! The end of a chunk of AUX data: finds its pages and walks over its records.
//!
//! `perf_aux_output_end(struct perf_output_handle *, unsigned long size)` is called with interrupts
//! off, after the hardware has written its last record. In overwrite mode `handle->head` is the
//! chunk's end in the buffer.

use core::{arch::asm, ffi::c_void, num::NonZeroU64, ptr};

use aya_ebpf::{
    Global,
    helpers::{
        bpf_get_smp_processor_id,
        generated::{bpf_loop, bpf_probe_read_kernel},
    },
    macros::map,
    maps::Array,
};
use probe_common::spe::{Found, SpeClock, SpeCpu, SpeSetting, Stop, WINDOW};

use super::{
    account, cpu, now,
    walk::{Walk, walk},
    window::Window,
};
use crate::{
    kernel::{offsets, read},
    kernel_log,
};

offsets! {
    /// `perf_output_handle.event`
    SPE_HANDLE_EVENT;
    /// `perf_output_handle.rb`
    SPE_HANDLE_RB;
    /// `perf_output_handle.head`
    SPE_HANDLE_HEAD;
    /// `perf_output_handle.aux_flags`
    SPE_HANDLE_FLAGS;
    /// `perf_buffer.aux_pages`
    SPE_BUFFER_PAGES;
    /// `perf_buffer.aux_nr_pages`
    SPE_BUFFER_NR_PAGES;
    /// `perf_event.id`
    SPE_EVENT_ID;
    /// The kernel's page size is two to the power of it.
    SPE_PAGE_SHIFT;
}

/// Ids of our own events, by CPU: no other's chunks are looked at. User space sets the size.
#[map]
static SPE_EVENTS: Array<u64> = Array::with_max_entries(1, 0);

/// See [`SpeSetting`].
#[map]
static SPE_SETTINGS: Array<u64> = Array::with_max_entries(SpeSetting::COUNT, 0);

/// Two clocks: user space fills one while the other is in use.
#[map]
static SPE_CLOCKS: Array<SpeClock> = Array::with_max_entries(2, 0);

/// `PERF_AUX_FLAG_*` of `linux/perf_event.h`.
const TRUNCATED: u64 = 1;
const PARTIAL: u64 = 4;
const COLLISION: u64 = 8;

/// Rounds between two looks at the clock: 32 windows.
const ROUNDS_BETWEEN_CLOCKS: u32 = 64;

/// Bytes of a window, and of the cell that a record of a Neoverse core fills.
const CELL: u64 = WINDOW as u64;

/// Nanoseconds that no record costs, even in an emulator: what is assumed until one was looked at.
const MAX_COST: u64 = 2000;

/// `bpf_loop` takes no more: of a chunk, which is 512 KiB at most, there are fewer.
const MAX_ROUNDS: u32 = 1 << 23;

/// A chunk has ended: `perf_aux_output_end` was called with these arguments.
#[inline(always)]
pub(crate) fn chunk(handle: u64, size: u64) {
    // SAFETY: the helper has no preconditions.
    let number = unsafe { bpf_get_smp_processor_id() };
    let own = SPE_EVENTS.get(number).copied().unwrap_or(0);
    let event: u64 = read(handle.wrapping_add(SPE_HANDLE_EVENT.load())).unwrap_or(0);
    let id: u64 = read(event.wrapping_add(SPE_EVENT_ID.load())).unwrap_or(0);
    if own == 0 || id != own {
        return;
    }
    let began = now();
    let read = chunk_of_ours(handle, size, id, began);
    let Some(cpu) = cpu() else { return };
    if read.is_none() {
        cpu.unreadable += 1;
        if kernel_log::is_on() {
            let head = self::read(handle.wrapping_add(SPE_HANDLE_HEAD.load())).unwrap_or(0);
            kernel_log::chunk_unreadable(size, head);
        }
    }
    let took = now().wrapping_sub(began);
    cpu.nanos += took;
    if took > cpu.longest {
        cpu.longest = took;
    }
}

/// None where the kernel's structures could not be read, or hold what they cannot.
#[inline(always)]
fn chunk_of_ours(handle: u64, size: u64, id: u64, began: u64) -> Option<()> {
    let (cpu, walk) = (cpu()?, walk()?);
    let flags: u64 = read(handle.wrapping_add(SPE_HANDLE_FLAGS.load()))?;
    let buffer: u64 = read(handle.wrapping_add(SPE_HANDLE_RB.load()))?;
    let head: u64 = read(handle.wrapping_add(SPE_HANDLE_HEAD.load()))?;
    let nr_pages: u32 = read(buffer.wrapping_add(SPE_BUFFER_NR_PAGES.load()))?;
    walk.pages = read(buffer.wrapping_add(SPE_BUFFER_PAGES.load()))?;

    cpu.truncated += u64::from(flags & TRUNCATED != 0);
    cpu.partial += u64::from(flags & PARTIAL != 0);
    cpu.collided += u64::from(flags & COLLISION != 0);
    let length = u64::from(nr_pages) << (SPE_PAGE_SHIFT.load() & 31);
    if size > head || head > length {
        return None;
    }
    // Chunks follow each other, and the end of the buffer and its start are one place. What lies
    // between the last end that we saw and this chunk was written too, but our program was not
    // called then; it is there still, as far as it was not overwritten.
    let within = length.wrapping_sub(1);
    let covered = head.wrapping_sub(cpu.next) & within;
    let all = if cpu.event != id {
        size
    } else if covered >= size {
        covered
    } else {
        length
    };
    // Where less than a record fits before the end of its half, the driver leaves it: no chunk.
    if all - size >= CELL {
        cpu.late_bytes += all - size;
    }
    cpu.event = id;
    cpu.next = head;
    cpu.chunks += u64::from(size > 0);
    if all == 0 {
        return Some(());
    }
    let cost = cost(cpu);
    cpu.bytes += all;

    let nanos = SPE_SETTINGS.get(SpeSetting::Nanos as u32).copied()?;
    let clock = SPE_SETTINGS.get(SpeSetting::Clock as u32).copied()?;
    walk.clock = *SPE_CLOCKS.get(clock as u32)?;
    // Every n-th cell, beginning with another one each time, so that the cells left out are no
    // particular ones: a cut by the clock would leave out those of whoever ran last. Only where
    // records fill cells it is known where the next one begins: others are decoded one after the
    // other.
    let limit = NonZeroU64::new(nanos / cost).unwrap_or(NonZeroU64::MIN);
    let step = ceil(all / CELL, limit);
    let step = NonZeroU64::new(step).unwrap_or(NonZeroU64::MIN);
    // The first byte of a chunk begins a record.
    let start = head.wrapping_sub(all) & within;
    let mut first = 0;
    if walk.stream.in_cells() && start.is_multiple_of(CELL) {
        first = cpu.chunks % step * CELL;
    }
    walk.page = u64::MAX;
    walk.within = within;
    walk.stream.restart(start + first, start + all);
    walk.leave = (step.get() - 1) * CELL;
    walk.left = first;
    walk.deadline = began.wrapping_add(nanos);
    // SAFETY: the callback takes an index and the pointer that is passed, which it does not use.
    unsafe {
        bpf_loop(
            MAX_ROUNDS,
            half as *mut c_void,
            ptr::null_mut::<c_void>(),
            0,
        )
    };
    // The rounds changed both behind the compiler's back: what was borrowed before is not used any
    // more.
    let walk = self::walk()?;
    let rest = walk.stream.end.saturating_sub(walk.stream.at);
    super::cpu()?.skipped += walk.left + rest;
    Some(())
}

/// Nanoseconds that 64 bytes have taken on this CPU so far, and not more than any record takes:
/// chunks that are nearly empty have a cost too.
#[inline(always)]
fn cost(cpu: &SpeCpu) -> NonZeroU64 {
    let cost = match NonZeroU64::new(cpu.bytes.wrapping_sub(cpu.skipped) / CELL) {
        Some(cells) => (cpu.nanos / cells).min(MAX_COST),
        None => MAX_COST,
    };
    NonZeroU64::new(cost).unwrap_or(NonZeroU64::MIN)
}

/// n / d, rounded up.
#[inline(always)]
fn ceil(n: u64, d: NonZeroU64) -> u64 {
    n.wrapping_add(d.get() - 1) / d
}

/// Two rounds for each window, one that decodes its packets and one that accounts; 1 ends the walk.
/// In one round the verifier would follow the accounting from every way out of the decoder: more
/// than it allows.
#[inline(never)]
extern "C" fn half(round: u32, _: *mut c_void) -> i64 {
    let (Some(cpu), Some(walk)) = (cpu(), walk()) else {
        return 1;
    };
    let done = if round & 1 == 0 {
        packets(walk, round)
    } else {
        found(cpu, walk)
    };
    i64::from(done.is_none())
}

/// Copies the next window and decodes its packets; None at the end.
#[inline(always)]
fn packets(walk: &mut Walk, round: u32) -> Option<()> {
    if round % ROUNDS_BETWEEN_CLOCKS == ROUNDS_BETWEEN_CLOCKS - 2 && now() > walk.deadline {
        return None;
    }
    let (at, limit) = (walk.stream.at, walk.stream.window());
    if limit == 0 {
        return Some(());
    }
    let inside = at % CELL;
    if limit < WINDOW {
        // Behind the chunk's end zeros, not what was there before.
        walk.cells = [0; _];
    }
    let last = inside + u64::from(limit);
    copy(walk, at, 0, if last < CELL { last } else { CELL })?;
    if last > CELL {
        copy(walk, at.wrapping_add(CELL), 8, last - CELL)?;
    }
    // SAFETY: the walk is a map value of this CPU.
    let bytes = unsafe { Window::new(&raw const walk.cells, at) };
    walk.stop = walk.stream.packets(&bytes, &mut walk.record).word();
    Some(())
}

/// Accounts for what the window held; None at the end.
#[inline(always)]
fn found(cpu: &mut SpeCpu, walk: &mut Walk) -> Option<()> {
    // SAFETY: the walk is a map value of this CPU.
    let bytes = unsafe { Window::new(&raw const walk.cells, walk.stream.at) };
    let found = if walk.stream.window() == 0 {
        walk.stream.finish()?
    } else {
        let stop = Stop::of_word(walk.stop);
        walk.stream.found(stop, &bytes, &mut walk.record)
    };
    match found {
        Found::Record => {
            if walk.leave != 0 && walk.stream.in_cells() {
                let next = walk.stream.at.wrapping_add(walk.leave);
                let next = if next < walk.stream.end {
                    next
                } else {
                    walk.stream.end
                };
                walk.left += next.wrapping_sub(walk.stream.at);
                walk.stream.at = next;
            }
            cpu.records += 1;
            account::add(cpu, walk);
        }
        Found::Padding(bytes) => cpu.padding += bytes,
        Found::Lost(bytes) => cpu.undecoded += bytes,
        Found::Bad { kind, bytes, .. } => {
            cpu.undecoded += bytes;
            if let Some(count) = cpu.bad.get_mut(kind as usize) {
                *count += 1;
            }
        }
        Found::Part => {}
    }
    Some(())
}

/// Copies the cell in which a place of the buffer is to this one of the two cells' words, up to so
/// many bytes of it.
#[inline(always)]
fn copy(walk: &mut Walk, place: u64, to: usize, size: u64) -> Option<()> {
    let at = place & walk.within & !(CELL - 1);
    let shift = SPE_PAGE_SHIFT.load() & 31;
    let page = at >> shift;
    if page != walk.page {
        walk.address = read(walk.pages.wrapping_add(page * 8))?;
        walk.page = page;
    }
    let source = walk.address + (at & ((1 << shift) - 1));
    let mut size = size;
    // SAFETY: changes one register: the verifier wants to see that it is 64 at most. Sizes are from
    // 1 to 64.
    unsafe { asm!("{size} += -1", "{size} &= 63", "{size} += 1", size = inout(reg) size) };
    // SAFETY: there is room for a cell behind word 0 and word 8; the helper checks the source.
    let failed = unsafe {
        let cell = (&raw mut walk.cells).cast::<u64>().add(to);
        bpf_probe_read_kernel(cell.cast::<c_void>(), size as u32, source as *const c_void)
    };
    (failed == 0).then_some(())
}
