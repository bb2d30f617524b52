//! `cgroup_rmdir`: reports the removal of a cgroup to user space.

use core::ptr;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::LifecycleKind;

use crate::{kernel::Cgroup, lifecycle::emit};

#[btf_tracepoint(function = "cgroup_rmdir")]
fn cgroup_rmdir(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of cgroup_rmdir is the cgroup.
    let cgroup = unsafe { Cgroup::new(ctx.arg(0)) };
    if cgroup.hierarchy() == 0 {
        emit(LifecycleKind::CgroupRemoved, cgroup.id().0, ptr::null());
    }
    0
}
