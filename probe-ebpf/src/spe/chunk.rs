//! The end of a chunk of AUX data: finds its pages and walks over its records.
//!
//! `perf_aux_output_end(struct perf_output_handle *, unsigned long size)` is called with interrupts
//! off, after the hardware has written its last record. In overwrite mode `handle->head` is the
//! chunk's end in the buffer.

use core::{ffi::c_void, num::NonZeroU64, ptr};

use aya_ebpf::{
    Global,
    helpers::{
        bpf_get_smp_processor_id,
        generated::{bpf_loop, bpf_probe_read_kernel},
    },
    macros::map,
    maps::Array,
};
use probe_common::spe::{Cell as Content, SpeClock, SpeCpu, SpeSetting, WINDOW, decode_record};

use super::{
    account, cpu, now,
    walk::{PADDING, RECORD, Walk, walk},
    window::Window,
};
use crate::kernel::{offsets, read};

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

/// Rounds between two looks at the clock: 32 cells.
const ROUNDS_BETWEEN_CLOCKS: u32 = 64;

/// Nanoseconds that no record costs, even in an emulator: what is assumed until one was looked at.
const MAX_COST: u64 = 2000;

/// More cells than a chunk has: `bpf_loop` takes 2^23 rounds.
const MAX_CELLS: u64 = 1 << 22;

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
    cpu.unreadable += u64::from(read.is_none());
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
    cpu.late_bytes += all - size;
    cpu.event = id;
    cpu.next = head;
    cpu.chunks += u64::from(size > 0);
    let (mut start, size) = (head.wrapping_sub(all), all);
    if size == 0 {
        return Some(());
    }
    // Records fill cells; bytes that fill none are no record of a core that we know.
    let window = u64::from(WINDOW);
    let odd = start.wrapping_neg() & (window - 1);
    let odd = if odd < size { odd } else { size };
    start = start.wrapping_add(odd);
    let cells = (size - odd) / window;
    cpu.missed_bytes += odd + (size - odd) % window;
    let cost = cost(cpu);
    cpu.cells += cells;

    let nanos = SPE_SETTINGS.get(SpeSetting::Nanos as u32).copied()?;
    let clock = SPE_SETTINGS.get(SpeSetting::Clock as u32).copied()?;
    walk.clock = *SPE_CLOCKS.get(clock as u32)?;
    // Every n-th cell, from another one each time: the cells left out are no particular ones. What
    // the clock would cut off are those of whoever ran last.
    let limit = NonZeroU64::new(nanos / cost).unwrap_or(NonZeroU64::MIN);
    let step = ceil(cells, limit);
    let step = NonZeroU64::new(step).unwrap_or(NonZeroU64::MIN);
    let first = cpu.chunks % step;
    let cells_to_read = ceil(cells.saturating_sub(first), step);
    walk.page = u64::MAX;
    walk.within = within;
    walk.at = start.wrapping_add(first * window);
    walk.stride = step.get() * window;
    walk.deadline = began.wrapping_add(nanos);
    walk.done = 0;
    let rounds = 2 * cells_to_read.min(MAX_CELLS);
    // SAFETY: the callback takes an index and the pointer that is passed, which it does not use.
    unsafe {
        bpf_loop(
            rounds as u32,
            half as *mut c_void,
            ptr::null_mut::<c_void>(),
            0,
        )
    };
    // The rounds changed both behind the compiler's back: what was borrowed before is not used any
    // more.
    super::cpu()?.skipped += cells.wrapping_sub(self::walk()?.done);
    Some(())
}

/// Nanoseconds that a record has taken on this CPU so far, and not more than any takes: chunks that
/// are nearly empty have a cost too.
#[inline(always)]
fn cost(cpu: &SpeCpu) -> NonZeroU64 {
    let cost = match NonZeroU64::new(cpu.cells.wrapping_sub(cpu.skipped)) {
        Some(records) => (cpu.nanos / records).min(MAX_COST),
        None => MAX_COST,
    };
    NonZeroU64::new(cost).unwrap_or(NonZeroU64::MIN)
}

/// n / d, rounded up.
#[inline(always)]
fn ceil(n: u64, d: NonZeroU64) -> u64 {
    n.wrapping_add(d.get() - 1) / d
}

/// Two rounds for each cell, one that decodes and one that accounts; 1 ends the walk. In one round
/// the verifier would follow the accounting from every way out of the decoder: more than it allows.
#[inline(never)]
extern "C" fn half(round: u32, _: *mut c_void) -> i64 {
    let (Some(cpu), Some(walk)) = (cpu(), walk()) else {
        return 1;
    };
    if round & 1 == 0 {
        return i64::from(decode(walk, round).is_none());
    }
    match walk.outcome {
        RECORD => {
            cpu.records += 1;
            account::add(cpu, walk);
        }
        PADDING => cpu.padding += 1,
        bad => {
            if let Some(count) = cpu.bad.get_mut(bad as usize) {
                *count += 1;
            }
        }
    }
    0
}

/// Copies the next cell and decodes it; None at the end.
#[inline(always)]
fn decode(walk: &mut Walk, round: u32) -> Option<()> {
    if round % ROUNDS_BETWEEN_CLOCKS == ROUNDS_BETWEEN_CLOCKS - 2 && now() > walk.deadline {
        return None;
    }
    let at = walk.at & walk.within;
    walk.at = at.wrapping_add(walk.stride);
    let shift = SPE_PAGE_SHIFT.load() & 31;
    let page = at >> shift;
    if page != walk.page {
        walk.address = read(walk.pages.wrapping_add(page * 8))?;
        walk.page = page;
    }
    let source = walk.address + (at & ((1 << shift) - 1));
    // SAFETY: the cell has room for the window; the helper checks the source.
    let failed = unsafe {
        bpf_probe_read_kernel(
            (&raw mut walk.cell).cast::<c_void>(),
            WINDOW,
            source as *const c_void,
        )
    };
    if failed != 0 {
        return None;
    }
    walk.done += 1;
    // SAFETY: the walk is a map value of this CPU.
    let bytes = unsafe { Window::new(&raw const walk.cell) };
    // Cells are aligned to their size, so the place of the cell in the buffer changes nothing.
    walk.outcome = match decode_record(&bytes, 0, &mut walk.record) {
        Ok(Content::Record) => RECORD,
        Ok(Content::Padding(_)) => PADDING,
        Err(kind) => kind as u64,
    };
    Some(())
}
