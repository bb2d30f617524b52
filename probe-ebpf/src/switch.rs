//! The hooks that see one owner end and another begin.
//!
//! `sched_switch` is the default: it runs at every context switch and returns at once where
//! the owner stays the same. `cgroup_switch` only runs where the cgroup changes, but it
//! cannot tell who comes next and some kernels drop runs of it; user space admits it only
//! where it has shown that none is missing, and keeps watching. `sched_exit` sees, late, the switches
//! that a kernel hides from `sched_switch`; user space attaches it where it has met one.

use aya_ebpf::{
    Global,
    bindings::BPF_F_NO_PREALLOC,
    helpers::bpf_ktime_get_ns,
    macros::{btf_tracepoint, map, perf_event},
    maps::HashMap,
    programs::{BtfTracePointContext, PerfEventContext},
};
use probe_common::{CgroupId, CpuState, SAMPLE_EVERY, SampledCost};

use crate::{
    account::{self, Owner},
    kernel::Task,
    lifecycle,
};

/// 1: rows are keyed by process as well.
#[unsafe(no_mangle)]
pub(crate) static BY_PROCESS: Global<u8> = Global::new(0);

/// 1: processes in COMMAND, and their children, own their slices under [`CgroupId::COMMAND`].
#[unsafe(no_mangle)]
static FOLLOW_COMMAND: Global<u8> = Global::new(0);

/// Processes of a command that could not be given a cgroup of its own. User space sets the size.
#[map]
static COMMAND: HashMap<u32, u8> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Whom a slice of this task belongs to.
#[inline(always)]
pub(crate) fn owner_of(task: Task) -> Owner {
    if task.pid() == 0 {
        return Owner {
            cgroup: CgroupId::IDLE,
            tgid: 0,
        };
    }
    let mut owner = Owner {
        cgroup: task.cgroup(),
        tgid: 0,
    };
    if BY_PROCESS.load() == 1 {
        owner.tgid = task.tgid();
    }
    if follows(task) {
        owner.cgroup = CgroupId::COMMAND;
    }
    owner
}

/// Whether its slices are the command's.
#[inline(always)]
pub(crate) fn follows(task: Task) -> bool {
    FOLLOW_COMMAND.load() == 1 && COMMAND.get_ptr(task.tgid()).is_some()
}

// Inlined, since the macro wraps it into the program's entry: a call less at every switch.
#[btf_tracepoint(function = "sched_switch")]
#[inline(always)]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let Some(state) = account::state() else {
        return 0;
    };
    let began = begin(state);
    // SAFETY: arguments 1 and 2 of sched_switch are the previous and the next task.
    let (prev, next) = unsafe { (Task::new(ctx.arg(1)), Task::new(ctx.arg(2))) };
    if seen(state, prev) && stays(state, prev, next) {
        state.task = next.address();
        end(began, &mut state.same);
    } else {
        switch_owner(state, prev, next, began);
    }
    0
}

/// Whether both tasks are in the set of cgroups that the open slice was begun in: in the same cgroup
/// then, whose id is three loads further and not needed. Most switches end here.
///
/// `prev` too: had it been moved while it ran, the address may by now be that of another set.
#[inline(always)]
fn stays(state: &CpuState, prev: Task, next: Task) -> bool {
    prev.cgroup_set() == state.set && next.cgroup_set() == state.set && next.pid() != 0
}

/// A switch to another owner, or one where that has to be found out.
///
/// A function of its own in the kernel: the stack and the registers that it needs cost nothing where
/// the owner stays.
#[inline(never)]
fn switch_owner(state: &mut CpuState, prev: Task, next: Task, began: u64) {
    if state.armed != CpuState::ARMED {
        return;
    }
    // To idle and from idle is always a change: the counters are read before next's cgroup is
    // looked up, which after a sleep is cold memory.
    let certain = (prev.pid() == 0) != (next.pid() == 0);
    if certain {
        account::read(state, Some(prev));
    }
    let coming = owner_of(next);
    if !certain {
        if coming == stored(state) && seen(state, prev) {
            open(state, next, coming);
            end(began, &mut state.same);
            return;
        }
        account::read(state, Some(prev));
    }
    charge(state, prev);
    open(state, next, coming);
    end(began, &mut state.changed);
}

/// Counts from here on: what the counters have now is their baseline, and no slice was before it.
#[inline(always)]
pub(crate) fn arm(state: &mut CpuState) {
    // The counters may be new ones, so a reading below the last one is no surprise.
    let rebased = state.rebased;
    account::read(state, None);
    state.rebased = rebased;
    state.length = 0;
    // New clock events have another start.
    state.ahead = i64::MAX;
    state.armed = CpuState::ARMED;
    let task = Task::current();
    open(state, task, owner_of(task));
}

/// The slice that begins is `task`'s, whose owner is `owner`.
#[inline(always)]
pub(crate) fn open(state: &mut CpuState, task: Task, owner: Owner) {
    state.task = task.address();
    state.owner = owner.cgroup;
    state.owner_tgid = u64::from(owner.tgid);
    let by_set = BY_PROCESS.load() == 0 && FOLLOW_COMMAND.load() == 0 && task.pid() != 0;
    state.set = if by_set { task.cgroup_set() } else { 0 };
}

/// `task`, which runs and goes on, has another owner from here on.
#[inline(always)]
pub(crate) fn hand_on(state: &mut CpuState, task: Task) {
    // An unknown owner is learnt at the end of the slice, and this one is lost by then.
    if state.armed != CpuState::ARMED || state.owner == CgroupId::UNKNOWN {
        return;
    }
    let owner = owner_of(task);
    if owner != stored(state) {
        account::read(state, None);
        charge_slice(state, task);
        open(state, task, owner);
    }
}

/// Whoever has the open slice leaves it with a switch that tells.
#[inline(always)]
pub(crate) fn forget(state: &mut CpuState) {
    state.owner = CgroupId::UNKNOWN;
    state.set = 0;
}

/// The way out of the scheduler, in the context of the task that came in: at once where `sched_switch`
/// has seen that one come. A kernel that runs no program in the context of some task (the sandbox
/// that this was built in hides its init so) does not show its leaving. What the counters have gained
/// since is of the way out, and of interrupts that were held back by the switch.
#[btf_tracepoint(function = "sched_exit_tp")]
fn sched_exit(_: BtfTracePointContext) -> i32 {
    let Some(state) = account::state() else {
        return 0;
    };
    // Interrupts are on here.
    account::claim(state);
    let began = begin(state);
    let task = Task::current();
    if state.armed != CpuState::ARMED || state.owner == CgroupId::UNKNOWN || seen(state, task) {
        end(began, &mut state.same);
    } else {
        state.late += 1;
        account::read(state, None);
        let owner = stored(state);
        account::charge(state, owner);
        open(state, task, owner_of(task));
        end(began, &mut state.changed);
    }
    account::release(state);
    0
}

#[perf_event]
fn cgroup_switch(_: PerfEventContext) -> u32 {
    let Some(state) = account::state() else {
        return 0;
    };
    let began = begin(state);
    let prev = Task::current();
    state.idle_runs += u64::from(prev.pid() == 0);
    if state.armed == CpuState::ARMED {
        account::read(state, Some(prev));
        // Whoever was found by arming or by the other hook may have left since, inside its cgroup.
        forget(state);
        charge(state, prev);
    }
    end(began, &mut state.changed);
    0
}

/// Charges the open slice, which `prev` ends, to its owner: the one stored when it came in, even if
/// another task has moved it since, which is counted.
#[inline(always)]
pub(crate) fn charge(state: &mut CpuState, prev: Task) {
    let in_its_set = state.set != 0 && state.set == prev.cgroup_set();
    if !in_its_set
        && state.owner != CgroupId::UNKNOWN
        && seen(state, prev)
        && owner_of(prev) != stored(state)
    {
        state.moved += 1;
    }
    charge_slice(state, prev);
}

/// Where the hook does not learn who comes in, the owner is who leaves; idle and the root cgroup are
/// one then.
#[inline(always)]
fn charge_slice(state: &mut CpuState, prev: Task) {
    if state.owner == CgroupId::UNKNOWN {
        let owner = Owner {
            cgroup: prev.cgroup(),
            tgid: 0,
        };
        account::charge(state, owner);
    } else if seen(state, prev) {
        let owner = stored(state);
        account::charge(state, owner);
    } else {
        state.missed_switches += 1;
        if state.missed_switches == 1 {
            lifecycle::switch_missed(account::cpu());
        }
        let owners = (stored(state), owner_of(prev));
        let length = state.length;
        // Between two of one owner nothing is estimated.
        if owners.0 != owners.1 {
            state.missed_nanos += length;
        }
        // Of the idle task the scheduler does not keep it: all but what the other one ran is idle's.
        let ran = if prev.pid() == 0 {
            length.saturating_sub(Task::ran_at(state.task).unwrap_or(length))
        } else {
            prev.ran()
        };
        account::charge_two(state, owners, ran, length);
    }
}

/// False where the thread that runs is not the one that came in last: some switch in between was not
/// seen.
#[inline(always)]
fn seen(state: &CpuState, running: Task) -> bool {
    state.task == running.address()
}

#[inline(always)]
fn stored(state: &CpuState) -> Owner {
    Owner {
        cgroup: state.owner,
        tgid: state.owner_tgid as u32,
    }
}

/// Counts a run; 0, or the time for one run in [`SAMPLE_EVERY`].
#[inline(always)]
fn begin(state: &mut CpuState) -> u64 {
    state.runs += 1;
    if state.runs.is_multiple_of(SAMPLE_EVERY) {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_ktime_get_ns() }
    } else {
        0
    }
}

#[inline(always)]
fn end(began: u64, sampled: &mut SampledCost) {
    if began != 0 {
        sampled.samples += 1;
        // SAFETY: the helper has no preconditions.
        sampled.nanos += unsafe { bpf_ktime_get_ns() } - began;
    }
}

/// A child of a process in COMMAND belongs to the command.
#[btf_tracepoint(function = "sched_process_fork")]
fn follow_fork(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: arguments 0 and 1 of sched_process_fork are the parent and the child.
    let (parent, child) = unsafe { (Task::new(ctx.arg(0)), Task::new(ctx.arg(1))) };
    if COMMAND.get_ptr(parent.tgid()).is_some() {
        // A full table loses the child to its cgroup's row: counted nowhere twice.
        let _ = COMMAND.insert(child.tgid(), 1, 0);
    }
    0
}

/// A process that is gone leaves its id to others.
#[btf_tracepoint(function = "sched_process_free")]
fn follow_free(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of sched_process_free is the task.
    let task = unsafe { Task::new(ctx.arg(0)) };
    if task.pid() == task.tgid() {
        let _ = COMMAND.remove(task.tgid());
    }
    0
}
