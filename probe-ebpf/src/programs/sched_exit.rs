//! `sched_exit`: sees, late, the switches that some kernels hide from `sched_switch`. User space
//! attaches it after the first hidden switch.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::{CgroupId, CpuState};

use crate::{
    account::{self, Moment},
    kernel::Task,
    owner::owner_of,
    slice, state, waits,
};

/// Runs at the exit of the scheduler, in the context of the incoming task, and returns at once if
/// `sched_switch` has seen this task. Some kernels run no program in the context of certain tasks,
/// and so hide from `sched_switch` that such a task is switched out.
///
/// Clock counters are set back to the switch. What other counters gained since then, on the exit
/// path and in pending interrupts, goes to the previous slice.
#[btf_tracepoint(function = "sched_exit_tp")]
fn sched_exit(_: BtfTracePointContext) -> i32 {
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    // Interrupts are on.
    state::claim(state);
    let started = slice::start_run(state);
    let task = Task::current();
    if state.armed != CpuState::ARMED
        || state.owner == CgroupId::UNKNOWN
        || slice::is_slice_task(state, task)
    {
        slice::finish_run(started, &mut state.counts.same);
    } else {
        state.counts.late += 1;
        account::read(state, Moment::SwitchIn(task));
        if waits::is_on() {
            waits::close_unseen_slice(state, task);
        }
        let owner = slice::stored_owner(state);
        account::charge(state, owner, owner, 0, 0);
        slice::open(state, task, owner_of(task));
        if waits::is_on() {
            waits::count_unseen_arrival(state, task);
        }
        slice::finish_run(started, &mut state.counts.changed);
    }
    state::release(state);
    0
}
