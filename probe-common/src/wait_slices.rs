//! The last slices of a CPU, by which the ledger of waits divides a wait among the owners that ran.
//!
//! The program at `sched_switch` closes slices and divides waits. A wait is divided from its end:
//! the open slice first, then the slices before it, from the newest on.

use crate::{CgroupId, CpuState};

/// Bytes of the slices that are kept for a CPU.
pub const WAIT_SLICES_BYTES: usize = size_of::<WaitSlices>();

/// A slice of a CPU: the time in which one owner ran. It ends when the next slice begins.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WaitSlice {
    /// End of the slice by the run queue's clock.
    pub end: u64,
    /// The owner that ran.
    pub owner: CgroupId,
}

/// The last slices of a CPU, a ring. Only programs use it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WaitSlices {
    /// The next slice goes to index [`Self::count`] modulo [`Self::KEPT`].
    pub slices: [WaitSlice; Self::KEPT],
    /// Number of slices so far.
    pub count: u64,
}

impl WaitSlices {
    /// Number of slices kept. They cover a wait of one or two time slices, even if bursts of many
    /// containers came in between.
    pub const KEPT: usize = 64;

    /// Ends the open slice of this CPU at a time of the run queue's clock: its owner is about to
    /// change.
    #[inline(always)]
    pub const fn close(&mut self, state: &mut CpuState, end: u64) {
        // If rows are keyed by process, consecutive slices may have the same cgroup: they become
        // one slice.
        if self.count == 0 || state.previous_owner.0 != state.owner.0 {
            self.count += 1;
            state.previous_slice_began = state.slice_began;
            state.previous_owner = state.owner;
        }
        // `end` may be before the start of the slice, if the kernel did not update the clock at
        // this switch.
        if end > state.slice_began {
            state.slice_began = end;
        }
        self.slices[self.index(1)] = WaitSlice {
            end: state.slice_began,
            owner: state.owner,
        };
    }

    /// The slice that is `back` slices before the open one.
    #[inline(always)]
    #[must_use]
    pub const fn back(&self, back: u64) -> WaitSlice {
        self.slices[self.index(back)]
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the index takes the lowest bits"
    )]
    const fn index(&self, back: u64) -> usize {
        (self.count.wrapping_sub(back) as usize) & (Self::KEPT - 1)
    }

    /// The number of kept slices with a known beginning: the end of the slice before. The oldest
    /// kept slice has none.
    #[inline(always)]
    #[must_use]
    pub const fn known(&self) -> u64 {
        let capacity = Self::KEPT as u64;
        let kept = if self.count < capacity {
            self.count
        } else {
            capacity
        };
        kept.saturating_sub(1)
    }
}

/// A wait in one run queue, by that queue's clock. Parts are taken from its end, and the undivided
/// part remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSpan {
    /// Start of the wait.
    pub queued: u64,
    /// End of the wait, or start of the part that is already divided.
    pub end: u64,
}

impl WaitSpan {
    /// Takes the part from `began` on. Returns its nanoseconds.
    #[inline(always)]
    pub const fn take_since(&mut self, began: u64) -> u64 {
        let began = if began > self.queued {
            began
        } else {
            self.queued
        };
        if self.end <= began {
            return 0;
        }
        let part = self.end - began;
        self.end = began;
        part
    }

    /// Whether the whole wait is divided.
    #[inline(always)]
    #[must_use]
    pub const fn is_divided(&self) -> bool {
        self.end <= self.queued
    }
}
