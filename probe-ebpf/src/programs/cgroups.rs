//! `cgroups`: the walk over all cgroups of the default hierarchy.
//!
//! It walks the kernel's own tree: a mount inside a container, and the kernel's look-ups by id in a
//! cgroup namespace, show only a part of the tree.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap},
};
use probe_common::CgroupWalk;

use crate::{
    iterator::{self, walk_state},
    kernel::{
        CGROUP_KN, CGROUP_ROOT, CGROUP_ROOT_CGRP, CGROUP_SELF, CSS_CHILDREN, CSS_FLAGS, CSS_PARENT,
        CSS_SIBLING, KERNFS_NODE_ID, Task, UntypedTask, read,
    },
};

/// The state of the current walk.
#[map]
static TREE: Array<CgroupWalk> = Array::with_max_entries(1, 0);

/// Cgroups that user space asks for, by id: 1 once a walk has found them.
#[map]
static CGROUPS: HashMap<u64, u64> =
    HashMap::with_max_entries(CgroupWalk::MAX_QUERIES, BPF_F_NO_PREALLOC);

/// `CSS_ONLINE` of `linux/cgroup-defs.h`. A removed cgroup stays in the tree, without this flag,
/// while references to it remain (such as charged memory).
const ONLINE: u32 = 1 << 1;

/// One walk over all cgroups.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map")]
fn cgroups(ctx: *mut c_void) -> i32 {
    // SAFETY: it is the context of an iterator.
    unsafe { iterator::walk(ctx, start, step) }
}

/// Starts at the root; None where it cannot be found.
#[inline(always)]
fn start() -> Option<()> {
    let tree = walk_state(&TREE)?;
    let cgroup = UntypedTask(Task::current().address()).cgroup_address()?;
    let root: u64 = read(cgroup.wrapping_add(CGROUP_ROOT.load()))?;
    tree.root = root
        .wrapping_add(CGROUP_ROOT_CGRP.load())
        .wrapping_add(CGROUP_SELF.load());
    (tree.at, tree.subtree_done) = (tree.root, 0);
    Some(())
}

/// Enters a cgroup, or advances from a finished one. Returns 1 after the last cgroup.
#[inline(never)]
extern "C" fn step(_: u32, _: *mut c_void) -> i64 {
    let Some(tree) = walk_state(&TREE) else {
        return 1;
    };
    let next = if tree.subtree_done == 0 {
        enter(tree)
    } else if tree.at == tree.root {
        tree.complete = 1;
        None
    } else {
        advance(tree)
    };
    i64::from(next.is_none())
}

/// Marks the cgroup if it was asked for, and goes to its first child. None if the tree cannot be
/// read.
#[inline(always)]
fn enter(tree: &mut CgroupWalk) -> Option<()> {
    tree.visited += 1;
    let flags: u32 = read(tree.at.wrapping_add(CSS_FLAGS.load()))?;
    if flags & ONLINE != 0 {
        let cgroup = tree.at.wrapping_sub(CGROUP_SELF.load());
        let node: u64 = read(cgroup.wrapping_add(CGROUP_KN.load()))?;
        let id: u64 = read(node.wrapping_add(KERNFS_NODE_ID.load()))?;
        if let Some(found) = CGROUPS.get_ptr_mut(id) {
            // SAFETY: user space reads the value only after the walk.
            unsafe { *found = 1 };
        }
    }
    let children = tree.at.wrapping_add(CSS_CHILDREN.load());
    let first: u64 = read(children)?;
    if first == children {
        tree.subtree_done = 1;
    } else {
        tree.at = first.wrapping_sub(CSS_SIBLING.load());
    }
    Some(())
}

/// Goes to the next sibling, or from the last sibling to the parent.
#[inline(always)]
fn advance(tree: &mut CgroupWalk) -> Option<()> {
    let parent: u64 = read(tree.at.wrapping_add(CSS_PARENT.load()))?;
    let next: u64 = read(tree.at.wrapping_add(CSS_SIBLING.load()))?;
    if next == parent.wrapping_add(CSS_CHILDREN.load()) {
        tree.at = parent;
    } else {
        tree.at = next.wrapping_sub(CSS_SIBLING.load());
        tree.subtree_done = 0;
    }
    Some(())
}
