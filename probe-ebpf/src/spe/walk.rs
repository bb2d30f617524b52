//! Where the walk over the records of a chunk is.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use probe_common::spe::{Record, SpeClock};

use super::window::Cell;

/// In a map: the decoder's record has to be in one, and what changes
/// between the rounds of a loop is no state of the verifier's then.
#[map]
static SPE_WALK: PerCpuArray<Walk> = PerCpuArray::with_max_entries(1, 0);

/// In place of the number of a kind of damage: a record.
pub(super) const RECORD: u64 = u64::MAX;
/// The same: padding.
pub(super) const PADDING: u64 = u64::MAX - 1;

/// A walk.
#[repr(C)]
pub(super) struct Walk {
    pub(super) cell: Cell,
    pub(super) record: Record,
    pub(super) clock: SpeClock,
    /// `perf_buffer.aux_pages`
    pub(super) pages: u64,
    /// Number and address of the page that was read last.
    pub(super) page: u64,
    pub(super) address: u64,
    /// The buffer's length less one, a mask.
    pub(super) within: u64,
    /// Offset, modulo the buffer's length, of the cell to read next, and from one to the next.
    pub(super) at: u64,
    pub(super) stride: u64,
    /// When to stop.
    pub(super) deadline: u64,
    /// Cells read.
    pub(super) done: u64,
    /// What the last one held: [`RECORD`], [`PADDING`] or the number of a kind of damage.
    pub(super) outcome: u64,
}

/// That of this CPU.
#[inline(always)]
pub(super) fn walk() -> Option<&'static mut Walk> {
    // SAFETY: a per-CPU value, used only by chunks, which end with interrupts off.
    unsafe { SPE_WALK.get_ptr_mut(0)?.as_mut() }
}
