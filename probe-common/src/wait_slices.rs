//! The last slices of a CPU, by which the ledger of waits divides a wait among those who ran.
//!
//! The program at `sched_switch` closes slices and divides. A wait is divided from its end: the open
//! slice first, then the slices before it, from the newest on.

use crate::{CgroupId, CpuState};

/// Bytes of the last slices that are kept of a CPU.
pub const WAIT_SLICES_BYTES: usize = size_of::<WaitSlices>();

/// A slice of a CPU: the time in which one owner ran. It ends when the next one begins.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WaitSlice {
    /// Its end by the run queue's clock.
    pub end: u64,
    /// Who ran.
    pub owner: CgroupId,
}

/// The last slices of a CPU, a ring. Only programs use it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WaitSlices {
    /// The next one is at [`Self::count`] modulo their number.
    pub slices: [WaitSlice; Self::KEPT],
    /// How many there were.
    pub count: u64,
}

impl WaitSlices {
    /// How many are kept. A wait of a time slice or two is among them, even if bursts of many
    /// containers came in between.
    pub const KEPT: usize = 64;

    /// Ends the open slice of this CPU at a time of the run queue's clock: its owner is about to
    /// change.
    #[inline(always)]
    pub const fn close(&mut self, state: &mut CpuState, end: u64) {
        // By process, owners of one cgroup follow each other.
        if self.count == 0 || state.owner_before.0 != state.owner.0 {
            self.count += 1;
            state.before_began = state.slice_began;
            state.owner_before = state.owner;
        }
        // A time that the kernel did not set at this switch may be older.
        if end > state.slice_began {
            state.slice_began = end;
        }
        self.slices[self.at(1)] = WaitSlice {
            end: state.slice_began,
            owner: state.owner,
        };
    }

    /// The slice that is `back` before the open one.
    #[inline(always)]
    #[must_use]
    pub const fn back(&self, back: u64) -> WaitSlice {
        self.slices[self.at(back)]
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the index takes the lowest bits"
    )]
    const fn at(&self, back: u64) -> usize {
        (self.count.wrapping_sub(back) as usize) & (Self::KEPT - 1)
    }

    /// The number of slices whose beginning is known: the end of the one before it. What the oldest
    /// one follows is no longer kept.
    #[inline(always)]
    #[must_use]
    pub const fn known(&self) -> u64 {
        let kept = Self::KEPT as u64;
        let all = if self.count < kept { self.count } else { kept };
        all.saturating_sub(1)
    }
}

/// A wait in one run queue, by its clock, or the first part of it, which is not divided yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSpan {
    /// Its beginning.
    pub queued: u64,
    /// Its end, or where the part begins that is divided.
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

    /// Whether all of it is divided.
    #[inline(always)]
    #[must_use]
    pub const fn is_divided(&self) -> bool {
        self.end <= self.queued
    }
}
