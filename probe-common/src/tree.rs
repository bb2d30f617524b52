//! A walk over all cgroups of the default hierarchy: the `TREE` and `CGROUPS` maps.

/// Where a walk is. User space stores zeros, the program the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tree {
    /// 1 once every cgroup was visited.
    pub complete: u64,
    /// The root's `cgroup_subsys_state`.
    pub root: u64,
    /// That of the cgroup which the walk is at.
    pub at: u64,
    /// 1: what lies below that was visited.
    pub left: u64,
    /// Cgroups visited.
    pub visited: u64,
}

impl Tree {
    /// Size in 64-bit words.
    pub const WORDS: usize = 5;

    /// Cgroups that one walk can be asked about.
    pub const ASKED: u32 = 4096;

    /// The walk that the kernel stored as `words`.
    #[must_use]
    pub const fn from_words([complete, root, at, left, visited]: [u64; Self::WORDS]) -> Self {
        Self {
            complete,
            root,
            at,
            left,
            visited,
        }
    }
}

const _: () = assert!(size_of::<Tree>() == 8 * Tree::WORDS);
