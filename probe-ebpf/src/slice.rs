//! The open slice of a CPU: the time from one change of owner to the next.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use probe_common::{CgroupId, CpuState, LifecycleKind, SAMPLE_EVERY, SampledCost};

use crate::{
    account::{self, Moment},
    kernel::Task,
    kernel_log, lifecycle,
    owner::{BY_PROCESS, FOLLOW_COMMAND, Owner, owner_of},
    state::cpu,
    waits,
};

/// Starts counting: the counters' current values are the baseline of the first slice.
#[inline(always)]
pub(crate) fn arm(state: &mut CpuState) {
    account::preallocate_rows(state);
    if waits::is_on() {
        waits::preallocate_rows(state);
    }
    // The counters may be new, so a reading below the last one does not count as rebased.
    let rebased = state.counts.rebased;
    account::read(state, Moment::Now);
    state.counts.rebased = rebased;
    state.length = 0;
    // New clock events start at another time.
    state.ahead = i64::MAX;
    state.armed = CpuState::ARMED;
    if kernel_log::is_on() {
        kernel_log::store_readings(state);
    }
    let task = Task::current();
    if waits::is_on() {
        waits::arm(state, task);
    }
    open(state, task, owner_of(task));
    if waits::is_on() {
        waits::count_uncounted_arrival(state, task);
    }
}

/// Opens a slice of `task`, which belongs to `owner`.
#[inline(always)]
pub(crate) fn open(state: &mut CpuState, task: Task, owner: Owner) {
    open_with_set(state, task, task.untyped().cgroup_set(), owner);
}

/// [`open`] for a task with a known `css_set`.
#[inline(always)]
pub(crate) fn open_with_set(state: &mut CpuState, task: Task, set: u64, owner: Owner) {
    state.task = task.address();
    state.owner = owner.cgroup;
    state.owner_tgid = u64::from(owner.tgid);
    let by_set = BY_PROCESS.load() == 0 && FOLLOW_COMMAND.load() == 0 && task.pid() != 0;
    state.set = if by_set { set } else { 0 };
}

/// Closes the open slice and opens one for the new owner of the running `task`.
#[inline(always)]
pub(crate) fn change_owner(state: &mut CpuState, task: Task) {
    // An unknown owner is looked up at the end of the slice, and is the new one by then.
    if state.armed != CpuState::ARMED || state.owner == CgroupId::UNKNOWN {
        return;
    }
    let owner = owner_of(task);
    if owner != stored_owner(state) {
        waits::change_owner(state, task);
        account::read(state, Moment::Now);
        charge_slice(state, task);
        open(state, task, owner);
    }
}

/// Marks the owner of the open slice as unknown: it is looked up at the switch that ends the slice.
#[inline(always)]
pub(crate) fn forget(state: &mut CpuState) {
    state.owner = CgroupId::UNKNOWN;
    state.set = 0;
}

/// Charges the open slice to the owner stored when it was opened, and counts a move of `prev` by
/// another task ([`count_move`]). `prev` is the running or outgoing task, and `set` its current
/// `css_set`.
#[inline(always)]
pub(crate) fn charge(state: &mut CpuState, prev: Task, set: u64) {
    count_move(state, prev, set);
    charge_slice(state, prev);
}

/// Counts a move of `prev` by another task: `prev` is the task of the open slice, and no longer
/// belongs to the slice's owner. `set` is the current `css_set` of `prev`.
#[inline(always)]
pub(crate) fn count_move(state: &mut CpuState, prev: Task, set: u64) {
    let in_its_set = state.set != 0 && state.set == set;
    if !in_its_set
        && state.owner != CgroupId::UNKNOWN
        && is_slice_task(state, prev)
        && owner_of(prev) != stored_owner(state)
    {
        state.counts.moved += 1;
    }
}

/// Charges the open slice. An unknown owner is the cgroup of `prev`: the hook did not see this task
/// come in. Idle then counts as the root cgroup.
#[inline(always)]
fn charge_slice(state: &mut CpuState, prev: Task) {
    waits::charge(state);
    let (mut owner, mut other) = (stored_owner(state), stored_owner(state));
    let (mut share, mut estimated) = (0, 0);
    if state.owner == CgroupId::UNKNOWN {
        owner = Owner {
            cgroup: prev.untyped().cgroup().unwrap_or(CgroupId::ROOT),
            tgid: 0,
        };
    } else if !is_slice_task(state, prev) {
        state.counts.missed_switches += 1;
        if state.counts.missed_switches == 1 {
            lifecycle::notify(LifecycleKind::SwitchMissed, cpu());
        }
        let length = state.length;
        // The scheduler keeps no time for the idle task. Idle ran for what the slice's task left of
        // the slice.
        let ran = if prev.pid() == 0 {
            length.saturating_sub(Task::ran_by_address(state.task).unwrap_or(length))
        } else {
            // The clocks may differ a little.
            prev.ran(length + (length >> 3))
        };
        other = owner_of(prev);
        // Nothing is estimated between two tasks of one owner.
        if other != owner {
            state.counts.missed_nanos += length;
            share = account::share(ran, length);
            estimated = length;
        }
    }
    account::charge(state, owner, other, share, estimated);
}

/// Whether the running thread is the task of the open slice. If not, a switch was missed.
#[inline(always)]
pub(crate) fn is_slice_task(state: &CpuState, running: Task) -> bool {
    state.task == running.address()
}

/// The owner of the open slice.
#[inline(always)]
pub(crate) fn stored_owner(state: &CpuState) -> Owner {
    Owner {
        cgroup: state.owner,
        tgid: state.owner_tgid as u32,
    }
}

/// Counts a run of a hook. Returns its start time for one run in [`SAMPLE_EVERY`], else 0.
#[inline(always)]
pub(crate) fn start_run(state: &mut CpuState) -> u64 {
    state.counts.runs += 1;
    if state.counts.runs.is_multiple_of(SAMPLE_EVERY) {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_ktime_get_ns() }
    } else {
        0
    }
}

/// Adds the cost of a run that [`start_run`] timed.
#[inline(always)]
pub(crate) fn finish_run(started: u64, sampled: &mut SampledCost) {
    if started != 0 {
        sampled.samples += 1;
        // SAFETY: the helper has no preconditions.
        sampled.nanos += unsafe { bpf_ktime_get_ns() } - started;
    }
}
