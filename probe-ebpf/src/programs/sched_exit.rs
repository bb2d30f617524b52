//! `sched_exit`: sees, late, the switches that some kernels hide from `sched_switch`. User space
//! attaches it after the first one.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use probe_common::{CgroupId, CpuState};

use crate::{
    account::{self, Moment},
    kernel::Task,
    owner::owner_of,
    slice, state,
};

/// Runs at the way out of the scheduler, in the context of the task that came in, and returns at
/// once where `sched_switch` has seen that task. A kernel that runs no program in the context of
/// some task does not show `sched_switch` that it leaves.
///
/// Clocks are taken back to the switch. What other counters gained since then, on the way out and
/// in interrupts that waited for its end, goes to the slice before.
#[btf_tracepoint(function = "sched_exit_tp")]
fn sched_exit(_: BtfTracePointContext) -> i32 {
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    // Interrupts are on here.
    state::claim(state);
    let began = slice::begin(state);
    let task = Task::current();
    if state.armed != CpuState::ARMED
        || state.owner == CgroupId::UNKNOWN
        || slice::seen(state, task)
    {
        slice::end(began, &mut state.counts.same);
    } else {
        state.counts.late += 1;
        account::read(state, Moment::CameIn(task));
        let owner = slice::stored(state);
        account::charge(state, owner, owner, 0, 0);
        slice::open(state, task, owner_of(task));
        slice::end(began, &mut state.counts.changed);
    }
    state::release(state);
    0
}
