//! The flush: closes the open slice of a CPU before user space reads the maps.
//!
//! Never attached: user space runs it on one CPU at a time by `BPF_PROG_TEST_RUN` (kernel 5.10).

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use probe_common::{CgroupId, FlushMode};

use crate::{account, kernel::Task, switch};

#[raw_tracepoint]
fn flush(ctx: RawTracePointContext) -> i32 {
    let Some(state) = account::state() else {
        return 0;
    };
    let mode: u64 = ctx.arg(0);
    let rebased = state.rebased;
    account::read(state, None);
    if mode == FlushMode::Arm as u64 {
        state.armed = 1;
        // New clock events have another start.
        state.ahead = i64::MAX;
        // These counters are new, so a reading below the last one is no surprise.
        state.rebased = rebased;
        // No slice was before it: new counters start lower than those before them ended.
        state.length = 0;
    } else if state.armed == 1 {
        if mode == FlushMode::ChargeAndForget as u64 {
            state.owner = CgroupId::UNKNOWN;
        }
        switch::charge(&ctx, state, Task::current());
    }
    if mode == FlushMode::ChargeAndForget as u64 {
        state.owner = CgroupId::UNKNOWN;
    } else {
        // The running task may have been moved to another cgroup since it was switched in:
        // reading it again here bounds what that can misattribute to one flush interval.
        let task = Task::current();
        let owner = switch::owner_of(task);
        state.task = task.address();
        state.owner = owner.cgroup;
        state.owner_tgid = u64::from(owner.tgid);
    }
    0
}
