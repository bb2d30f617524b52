//! A walk over all cgroups of the default hierarchy: the `TREE` and `CGROUPS` maps.

use crate::words::words;

words! {
    /// Where a walk is. User space stores zeros, the program the rest.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Tree {
        /// 1 once every cgroup was visited.
        pub complete: u64,
        /// The root's `cgroup_subsys_state`.
        pub root: u64,
        /// The `cgroup_subsys_state` of the cgroup that the walk is at.
        pub at: u64,
        /// 1 once everything below that cgroup was visited.
        pub left: u64,
        /// Cgroups visited.
        pub visited: u64,
    }
}

impl Tree {
    /// Cgroups that one walk can be asked about.
    pub const ASKED: u32 = 4096;
}
