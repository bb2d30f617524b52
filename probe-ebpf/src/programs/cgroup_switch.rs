//! `cgroup_switch`, the other hook: runs only at switches between cgroups, but does not see the
//! next task, and some kernels drop runs of it. User space uses it only after checking that none is
//! missing, and goes on checking.

use aya_ebpf::{macros::perf_event, programs::PerfEventContext};
use probe_common::CpuState;

use crate::{
    account::{self, Moment},
    kernel::Task,
    slice, state,
};

#[perf_event]
fn cgroup_switch(_: PerfEventContext) -> u32 {
    let Some(state) = state::this_cpu() else {
        return 0;
    };
    let began = slice::begin(state);
    let prev = Task::current();
    state.counts.idle_runs += u64::from(prev.pid() == 0);
    if state.armed == CpuState::ARMED {
        account::read(state, Moment::Leaves(prev));
        // The task that arming or the other hook found may have been switched out since, to another
        // one of its cgroup.
        slice::forget(state);
        slice::charge(state, prev, prev.at().cgroup_set());
    }
    slice::end(began, &mut state.counts.changed);
    0
}
