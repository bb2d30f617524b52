//! The end of a chunk of AUX data: finds its pages and walks over its records.
//!
//! `perf_aux_output_end(struct perf_output_handle *, unsigned long size)` is called with interrupts
//! off, after the hardware has written its last record. In overwrite mode `handle->head` is the
//! position of the chunk's end in the buffer.

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
use probe_common::spe::{SpeClock, SpeCpu, SpeSetting, Stop, WINDOW, WindowContent};

use super::{
    account, cpu, now,
    walk::{ChunkWalk, walk},
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
    /// Log2 of the kernel's page size.
    SPE_PAGE_SHIFT;
}

/// Ids of this session's events, by CPU. Chunks of other events are ignored. User space sets the
/// size.
#[map]
static SPE_EVENTS: Array<u64> = Array::with_max_entries(1, 0);

/// By [`SpeSetting`].
#[map]
static SPE_SETTINGS: Array<u64> = Array::with_max_entries(SpeSetting::COUNT, 0);

/// Two clock conversions: user space fills one while the other is in use.
#[map]
static SPE_CLOCKS: Array<SpeClock> = Array::with_max_entries(2, 0);

/// `PERF_AUX_FLAG_*` of `linux/perf_event.h`.
const TRUNCATED: u64 = 1;
const PARTIAL: u64 = 4;
const COLLISION: u64 = 8;

/// Rounds between two readings of the clock: 32 windows.
const ROUNDS_BETWEEN_CLOCKS: u32 = 64;

/// Bytes of a window, and of the cell that a record of a Neoverse core fills.
const CELL: u64 = WINDOW as u64;

/// Upper bound of a record's cost in nanoseconds, even in an emulator. Assumed until a record was
/// measured.
const MAX_COST: u64 = 2000;

/// The limit of `bpf_loop`. A chunk, which has 1 MiB at most, needs fewer rounds.
const MAX_ROUNDS: u32 = 1 << 23;

/// A chunk has ended: `perf_aux_output_end` was called with these arguments.
#[inline(always)]
pub(crate) fn chunk(handle: u64, size: u64) {
    // SAFETY: the helper has no preconditions.
    let number = unsafe { bpf_get_smp_processor_id() };
    let expected = SPE_EVENTS.get(number).copied().unwrap_or(0);
    let event: u64 = read(handle.wrapping_add(SPE_HANDLE_EVENT.load())).unwrap_or(0);
    let id: u64 = read(event.wrapping_add(SPE_EVENT_ID.load())).unwrap_or(0);
    if expected == 0 || id != expected {
        return;
    }
    let started = now();
    let decoded = decode_chunk(handle, size, id, started);
    let Some(cpu) = cpu() else { return };
    if decoded.is_none() {
        cpu.unreadable += 1;
        if kernel_log::is_on() {
            let head = read(handle.wrapping_add(SPE_HANDLE_HEAD.load())).unwrap_or(0);
            kernel_log::chunk_unreadable(size, head);
        }
    }
    let took = now().wrapping_sub(started);
    cpu.nanos += took;
    if took > cpu.longest {
        cpu.longest = took;
    }
}

/// Decodes a chunk of this session's event. None if the kernel's structures could not be read or
/// are inconsistent.
#[inline(always)]
fn decode_chunk(handle: u64, size: u64, id: u64, started: u64) -> Option<()> {
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
    // Chunks follow each other, and the buffer wraps around. Bytes between the last known end and
    // this chunk were written without a call of this program. They remain in the buffer unless they
    // were overwritten.
    let within = length.wrapping_sub(1);
    let covered = head.wrapping_sub(cpu.next) & within;
    let unread = if cpu.event != id {
        size
    } else if covered >= size {
        covered
    } else {
        length
    };
    // The driver leaves a gap smaller than a record at the end of its half of the buffer: this gap
    // is no chunk.
    if unread - size >= CELL {
        cpu.late_bytes += unread - size;
    }
    cpu.event = id;
    cpu.next = head;
    cpu.chunks += u64::from(size > 0);
    if unread == 0 {
        return Some(());
    }
    let cost = cost(cpu);
    cpu.bytes += unread;

    let nanos = SPE_SETTINGS.get(SpeSetting::Nanos as u32).copied()?;
    let clock = SPE_SETTINGS.get(SpeSetting::Clock as u32).copied()?;
    walk.clock = *SPE_CLOCKS.get(clock as u32)?;
    // Decodes every n-th cell, and starts at a different cell for each chunk, so that no part of a
    // chunk is left out systematically: a cut by the clock would leave out the task that ran last.
    // Cells can be skipped only where each record fills a cell: other records have no known start
    // and are decoded one after the other.
    let limit = NonZeroU64::new(nanos / cost).unwrap_or(NonZeroU64::MIN);
    let step = NonZeroU64::new(ceil(unread / CELL, limit)).unwrap_or(NonZeroU64::MIN);
    // The first byte of a chunk begins a record.
    let start = head.wrapping_sub(unread) & within;
    let mut offset = 0;
    if walk.stream.in_cells() && start.is_multiple_of(CELL) {
        offset = cpu.chunks % step * CELL;
    }
    walk.page = u64::MAX;
    walk.within = within;
    walk.stream.restart(start + offset, start + unread);
    walk.skip = (step.get() - 1) * CELL;
    walk.skipped = offset;
    walk.deadline = started.wrapping_add(nanos);
    // SAFETY: the callback takes an index and the pointer that is passed, which it does not use.
    unsafe {
        bpf_loop(
            MAX_ROUNDS,
            round_of_walk as *mut c_void,
            ptr::null_mut::<c_void>(),
            0,
        )
    };
    // The rounds changed both values without the compiler's knowledge, so both are borrowed again.
    let walk = self::walk()?;
    let rest = walk.stream.end.saturating_sub(walk.stream.at);
    super::cpu()?.skipped += walk.skipped + rest;
    Some(())
}

/// Average nanoseconds for 64 bytes on this CPU so far, at most [`MAX_COST`]: nearly empty chunks
/// would raise it above the cost of any record.
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

/// One round of the walk: even rounds decode the packets of a window, odd rounds account for them.
/// 1 ends the walk. With both in one round, the verifier would follow the accounting from each exit
/// of the decoder and exceed its limit.
#[inline(never)]
extern "C" fn round_of_walk(round: u32, _: *mut c_void) -> i64 {
    let (Some(cpu), Some(walk)) = (cpu(), walk()) else {
        return 1;
    };
    let done = if round & 1 == 0 {
        decode_packets(walk, round)
    } else {
        account_window(cpu, walk)
    };
    i64::from(done.is_none())
}

/// Copies the next window and decodes its packets; None at the end.
#[inline(always)]
fn decode_packets(walk: &mut ChunkWalk, round: u32) -> Option<()> {
    if round % ROUNDS_BETWEEN_CLOCKS == ROUNDS_BETWEEN_CLOCKS - 2 && now() > walk.deadline {
        return None;
    }
    let (at, limit) = (walk.stream.at, walk.stream.window());
    if limit == 0 {
        return Some(());
    }
    let inside = at % CELL;
    if limit < WINDOW {
        // Zeros after the chunk's end, in place of older bytes.
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

/// Accounts for the content of the window; None at the end.
#[inline(always)]
fn account_window(cpu: &mut SpeCpu, walk: &mut ChunkWalk) -> Option<()> {
    // SAFETY: the walk is a map value of this CPU.
    let bytes = unsafe { Window::new(&raw const walk.cells, walk.stream.at) };
    let content = if walk.stream.window() == 0 {
        walk.stream.finish()?
    } else {
        let stop = Stop::from_word(walk.stop);
        walk.stream.content(stop, &bytes, &mut walk.record)
    };
    match content {
        WindowContent::Record => {
            if walk.skip != 0 && walk.stream.in_cells() {
                let skip_to = walk.stream.at.wrapping_add(walk.skip);
                let next = if skip_to < walk.stream.end {
                    skip_to
                } else {
                    walk.stream.end
                };
                walk.skipped += next.wrapping_sub(walk.stream.at);
                walk.stream.at = next;
            }
            cpu.records += 1;
            account::add(cpu, walk);
        }
        WindowContent::Padding(bytes) => cpu.padding += bytes,
        WindowContent::Lost(bytes) => cpu.undecoded += bytes,
        WindowContent::Bad { kind, bytes, .. } => {
            cpu.undecoded += bytes;
            if let Some(count) = cpu.bad.get_mut(kind as usize) {
                *count += 1;
            }
        }
        WindowContent::Part => {}
    }
    Some(())
}

/// Copies the first `size` bytes of the cell that contains `position` of the buffer to word `to` of
/// the walk's cells.
#[inline(always)]
fn copy(walk: &mut ChunkWalk, position: u64, to: usize, size: u64) -> Option<()> {
    let at = position & walk.within & !(CELL - 1);
    let shift = SPE_PAGE_SHIFT.load() & 31;
    let page = at >> shift;
    if page != walk.page {
        walk.address = read(walk.pages.wrapping_add(page * 8))?;
        walk.page = page;
    }
    let source = walk.address + (at & ((1 << shift) - 1));
    let mut size = size;
    // SAFETY: changes one register, so that the verifier sees the bound of 64. Sizes are from 1 to
    // 64.
    unsafe { asm!("{size} += -1", "{size} &= 63", "{size} += 1", size = inout(reg) size) };
    // SAFETY: a cell fits after word 0 and after word 8; the helper checks the source.
    let failed = unsafe {
        let cell = (&raw mut walk.cells).cast::<u64>().add(to);
        bpf_probe_read_kernel(cell.cast::<c_void>(), size as u32, source as *const c_void)
    };
    (failed == 0).then_some(())
}
