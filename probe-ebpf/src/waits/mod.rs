//! Waits: counters of what tasks do while they do not run ([`SchedulerCounter`]). Each CPU has its
//! own counters, as for perf events: what a counter gains during a slice belongs to the slice's
//! owner. If no event uses these counters, the verifier drops this code.

mod ledger;
mod times;

use aya_ebpf::{Global, macros::map, maps::Array};
use probe_common::{CgroupId, CpuState, SchedulerCounter, WaitTask, WaitTimes};

use crate::{
    kernel::{RunQueue, SCHED_INFO_RUN_DELAY, TASK_SCHED_INFO, Task, UntypedTask, read},
    owner::owner_of,
    state,
};

/// [`SchedulerCounter::BITS`] bits for each slot: the number of the counter that the slot shows, 0
/// for a perf event.
#[unsafe(no_mangle)]
static SCHEDULER_SLOTS: Global<u64> = Global::new(0);

/// The state of threads between their switches; a thread's address selects its entry. User space
/// sets the size.
#[map]
static TASKS: Array<WaitTask> = Array::with_max_entries(1, 0);

/// `TASK_UNINTERRUPTIBLE` and `TASK_NOLOAD` of `linux/sched.h`: threads of the kernel that only
/// wait for work have both.
const UNINTERRUPTIBLE: u32 = 0x2;
const NOLOAD: u32 = 0x400;

/// Whether any slot shows one of these counters.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    SCHEDULER_SLOTS.load() != 0
}

/// Whether this slot shows one of these counters.
#[inline(always)]
pub(crate) fn is_counter(slot: usize) -> bool {
    number(slot) != 0
}

/// The value that a slot shows; None if it shows a perf event.
#[inline(always)]
pub(crate) fn counter(state: &CpuState, slot: usize) -> Option<u64> {
    state.scheduler.get(number(slot).wrapping_sub(1)).copied()
}

#[inline(always)]
fn number(slot: usize) -> usize {
    // The verifier knows the slot's number as a constant.
    const MASK: u64 = (1 << SchedulerCounter::BITS) - 1;
    (SCHEDULER_SLOTS.load() >> (SchedulerCounter::BITS * slot) & MASK) as usize
}

#[inline(always)]
fn add(state: &mut CpuState, counter: SchedulerCounter, increase: u64) {
    state.scheduler[counter as usize - 1] += increase;
}

/// Stores the `run_delay` of a thread that exists when the session starts. Called after the hook is
/// attached: an entry that the hook stored is newer, and stays.
#[inline(always)]
pub(crate) fn add_existing(task: UntypedTask) {
    let info = task.0.wrapping_add(TASK_SCHED_INFO.load());
    let run_delay = read(info.wrapping_add(SCHED_INFO_RUN_DELAY.load()));
    if let (Some(run_delay), Some(entry)) = (run_delay, entry_of(task.0))
        && entry.is_empty()
    {
        *entry = WaitTask::new(task.0, run_delay, 0);
    }
}

#[inline(always)]
fn entry_of(address: u64) -> Option<&'static mut WaitTask> {
    // SAFETY: other CPUs may write the value, and its checksum reveals that.
    unsafe { TASKS.get_ptr_mut(WaitTask::place(address))?.as_mut() }
}

/// The address as a number: the verifier allows no arithmetic on a pointer.
#[inline(always)]
fn address(number: &mut u64, task: Task) -> u64 {
    let number = &raw mut *number;
    // SAFETY: a word of this CPU's state.
    unsafe {
        number.write_volatile(task.address());
        number.read_volatile()
    }
}

/// The address of the open slice's task, as a number.
#[inline(always)]
fn slice_task(state: &CpuState) -> u64 {
    // SAFETY: a word of this CPU's state.
    unsafe { (&raw const state.task).read_volatile() }
}

/// Counts the switch away from a task, which is in the state `task_state`. Call before its slice is
/// charged.
#[inline(always)]
pub(crate) fn leave(state: &mut CpuState, task: Task, preempted: bool, task_state: u32) {
    // A CPU that does not count sees no arrivals: no later arrival would clear what is stored here.
    if task.pid() == 0 || state.armed != CpuState::ARMED {
        return;
    }
    if preempted || task_state == 0 {
        add(state, SchedulerCounter::InvoluntarySwitches, 1);
        return;
    }
    add(state, SchedulerCounter::VoluntarySwitches, 1);
    if task_state & (UNINTERRUPTIBLE | NOLOAD) == UNINTERRUPTIBLE {
        block(state, task);
    }
}

/// Stores the time at which a task goes to uninterruptible sleep.
#[inline(never)]
fn block(state: &mut CpuState, task: Task) {
    let address = address(&mut state.scratch[0], task);
    let (run_delay, now) = (task.sched_info().run_delay(), task.run_queue().clock());
    if let Some(entry) = entry_of(address) {
        // A wait that ended unseen is not counted yet.
        *entry = match entry.is_of(address) && entry.blocked != WaitTask::FIRST {
            true => WaitTask::waiting(address, entry.run_delay, entry.divided, now),
            false => WaitTask::new(address, run_delay, now),
        };
    }
}

/// Preallocates rows on this CPU.
#[inline(always)]
pub(crate) fn preallocate_rows(state: &CpuState) {
    times::preallocate_rows(state);
    if ledger::is_on() {
        ledger::preallocate_rows();
    }
}

/// Starts counting on this CPU, where this task runs.
#[inline(always)]
pub(crate) fn arm(state: &mut CpuState, task: Task) {
    state.lag = 0;
    state.own_wait = 0;
    // Waits that ended while this CPU did not count belong to no owner.
    state.wait_times = WaitTimes::default();
    state.other_buckets = 0;
    if ledger::is_on() {
        // The owner of the time before is not known.
        state.owner = CgroupId::EARLIER;
        ledger::close_slice(state, task.run_queue().clock());
    }
}

/// Ends the open slice at a switch that changes the owner. Counts the time that interrupts and the
/// hypervisor took from its task. Call before the slice is charged.
#[inline(always)]
pub(crate) fn close_slice(state: &mut CpuState, queue: RunQueue) {
    if ledger::is_on() {
        ledger::close_slice(state, queue.clock());
    }
    let lag = queue.clock().wrapping_sub(queue.task_clock());
    let taken = lag.wrapping_sub(state.lag);
    // Not at the first reading, and not if a clock was set.
    if state.lag != 0 && taken.cast_signed() > 0 {
        add(state, SchedulerCounter::Stolen, taken);
    }
    state.lag = lag;
}

/// [`close_slice`] after an unseen switch that brought this task in. Also does what [`charge`]
/// does.
#[inline(always)]
pub(crate) fn close_unseen_slice(state: &mut CpuState, task: Task) {
    if ledger::is_on() {
        let end = match task.pid() {
            // The kernel keeps no time for the idle task.
            0 => task.run_queue().clock(),
            _ => task.sched_info().last_arrival(),
        };
        ledger::close_slice(state, end);
    }
    charge(state);
}

/// [`close_slice`] where the running task changes its owner between two switches.
#[inline(always)]
pub(crate) fn change_owner(state: &mut CpuState, task: Task) {
    if is_on() && ledger::is_on() {
        ledger::close_slice(state, task.run_queue().clock());
    }
}

/// Adds the waits that the CPU's state still holds for the owner of the open slice. Call before the
/// slice is charged.
#[inline(always)]
pub(crate) fn charge(state: &mut CpuState) {
    if is_on() && ledger::is_on() && state.own_wait != 0 {
        ledger::add_own_wait(state);
    }
    if is_on() && times::has_counted(state) {
        times::charge(state);
    }
}

/// A switch that brings a task in.
struct Arrival {
    /// When the task was put into this CPU's run queue; for an unseen switch, when it was switched
    /// in.
    queued: u64,
    /// Nanoseconds since then that `run_delay` does not contain; None if not known.
    in_this_queue: Option<u64>,
    /// Whether this is the task's first arrival.
    is_first: bool,
    is_seen: bool,
}

/// Counts the wait of a task that a switch brings in. Call after its slice was opened.
///
/// The idle task waits for nothing and has no entry: callers leave it out to save time.
///
/// Inlined, like all code that most switches run: a call takes about 10 ns where returns are
/// guarded against speculation.
#[inline(always)]
pub(crate) fn count_arrival(state: &mut CpuState, task: Task, queue: RunQueue) {
    let address = slice_task(state);
    let Some(entry) = entry_of(address) else {
        return;
    };
    let info = task.sched_info();
    let (run_delay, queued) = (info.run_delay(), info.last_queued());
    // Most tasks wait in one run queue, and did not block.
    if entry.is_plain(address, run_delay) && queued != 0 {
        // The kernel adds the same difference after this program.
        let wait = queue.clock().wrapping_sub(queued);
        if ledger::is_on() {
            ledger::divide(state, queued, wait);
        }
        count(state, wait);
        entry.set_plain(address, run_delay.wrapping_add(wait));
    } else {
        count_seen_arrival(state, task, queue);
    }
}

/// [`count_arrival`] for waits and switches that are rare.
#[inline(never)]
pub(crate) fn count_seen_arrival(state: &mut CpuState, task: Task, queue: RunQueue) {
    let info = task.sched_info();
    let queued = info.last_queued();
    let arrival = Arrival {
        queued,
        in_this_queue: (queued != 0).then(|| queue.clock().wrapping_sub(queued)),
        is_first: info.runs() == 0,
        is_seen: true,
    };
    end_wait(state, task, info.run_delay(), arrival);
}

/// Adds a wait of known length to the open slice.
#[inline(always)]
fn count(state: &mut CpuState, wait: u64) {
    add(state, SchedulerCounter::Wait, wait);
    add(state, SchedulerCounter::Waits, 1);
    times::add(state, wait);
}

/// [`count_arrival`] for a running task that was switched in unseen: `run_delay` already contains
/// its whole wait.
#[inline(never)]
pub(crate) fn count_unseen_arrival(state: &mut CpuState, task: Task) {
    let info = task.sched_info();
    let arrival = Arrival {
        queued: info.last_arrival(),
        in_this_queue: Some(0),
        is_first: info.runs() == 1,
        is_seen: false,
    };
    end_wait(state, task, info.run_delay(), arrival);
}

/// Counts the wait of a task that came in while this CPU did not count, and still runs. The ledger
/// may have a part of it already: the task may have waited on another CPU before. Call after its
/// slice was opened.
#[inline(always)]
pub(crate) fn count_uncounted_arrival(state: &mut CpuState, task: Task) {
    let address = slice_task(state);
    let run_delay = task.sched_info().run_delay();
    if entry_of(address).is_some_and(|entry| entry.is_of(address) && entry.run_delay < run_delay) {
        count_unseen_arrival(state, task);
    }
}

/// Counts a wait: what `run_delay` has gained since the task was switched out (the time in run
/// queues that it has left), and the part in this run queue.
#[inline(always)]
fn end_wait(state: &mut CpuState, task: Task, run_delay: u64, arrival: Arrival) {
    if task.pid() == 0 {
        return;
    }
    let address = slice_task(state);
    let Some(entry) = entry_of(address) else {
        return;
    };
    let Arrival { queued, .. } = arrival;
    let is_entry = entry.is_of(address);
    let (mut earlier, mut undivided) = (0, 0);
    let mut is_known = arrival.in_this_queue.is_some();
    // The kernel counts a run only if it counted the wait before it, so a later arrival may look
    // like the first.
    let is_later = !arrival.is_seen && is_entry && entry.blocked != WaitTask::FIRST;
    if arrival.is_first && !is_later {
        earlier = run_delay;
        undivided = run_delay;
        // Otherwise the entry belongs to an earlier thread at this address.
        if is_entry && entry.blocked == WaitTask::FIRST {
            undivided = run_delay.saturating_sub(entry.divided);
        }
    } else if is_entry && run_delay >= entry.run_delay {
        earlier = run_delay - entry.run_delay;
        undivided = run_delay.saturating_sub(entry.divided);
        let slept = queued.wrapping_sub(earlier).wrapping_sub(entry.blocked);
        // The task may have run unseen since it blocked, and slept in another state. Clocks of two
        // run queues may differ a little.
        let slept_since = !arrival.is_seen || task.sched_info().last_arrival() <= entry.blocked;
        if entry.blocked != 0 && is_known && slept_since && slept.cast_signed() > 0 {
            add(state, SchedulerCounter::Uninterruptible, slept);
        }
    } else {
        is_known = false;
    }
    let in_this_queue = arrival.in_this_queue.unwrap_or(0);
    if ledger::is_on() {
        if arrival.is_seen {
            if undivided != 0 {
                ledger::add_elsewhere(state, undivided);
            }
            ledger::divide(state, queued, in_this_queue);
        } else {
            // The task most probably waited on this CPU.
            ledger::divide(state, queued.wrapping_sub(undivided), undivided);
        }
    }
    if is_known {
        count(state, earlier + in_this_queue);
    } else {
        add(state, SchedulerCounter::Wait, earlier + in_this_queue);
        add(state, SchedulerCounter::UnknownWaits, 1);
    }
    *entry = WaitTask::new(address, run_delay + in_this_queue, 0);
}

/// Divides the wait so far of a task that moves to the run queue of CPU `to`, by the slices of the
/// CPU that it leaves. CPU `to` divides the rest. The lock of the run queue that the task left is
/// held.
#[inline(always)]
pub(crate) fn migrate(task: Task, to: u32) {
    let Some(state) = state::this_cpu() else {
        return;
    };
    // On a CPU that does not count, the wait may end unseen.
    if state::of_cpu(to).is_none_or(|state| state.armed != CpuState::ARMED) {
        return;
    }
    let info = task.sched_info();
    let address = address(&mut state.scratch[1], task);
    let Some(entry) = entry_of(address) else {
        return;
    };
    let is_first = info.runs() == 0;
    let is_entry = entry.is_of(address) && (!is_first || entry.blocked == WaitTask::FIRST);
    let before = match (is_entry, is_first) {
        (true, _) => *entry,
        (false, true) => WaitTask::new(address, 0, WaitTask::FIRST),
        // Its wait is unknown.
        (false, false) => return,
    };
    let gain = info.run_delay().wrapping_sub(before.divided);
    let queue = task.run_queue();
    let end = queue.clock();
    if gain.cast_signed() > 0 && ledger::divide_on_cpu(owner_of(task), queue.cpu(), end - gain, end)
    {
        *entry = WaitTask::waiting(address, before.run_delay, info.run_delay(), before.blocked);
    }
}
