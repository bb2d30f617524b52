//! `cgroups`: the walk over all cgroups of the default hierarchy.
//!
//! It walks the kernel's own tree: a mount inside a container shows only a part of it, and so do
//! the kernel's look-ups by id in a cgroup namespace.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap},
};
use probe_common::Tree;

use crate::{
    iterator::{self, under_way},
    kernel::{
        CGROUP_KN, CGROUP_ROOT, CGROUP_ROOT_CGRP, CGROUP_SELF, CSS_CHILDREN, CSS_FLAGS, CSS_PARENT,
        CSS_SIBLING, KERNFS_NODE_ID, Task, TaskAt, read,
    },
};

/// The walk that is under way.
#[map]
static TREE: Array<Tree> = Array::with_max_entries(1, 0);

/// Cgroups that user space asks about, by id: 1 once a walk has met them.
#[map]
static CGROUPS: HashMap<u64, u64> = HashMap::with_max_entries(Tree::ASKED, BPF_F_NO_PREALLOC);

/// `CSS_ONLINE` of `linux/cgroup-defs.h`: a removed cgroup stays in the tree as long as something
/// charges it.
const ONLINE: u32 = 1 << 1;

/// One walk over all cgroups.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map")]
fn cgroups(ctx: *mut c_void) -> i32 {
    // SAFETY: it is the context of an iterator.
    unsafe { iterator::walk(ctx, begin, step) }
}

/// At the root; None where that cannot be found.
#[inline(always)]
fn begin() -> Option<()> {
    let tree = under_way(&TREE)?;
    let own = TaskAt(Task::current().address()).cgroup_address()?;
    let root: u64 = read(own.wrapping_add(CGROUP_ROOT.load()))?;
    tree.root = root
        .wrapping_add(CGROUP_ROOT_CGRP.load())
        .wrapping_add(CGROUP_SELF.load());
    (tree.at, tree.left) = (tree.root, 0);
    Some(())
}

/// Enters a cgroup, or goes on from one that was left; 1 after the last.
#[inline(never)]
extern "C" fn step(_: u32, _: *mut c_void) -> i64 {
    let Some(tree) = under_way(&TREE) else {
        return 1;
    };
    let next = if tree.left == 0 {
        enter(tree)
    } else if tree.at == tree.root {
        tree.complete = 1;
        None
    } else {
        go_on(tree)
    };
    i64::from(next.is_none())
}

/// None where the tree leads nowhere.
#[inline(always)]
fn enter(tree: &mut Tree) -> Option<()> {
    tree.visited += 1;
    let flags: u32 = read(tree.at.wrapping_add(CSS_FLAGS.load()))?;
    if flags & ONLINE != 0 {
        let cgroup = tree.at.wrapping_sub(CGROUP_SELF.load());
        let node: u64 = read(cgroup.wrapping_add(CGROUP_KN.load()))?;
        let id: u64 = read(node.wrapping_add(KERNFS_NODE_ID.load()))?;
        if let Some(met) = CGROUPS.get_ptr_mut(id) {
            // SAFETY: user space reads it after the walk.
            unsafe { *met = 1 };
        }
    }
    let children = tree.at.wrapping_add(CSS_CHILDREN.load());
    let first: u64 = read(children)?;
    if first == children {
        tree.left = 1;
    } else {
        tree.at = first.wrapping_sub(CSS_SIBLING.load());
    }
    Some(())
}

/// To the next child of the parent, or to the parent after the last.
#[inline(always)]
fn go_on(tree: &mut Tree) -> Option<()> {
    let parent: u64 = read(tree.at.wrapping_add(CSS_PARENT.load()))?;
    let next: u64 = read(tree.at.wrapping_add(CSS_SIBLING.load()))?;
    if next == parent.wrapping_add(CSS_CHILDREN.load()) {
        tree.at = parent;
    } else {
        tree.at = next.wrapping_sub(CSS_SIBLING.load());
        tree.left = 0;
    }
    Some(())
}
