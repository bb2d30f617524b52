//! `cgroup_mkdir`: reports the path of a new cgroup to user space.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{kernel::Cgroup, lifecycle::emit_cgroup};

#[btf_tracepoint(function = "cgroup_mkdir")]
fn cgroup_mkdir(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of cgroup_mkdir is the cgroup.
    let cgroup = unsafe { Cgroup::new(ctx.arg(0)) };
    if cgroup.hierarchy() == 0 {
        emit_cgroup(cgroup.id().0, ctx.arg(1));
    }
    0
}
