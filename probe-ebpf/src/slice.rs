//! The open slice of a CPU: the time from one change of the owner to the next.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use probe_common::{CgroupId, CpuState, LifecycleKind, SAMPLE_EVERY, SampledCost};

use crate::{
    account::{self, Moment},
    kernel::Task,
    kernel_log, lifecycle,
    owner::{BY_PROCESS, FOLLOW_COMMAND, Owner, owner_of},
    state::cpu,
};

/// Starts counting: the present values of the counters are the baseline of the first slice.
#[inline(always)]
pub(crate) fn arm(state: &mut CpuState) {
    // The counters may be new ones: a reading below the last one is not counted as rebased.
    let rebased = state.counts.rebased;
    account::read(state, Moment::Now);
    state.counts.rebased = rebased;
    state.length = 0;
    // New clock events have another start.
    state.ahead = i64::MAX;
    state.armed = CpuState::ARMED;
    if kernel_log::is_on() {
        kernel_log::keep_readings(state);
    }
    let task = Task::current();
    open(state, task, owner_of(task));
}

/// Opens a slice of `task`, whose owner is `owner`.
#[inline(always)]
pub(crate) fn open(state: &mut CpuState, task: Task, owner: Owner) {
    open_in(state, task, task.at().cgroup_set(), owner);
}

/// The same of a task whose set of cgroups is known.
#[inline(always)]
pub(crate) fn open_in(state: &mut CpuState, task: Task, set: u64, owner: Owner) {
    state.task = task.address();
    state.owner = owner.cgroup;
    state.owner_tgid = u64::from(owner.tgid);
    let by_set = BY_PROCESS.load() == 0 && FOLLOW_COMMAND.load() == 0 && task.pid() != 0;
    state.set = if by_set { set } else { 0 };
}

/// Changes the owner of the running `task` from here on.
#[inline(always)]
pub(crate) fn hand_on(state: &mut CpuState, task: Task) {
    // An unknown owner is found at the end of the slice: it will be the new one.
    if state.armed != CpuState::ARMED || state.owner == CgroupId::UNKNOWN {
        return;
    }
    let owner = owner_of(task);
    if owner != stored(state) {
        account::read(state, Moment::Now);
        charge_slice(state, task);
        open(state, task, owner);
    }
}

/// Forgets the owner of the open slice: the switch that ends the slice tells it.
#[inline(always)]
pub(crate) fn forget(state: &mut CpuState) {
    state.owner = CgroupId::UNKNOWN;
    state.set = 0;
}

/// Charges the open slice, which `prev` ends, to its owner: the one stored when it came in, even if
/// another task has moved it since, which is counted. `set` is its set of cgroups now.
#[inline(always)]
pub(crate) fn charge(state: &mut CpuState, prev: Task, set: u64) {
    count_move(state, prev, set);
    charge_slice(state, prev);
}

/// Counts where `prev`, which leaves, is not of the owner with which the open slice began: another
/// task has moved it. `set` is its set of cgroups now.
#[inline(always)]
pub(crate) fn count_move(state: &mut CpuState, prev: Task, set: u64) {
    let in_its_set = state.set != 0 && state.set == set;
    if !in_its_set
        && state.owner != CgroupId::UNKNOWN
        && seen(state, prev)
        && owner_of(prev) != stored(state)
    {
        state.counts.moved += 1;
    }
}

/// Where the hook does not see which task comes in, the task that leaves is the owner. Idle and the
/// root cgroup are one then.
#[inline(always)]
fn charge_slice(state: &mut CpuState, prev: Task) {
    let (mut owner, mut other) = (stored(state), stored(state));
    let (mut share, mut estimated) = (0, 0);
    if state.owner == CgroupId::UNKNOWN {
        owner = Owner {
            cgroup: prev.at().cgroup().unwrap_or(CgroupId::ROOT),
            tgid: 0,
        };
    } else if !seen(state, prev) {
        state.counts.missed_switches += 1;
        if state.counts.missed_switches == 1 {
            lifecycle::tell(LifecycleKind::SwitchMissed, cpu());
        }
        let length = state.length;
        // The scheduler does not keep the idle task's time: it is the rest of the slice after the
        // other task's.
        let ran = if prev.pid() == 0 {
            length.saturating_sub(Task::ran_at(state.task).unwrap_or(length))
        } else {
            // The clocks may differ a little.
            prev.ran(length + (length >> 3))
        };
        other = owner_of(prev);
        // Between two tasks of one owner nothing is estimated.
        if other != owner {
            state.counts.missed_nanos += length;
            share = account::share(ran, length);
            estimated = length;
        }
    }
    account::charge(state, owner, other, share, estimated);
}

/// Whether the running thread is the one that came in last. If not, a switch was missed.
#[inline(always)]
pub(crate) fn seen(state: &CpuState, running: Task) -> bool {
    state.task == running.address()
}

#[inline(always)]
pub(crate) fn stored(state: &CpuState) -> Owner {
    Owner {
        cgroup: state.owner,
        tgid: state.owner_tgid as u32,
    }
}

/// Counts a run. Returns the time for one run in [`SAMPLE_EVERY`], else 0.
#[inline(always)]
pub(crate) fn begin(state: &mut CpuState) -> u64 {
    state.counts.runs += 1;
    if state.counts.runs.is_multiple_of(SAMPLE_EVERY) {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_ktime_get_ns() }
    } else {
        0
    }
}

#[inline(always)]
pub(crate) fn end(began: u64, sampled: &mut SampledCost) {
    if began != 0 {
        sampled.samples += 1;
        // SAFETY: the helper has no preconditions.
        sampled.nanos += unsafe { bpf_ktime_get_ns() } - began;
    }
}
