//! Owners of records: the map of threads, the timeline of switches, and the clock that joins them
//! with the records.

use crate::{CgroupId, words::words};

/// Switches that the timeline of a CPU holds. A power of two.
pub const TIMELINE: u32 = 4096;

words! {
    /// The owner of a thread's samples, now and before.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeTask {
        /// Its cgroup.
        pub cgroup: CgroupId,
        /// The cgroup of the previous thread with this id, or of this thread before it was moved.
        pub previous_cgroup: CgroupId,
        /// `CLOCK_MONOTONIC` nanoseconds since which the owner holds; 0: before sampling began.
        pub since: u64,
        /// Since when the previous owner held; [`SpeTask::NOBODY`] where the id had none.
        pub previous_since: u64,
        /// Its process.
        pub tgid: u32,
        /// The process of the previous owner.
        pub previous_tgid: u32,
        /// 1 once it has exited.
        pub exited: u64,
    }
}

impl SpeTask {
    /// Value of `previous_since` where there is no previous owner.
    pub const NOBODY: u64 = u64::MAX;

    /// A thread without a previous owner.
    #[must_use]
    #[inline(always)]
    pub const fn new(cgroup: CgroupId, tgid: u32, since: u64) -> Self {
        Self {
            cgroup,
            previous_cgroup: CgroupId(0),
            since,
            previous_since: Self::NOBODY,
            tgid,
            previous_tgid: 0,
            exited: 0,
        }
    }

    /// The same id with a new owner from `since` on. With the same owner only `exited` is cleared.
    #[must_use]
    #[inline(always)]
    pub const fn then(&self, cgroup: CgroupId, tgid: u32, since: u64) -> Self {
        if self.cgroup.0 == cgroup.0 && self.tgid == tgid {
            return Self { exited: 0, ..*self };
        }
        Self {
            cgroup,
            previous_cgroup: self.cgroup,
            since,
            // The first owner of an id had it from the beginning.
            previous_since: if self.previous_since == Self::NOBODY {
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

words! {
    /// An entry of a CPU's timeline: who came in, and when.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeSwitch {
        /// `CLOCK_MONOTONIC` nanoseconds.
        pub since: u64,
        /// The cgroup that came in.
        pub cgroup: CgroupId,
        /// Its process.
        pub tgid: u64,
    }
}

words! {
    /// From ticks of the records' clock to `CLOCK_MONOTONIC`: both at one moment, and their ratio.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SpeClock {
        /// The records' clock.
        pub ticks: u64,
        /// `CLOCK_MONOTONIC` nanoseconds.
        pub nanos: u64,
        /// Nanoseconds of a tick times 2^[`SpeClock::SHIFT`].
        pub mult: u64,
    }
}

impl SpeClock {
    /// With it, an hour of ticks of any clock up to 1 GHz times `mult` fits 64 bits.
    pub const SHIFT: u32 = 20;

    /// `CLOCK_MONOTONIC` nanoseconds of a timestamp.
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
    fn the_same_owner_again_only_lives() {
        let first = SpeTask::new(CgroupId(7), 42, 0);
        let moved = first.then(CgroupId(8), 42, 100);
        let exited = SpeTask { exited: 1, ..moved };
        assert_eq!(exited.then(CgroupId(8), 42, 900), moved);
        let other = exited.then(CgroupId(8), 43, 900);
        assert_eq!((other.previous_tgid, other.previous_since), (42, 100));
        assert_eq!((other.since, other.exited), (900, 0));
    }
}
