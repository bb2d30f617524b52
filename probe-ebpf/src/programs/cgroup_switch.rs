//! `cgroup_switch`, the other hook: only runs where the cgroup changes, but cannot tell who comes
//! next, and some kernels drop runs of it. User space admits it only where it has shown that none
//! is missing, and keeps watching.

use aya_ebpf::{macros::perf_event, programs::PerfEventContext};
use probe_common::CpuState;

use crate::{account, kernel::Task, slice, state};

#[perf_event]
fn cgroup_switch(_: PerfEventContext) -> u32 {
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    let began = slice::begin(state);
    let prev = Task::current();
    state.counts.idle_runs += u64::from(prev.pid() == 0);
    if state.armed == CpuState::ARMED {
        account::read(state, Some(prev));
        // Whoever was found by arming or by the other hook may have left since, inside its cgroup.
        slice::forget(state);
        slice::charge(state, prev);
    }
    slice::end(began, &mut state.counts.changed);
    0
}
