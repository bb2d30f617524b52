//! The state of the walk over the records of a chunk.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use probe_common::spe::{Record, SpeClock, Stream};

use super::window::Cells;

/// The walk is in a map, as the decoder's record must be. The verifier does not track a map's
/// values, so changes between the rounds of a loop add no states.
#[map]
static SPE_WALK: PerCpuArray<ChunkWalk> = PerCpuArray::with_max_entries(1, 0);

/// A walk over a chunk.
#[repr(C)]
pub(super) struct ChunkWalk {
    pub(super) cells: Cells,
    pub(super) record: Record,
    pub(super) clock: SpeClock,
    /// The position of the walk, and the layout of records in this CPU's buffer.
    pub(super) stream: Stream,
    /// `perf_buffer.aux_pages`
    pub(super) pages: u64,
    /// Number of the page that was read last; `address` is its address.
    pub(super) page: u64,
    pub(super) address: u64,
    /// The buffer's length minus one, as a mask.
    pub(super) within: u64,
    /// Bytes to skip after each cell.
    pub(super) skip: u64,
    /// Bytes skipped so far.
    pub(super) skipped: u64,
    /// Time at which the walk stops (`CLOCK_MONOTONIC` nanoseconds).
    pub(super) deadline: u64,
    /// The `Stop` of the window's packets, as a word.
    pub(super) stop: u64,
}

/// The walk of this CPU.
#[inline(always)]
pub(super) fn walk() -> Option<&'static mut ChunkWalk> {
    // SAFETY: a per-CPU value, used only by chunks, which end with interrupts off.
    unsafe { SPE_WALK.get_ptr_mut(0)?.as_mut() }
}
