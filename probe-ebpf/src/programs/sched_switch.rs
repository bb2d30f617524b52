//! `sched_switch`, the default hook: runs at every context switch, and returns at once where the
//! owner stays the same.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CpuState;

use crate::{account, kernel::Task, owner::owner_of, slice, state};

// Inlined, since the macro wraps it into the program's entry: a call less at every switch.
#[btf_tracepoint(function = "sched_switch")]
#[inline(always)]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    let began = slice::begin(state);
    // SAFETY: arguments 1 and 2 of sched_switch are the previous and the next task.
    let (prev, next) = unsafe { (Task::new(ctx.arg(1)), Task::new(ctx.arg(2))) };
    if slice::seen(state, prev) && stays(state, prev, next) {
        state.task = next.address();
        slice::end(began, &mut state.counts.same);
    } else {
        switch_owner(state, prev, next, began);
    }
    0
}

/// Whether both tasks are in the set of cgroups that the open slice was begun in: in the same
/// cgroup then, whose id is three loads further and not needed. Most switches end here.
///
/// `prev` too: had it been moved while it ran, the address may by now be that of another set.
#[inline(always)]
fn stays(state: &CpuState, prev: Task, next: Task) -> bool {
    prev.cgroup_set() == state.set && next.cgroup_set() == state.set && next.pid() != 0
}

/// A switch to another owner, or one where that has to be found out.
///
/// A function of its own in the kernel: the stack and the registers that it needs cost nothing
/// where the owner stays.
#[inline(never)]
fn switch_owner(state: &mut CpuState, prev: Task, next: Task, began: u64) {
    if state.armed != CpuState::ARMED {
        return;
    }
    // To idle and from idle is always a change: the counters are read before next's cgroup is
    // looked up, which after a sleep is cold memory.
    let certain = (prev.pid() == 0) != (next.pid() == 0);
    if certain {
        account::read(state, Some(prev));
    }
    let coming = owner_of(next);
    if !certain {
        if coming == slice::stored(state) && slice::seen(state, prev) {
            slice::open(state, next, coming);
            slice::end(began, &mut state.counts.same);
            return;
        }
        account::read(state, Some(prev));
    }
    slice::charge(state, prev);
    slice::open(state, next, coming);
    slice::end(began, &mut state.counts.changed);
}
