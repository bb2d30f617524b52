//! `cgroup_switch`, the alternative hook: runs only at switches between cgroups, but does not see
//! the next task, and some kernels drop runs of it. User space uses it only after a check for
//! dropped runs, and repeats the check while it runs.

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
    let started = slice::start_run(state);
    let prev = Task::current();
    state.counts.idle_runs += u64::from(prev.pid() == 0);
    if state.armed == CpuState::ARMED {
        let moment = Moment::SwitchOut {
            prev,
            // The next task is not known, and is most often the idle task.
            between_tasks: false,
        };
        account::read(state, moment);
        // The task that arming or `sched_switch` stored may have been switched out since, for
        // another task of its cgroup.
        slice::forget(state);
        slice::charge(state, prev, prev.untyped().cgroup_set());
    }
    slice::finish_run(started, &mut state.counts.changed);
    0
}
