//! Where the walk over the records of a chunk is.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use probe_common::spe::{Record, SpeClock, Stream};

use super::window::Cells;

/// In a map: the decoder's record has to be in one, and what changes
/// between the rounds of a loop is no state of the verifier's then.
#[map]
static SPE_WALK: PerCpuArray<Walk> = PerCpuArray::with_max_entries(1, 0);

/// A walk.
#[repr(C)]
pub(super) struct Walk {
    pub(super) cells: Cells,
    pub(super) record: Record,
    pub(super) clock: SpeClock,
    /// Where the walk is, and how records lie in this CPU's buffer.
    pub(super) stream: Stream,
    /// `perf_buffer.aux_pages`
    pub(super) pages: u64,
    /// Number and address of the page that was read last.
    pub(super) page: u64,
    pub(super) address: u64,
    /// The buffer's length less one, a mask.
    pub(super) within: u64,
    /// Bytes to leave out after each cell.
    pub(super) leave: u64,
    /// Those that were.
    pub(super) left: u64,
    /// When to stop.
    pub(super) deadline: u64,
    /// Where the packets of the window stopped, as a word.
    pub(super) stop: u64,
}

/// That of this CPU.
#[inline(always)]
pub(super) fn walk() -> Option<&'static mut Walk> {
    // SAFETY: a per-CPU value, used only by chunks, which end with interrupts off.
    unsafe { SPE_WALK.get_ptr_mut(0)?.as_mut() }
}
