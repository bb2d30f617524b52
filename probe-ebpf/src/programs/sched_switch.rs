//! `sched_switch`, the default hook: runs at every context switch, and returns at once where the
//! owner stays the same.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::CpuState;

use crate::{
    account::{self, Moment},
    kernel::Task,
    kernel_log,
    owner::owner_of_next,
    slice, state, waits,
};

// Inlined into the entry function that the macro generates: saves a call at every switch.
#[btf_tracepoint(function = "sched_switch")]
#[inline(always)]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    let started = slice::start_run(state);
    // SAFETY: arguments 1 and 2 of sched_switch are the previous and the next task.
    let (prev, next) = unsafe { (Task::new(ctx.arg(1)), Task::new(ctx.arg(2))) };
    if waits::is_on() {
        // Argument 0 is whether the task is preempted, argument 3 its state (since Linux 5.18).
        let (preempted, task_state): (u32, u32) = (ctx.arg(0), ctx.arg(3));
        waits::leave(state, prev, preempted != 0, task_state);
    }
    if slice::is_slice_task(state, prev) && stays(state, prev, next) {
        state.task = next.address();
        if waits::is_on() {
            waits::count_arrival(state, next, prev.run_queue());
        }
        slice::finish_run(started, &mut state.counts.same);
    } else {
        switch_owner(state, prev, next, started);
    }
    0
}

/// Whether both tasks have the `css_set` of the open slice. Then both are in the same cgroup, and
/// its id, three loads away, is not needed. Most switches end here.
///
/// `prev` is compared too: if it was moved while it ran, its old set may be freed, and a new set
/// may have the same address.
#[inline(always)]
fn stays(state: &CpuState, prev: Task, next: Task) -> bool {
    prev.cgroup_set() == state.set && next.cgroup_set() == state.set && next.pid() != 0
}

/// Handles a switch that changes the owner, or may change it.
///
/// Not inlined: switches that keep the owner do not pay for its stack and registers.
#[inline(never)]
fn switch_owner(state: &mut CpuState, prev: Task, next: Task, started: u64) {
    if state.armed != CpuState::ARMED {
        return;
    }
    kernel_log::log_anomalies(state, prev);
    let between_tasks = prev.pid() != 0 && next.pid() != 0;
    // A switch to or from idle always changes the owner.
    if between_tasks && slice::is_slice_task(state, prev) {
        let next_owner = owner_of_next(next);
        if next_owner == slice::stored_owner(state) {
            // The slice continues. It includes the time of a task that was moved away during it.
            slice::count_move(state, prev, prev.cgroup_set());
            slice::open_with_set(state, next, next.cgroup_set(), next_owner);
            if waits::is_on() {
                waits::count_seen_arrival(state, next, prev.run_queue());
            }
            slice::finish_run(started, &mut state.counts.same);
            return;
        }
    }
    if waits::is_on() {
        waits::close_slice(state, prev.run_queue());
    }
    // The counters are read before the look-up of the next task's cgroup, which is in cold memory
    // after a sleep.
    let moment = Moment::SwitchOut {
        prev,
        between_tasks,
    };
    account::read(state, moment);
    let next_owner = owner_of_next(next);
    slice::charge(state, prev, prev.cgroup_set());
    slice::open_with_set(state, next, next.cgroup_set(), next_owner);
    if waits::is_on() && next.pid() != 0 {
        waits::count_arrival(state, next, prev.run_queue());
    }
    slice::finish_run(started, &mut state.counts.changed);
}
