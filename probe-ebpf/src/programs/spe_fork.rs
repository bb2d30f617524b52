//! `spe_fork`: adds a new thread to the map of threads.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CgroupId;

use crate::{
    kernel::Task,
    owner::{is_followed, owner_of},
    spe::{now, tasks::set_owner},
};

#[btf_tracepoint(function = "sched_process_fork")]
fn spe_fork(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_fork are the parent and the child.
    let (parent, child) = unsafe { (Task::new(ctx.arg(0)), Task::new(ctx.arg(1))) };
    let cgroup = if is_followed(parent) {
        CgroupId::COMMAND
    } else {
        owner_of(child).cgroup
    };
    set_owner(child.pid(), cgroup, child.tgid(), now());
    0
}
