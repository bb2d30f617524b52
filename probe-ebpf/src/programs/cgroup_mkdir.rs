//! `cgroup_mkdir`: tells user space the path of a new cgroup.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::Cgroup, lifecycle::cgroup_made};

#[btf_tracepoint(function = "cgroup_mkdir")]
fn cgroup_mkdir(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of cgroup_mkdir is the cgroup.
    let cgroup = unsafe { Cgroup::new(ctx.arg(0)) };
    if cgroup.hierarchy() == 0 {
        cgroup_made(cgroup.id().0, ctx.arg(1));
    }
    0
}
