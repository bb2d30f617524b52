//! The USAGE map: counts by owner, CPU and counter group.

use crate::{
    GROUP_COUNTERS,
    pod::{number, pod},
};

/// A cgroup of the default hierarchy (cgroup2): the inode number of its directory, `kernfs_node.id`
/// in the kernel. Some values that no cgroup has stand for owners that are not cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(transparent)]
pub struct CgroupId(pub u64);

number!(CgroupId);

impl CgroupId {
    /// The idle task of a CPU.
    pub const IDLE: Self = Self(0);
    /// The process tree of a command that has no cgroup of its own.
    pub const COMMAND: Self = Self(u64::MAX);
    /// Not known until the slice ends: hook `cgroup-switches` sees a task only when the task is
    /// switched out.
    pub const UNKNOWN: Self = Self(u64::MAX - 1);
    /// In the ledger of waits: the time before the oldest slice kept for the CPU.
    pub const EARLIER: Self = Self(u64::MAX - 4);
    /// In the ledger of waits: time in the run queue of another CPU. No program saw the thread
    /// leave that queue.
    pub const OTHER_CPU: Self = Self(u64::MAX - 5);
    /// The root of the hierarchy: `kernfs` numbers it 1.
    pub const ROOT: Self = Self(1);

    /// Whether this can be the id of a cgroup: the few values at both ends stand for other owners.
    #[must_use]
    pub const fn is_cgroup(self) -> bool {
        self.0 > Self::IDLE.0 && self.0 < u64::MAX - 15
    }
}

pod! {
    /// Key of a USAGE row. It includes the CPU, so no row is written by two CPUs and plain adds
    /// suffice.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct UsageKey {
        /// Owner of the counts.
        pub cgroup: CgroupId,
        /// Process id in the initial pid namespace; 0 unless counting by process.
        pub tgid: u32,
        /// CPU number.
        pub cpu: u16,
        /// Index of the counter group.
        pub group: u16,
    }
}

pod! {
    /// Value of a USAGE row: raw (unscaled) counts since counting began, with the group's enabled
    /// and running time.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct UsageRow {
        /// One count per event of the group, in the group's order.
        pub counts: [u64; GROUP_COUNTERS],
        /// Nanoseconds for which the group was enabled while this owner ran.
        pub enabled: u64,
        /// Nanoseconds for which the group was on the PMU while this owner ran.
        pub running: u64,
        /// Nanoseconds of slices that were split by time between this owner and another, because a
        /// switch was missed: the split of their counts is an estimate.
        #[cfg_attr(feature = "serde", serde(default))]
        pub estimated: u64,
        /// `CLOCK_MONOTONIC` nanoseconds when the row was created: distinguishes it from a freed
        /// row of the same key. 0 for rows that are never freed, and for sums.
        pub made: u64,
    }
}

impl UsageRow {
    /// The wrapping sum of all its numbers: it changes if any number grows.
    #[inline(always)]
    #[must_use]
    pub fn sum(&self) -> u64 {
        let counts = self
            .counts
            .iter()
            .fold(0, |sum: u64, count| sum.wrapping_add(*count));
        let times = self
            .enabled
            .wrapping_add(self.running)
            .wrapping_add(self.estimated)
            .wrapping_add(self.made);
        counts.wrapping_add(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stored_in_the_order_of_its_fields() {
        let key = UsageKey {
            cgroup: CgroupId(7),
            tgid: 1,
            cpu: 2,
            group: 3,
        };
        let words = key.to_words();
        assert_eq!(UsageKey::from_words(&words), key);
        let bytes = words.map(u64::to_ne_bytes);
        let halves = bytes[1].as_chunks::<2>().0;
        let halves: [u16; 4] = core::array::from_fn(|at| u16::from_ne_bytes(halves[at]));
        assert_eq!(halves[2..], [2, 3]);
    }
}
