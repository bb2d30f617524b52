//! Owners of records: the map of threads ([`SpeTask`]), the timeline of switches ([`SpeSwitch`]),
//! and the conversion from the records' clock ([`SpeClock`]).

use crate::{CgroupId, pod::pod};

/// Capacity of a CPU's timeline of switches. A power of two.
pub const TIMELINE: u32 = 4096;

pod! {
    /// The current and the previous owner of a thread's samples.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeTask {
        /// The current owner's cgroup.
        pub cgroup: CgroupId,
        /// The cgroup of the previous thread with this id, or of this thread before it was moved.
        pub previous_cgroup: CgroupId,
        /// Start of the current ownership, in `CLOCK_MONOTONIC` nanoseconds; 0: before sampling
        /// began.
        pub since: u64,
        /// Start of the previous ownership; [`SpeTask::NO_PREVIOUS`] if there is none.
        pub previous_since: u64,
        /// The current owner's process.
        pub tgid: u32,
        /// The process of the previous owner.
        pub previous_tgid: u32,
        /// 1 once the thread has exited.
        pub exited: u64,
    }
}

impl SpeTask {
    /// Value of `previous_since` where there is no previous owner.
    pub const NO_PREVIOUS: u64 = u64::MAX;

    /// A thread without a previous owner.
    #[must_use]
    #[inline(always)]
    pub const fn new(cgroup: CgroupId, tgid: u32, since: u64) -> Self {
        Self {
            cgroup,
            previous_cgroup: CgroupId(0),
            since,
            previous_since: Self::NO_PREVIOUS,
            tgid,
            previous_tgid: 0,
            exited: 0,
        }
    }

    /// The same thread id with a new owner from `since` on. If the owner is the same, only `exited`
    /// is cleared.
    #[must_use]
    #[inline(always)]
    pub const fn reassigned(&self, cgroup: CgroupId, tgid: u32, since: u64) -> Self {
        if self.cgroup.0 == cgroup.0 && self.tgid == tgid {
            return Self { exited: 0, ..*self };
        }
        Self {
            cgroup,
            previous_cgroup: self.cgroup,
            since,
            // The first owner of an id owned it from the beginning.
            previous_since: if self.previous_since == Self::NO_PREVIOUS {
                0
            } else {
                self.since
            },
            tgid,
            previous_tgid: self.tgid,
            exited: 0,
        }
    }
}

pod! {
    /// An entry of a CPU's timeline: the owner that was switched in, and when.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeSwitch {
        /// Time of the switch, in `CLOCK_MONOTONIC` nanoseconds.
        pub since: u64,
        /// The cgroup of the thread that was switched in.
        pub cgroup: CgroupId,
        /// That thread's process.
        pub tgid: u64,
    }
}

pod! {
    /// Conversion from ticks of the records' clock to `CLOCK_MONOTONIC`: both clocks at one moment,
    /// and their ratio.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeClock {
        /// Ticks of the records' clock.
        pub ticks: u64,
        /// `CLOCK_MONOTONIC` nanoseconds.
        pub nanos: u64,
        /// Nanoseconds per tick times 2^[`SpeClock::SHIFT`].
        pub mult: u64,
    }
}

impl SpeClock {
    /// Fixed-point shift of `mult`: an hour of ticks of any clock up to 1 GHz times `mult` fits 64
    /// bits.
    pub const SHIFT: u32 = 20;

    /// `CLOCK_MONOTONIC` nanoseconds of a timestamp in ticks.
    #[must_use]
    #[inline(always)]
    pub const fn nanos(&self, ticks: u64) -> u64 {
        if ticks >= self.ticks {
            let later = ticks.wrapping_sub(self.ticks).wrapping_mul(self.mult) >> Self::SHIFT;
            self.nanos.wrapping_add(later)
        } else {
            let earlier = self.ticks.wrapping_sub(ticks).wrapping_mul(self.mult) >> Self::SHIFT;
            self.nanos.saturating_sub(earlier)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reassigning_the_same_owner_only_clears_exited() {
        let first = SpeTask::new(CgroupId(7), 42, 0);
        let moved = first.reassigned(CgroupId(8), 42, 100);
        let exited = SpeTask { exited: 1, ..moved };
        assert_eq!(exited.reassigned(CgroupId(8), 42, 900), moved);
        let other = exited.reassigned(CgroupId(8), 43, 900);
        assert_eq!((other.previous_tgid, other.previous_since), (42, 100));
        assert_eq!((other.since, other.exited), (900, 0));
    }
}
