//! A walk over all cgroups of the default hierarchy: the `TREE` and `CGROUPS` maps.

use crate::pod::pod;

pod! {
    /// The position of a walk. User space stores zeros, and the program fills in every field.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CgroupWalk {
        /// 1 once every cgroup was visited.
        pub complete: u64,
        /// The root's `cgroup_subsys_state`.
        pub root: u64,
        /// The `cgroup_subsys_state` of the current cgroup.
        pub at: u64,
        /// 1 once everything below the current cgroup was visited.
        pub subtree_done: u64,
        /// Cgroups visited.
        pub visited: u64,
    }
}

impl CgroupWalk {
    /// Maximum number of cgroups that one walk looks for.
    pub const MAX_QUERIES: u32 = 4096;
}
