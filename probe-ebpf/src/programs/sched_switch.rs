//! `sched_switch`, the default hook: runs at every context switch, and returns at once where the
//! owner stays the same.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CpuState;

use crate::{
    account::{self, Moment},
    kernel::Task,
    kernel_log,
    owner::owner_of_next,
    slice, state,
};

// Inlined into the entry that the macro makes: saves a call at every switch.
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

/// Whether both tasks have the `css_set` with which the open slice began. Then both are in the same
/// cgroup, and its id, three loads further, is not needed. Most switches end here.
///
/// `prev` is compared too: if it was moved while it ran, the address may now be another set's.
#[inline(always)]
fn stays(state: &CpuState, prev: Task, next: Task) -> bool {
    prev.cgroup_set() == state.set && next.cgroup_set() == state.set && next.pid() != 0
}

/// Handles a switch whose owner changes, or may change.
///
/// A function of its own in the kernel: switches that keep the owner do not pay for its stack and
/// registers.
#[inline(never)]
fn switch_owner(state: &mut CpuState, prev: Task, next: Task, began: u64) {
    if state.armed != CpuState::ARMED {
        return;
    }
    kernel_log::look_back(state, prev);
    // A switch to or from idle always changes the owner.
    let certain = (prev.pid() == 0) != (next.pid() == 0);
    if !certain && slice::seen(state, prev) {
        let coming = owner_of_next(next);
        if coming == slice::stored(state) {
            // The slice goes on, with the time of a task that was moved out in the midst of it.
            slice::count_move(state, prev, prev.cgroup_set());
            slice::open_in(state, next, next.cgroup_set(), coming);
            slice::end(began, &mut state.counts.same);
            return;
        }
    }
    // The counters are read before the next task's cgroup is looked up, which is cold memory after a
    // sleep.
    account::read(state, Moment::Leaves(prev));
    let coming = owner_of_next(next);
    slice::charge(state, prev, prev.cgroup_set());
    slice::open_in(state, next, next.cgroup_set(), coming);
    slice::end(began, &mut state.counts.changed);
}
