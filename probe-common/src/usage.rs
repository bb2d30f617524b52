//! The USAGE map: who used how much of each counter, on which CPU.

use crate::GROUP_COUNTERS;

/// A cgroup of the default hierarchy (cgroup2): the inode number of its directory,
/// `kernfs_node.id` in the kernel. Two values that no cgroup has stand for owners that are not cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct CgroupId(pub u64);

impl CgroupId {
    /// The idle task of a CPU.
    pub const IDLE: Self = Self(0);
    /// The process tree of a command that has no cgroup of its own.
    pub const COMMAND: Self = Self(u64::MAX);
    /// Not known yet: the next event tells (hook `cgroup-switches` learns the owner when it leaves).
    pub const UNKNOWN: Self = Self(u64::MAX - 1);
    /// The root of the hierarchy: `kernfs` numbers it 1.
    pub const ROOT: Self = Self(1);

    /// Whether it can be that of a cgroup: not one of the few at both ends that stand for something else.
    #[must_use]
    pub const fn is_cgroup(self) -> bool {
        self.0 > Self::IDLE.0 && self.0 < u64::MAX - 15
    }
}

/// Key of a USAGE row. With the CPU in the key no row is ever written by two CPUs,
/// so plain adds are enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct UsageKey {
    /// Whom the counts belong to.
    pub cgroup: CgroupId,
    /// Process id in the initial pid namespace; 0 unless counting by process.
    pub tgid: u32,
    /// CPU number.
    pub cpu: u16,
    /// Index of the counter group.
    pub group: u16,
}

impl UsageKey {
    /// Size in 64-bit words.
    pub const WORDS: usize = 2;

    /// The key that the kernel stored as `words`.
    #[must_use]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [cgroup, rest] = words;
        let (tgid, cpu, group) = split(rest);
        Self {
            cgroup: CgroupId(cgroup),
            tgid,
            cpu,
            group,
        }
    }

    /// The words under which the kernel stores this key.
    #[must_use]
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        [self.cgroup.0, joined(self.tgid, self.cpu, self.group)]
    }
}

/// The second word of a key: process id, CPU, and what else its rows are told apart by.
pub(crate) const fn split(word: u64) -> (u32, u16, u16) {
    let b = word.to_ne_bytes();
    (
        u32::from_ne_bytes([b[0], b[1], b[2], b[3]]),
        u16::from_ne_bytes([b[4], b[5]]),
        u16::from_ne_bytes([b[6], b[7]]),
    )
}

/// The word that [`split`] takes apart.
pub(crate) const fn joined(tgid: u32, cpu: u16, rest: u16) -> u64 {
    let [t0, t1, t2, t3] = tgid.to_ne_bytes();
    let [c0, c1] = cpu.to_ne_bytes();
    let [r0, r1] = rest.to_ne_bytes();
    u64::from_ne_bytes([t0, t1, t2, t3, c0, c1, r0, r1])
}

/// Value of a USAGE row: raw (unscaled) counts since counting began, and the time
/// during which they could have been counted and were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct UsageRow {
    /// One count per event of the group, in the group's order.
    pub counts: [u64; GROUP_COUNTERS],
    /// Nanoseconds for which the group was enabled while this owner ran.
    pub enabled: u64,
    /// Nanoseconds of those for which the group was on the PMU.
    pub running: u64,
    /// `CLOCK_MONOTONIC` nanoseconds when the row was made: tells it from one of the same key that was freed
    /// before. 0 for rows that are never freed, and for sums.
    pub made: u64,
}

impl UsageRow {
    /// Size in 64-bit words.
    pub const WORDS: usize = GROUP_COUNTERS + 3;

    /// No counts.
    pub const ZERO: Self = Self {
        counts: [0; GROUP_COUNTERS],
        enabled: 0,
        running: 0,
        made: 0,
    };

    /// The row that the kernel stored as `words`.
    #[must_use]
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [c0, c1, c2, c3, c4, c5, c6, c7, enabled, running, made] = words;
        Self {
            counts: [c0, c1, c2, c3, c4, c5, c6, c7],
            enabled,
            running,
            made,
        }
    }
}

// The eBPF programs and user space are compiled for different targets: both must see these sizes.
const _: () = assert!(size_of::<UsageKey>() == 8 * UsageKey::WORDS);
const _: () = assert!(size_of::<UsageRow>() == 8 * UsageRow::WORDS);

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
        assert_eq!(UsageKey::from_words(words), key);
        let bytes = words.map(u64::to_ne_bytes);
        let halves = bytes[1].as_chunks::<2>().0;
        let halves: [u16; 4] = core::array::from_fn(|at| u16::from_ne_bytes(halves[at]));
        assert_eq!(halves[2..], [2, 3]);
    }
}
