//! Accounting: [`read`] reads the counters, [`charge`] adds their deltas since the last reading to
//! an owner's row.

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST},
    helpers::bpf_ktime_get_ns,
    macros::map,
    maps::{HashMap, PerCpuArray},
};
use probe_common::{
    CgroupId, CpuState, GROUP_COUNTERS, GROUPS, GroupTime, LifecycleKind, NO_GROUP, UsageKey,
    UsageRow,
};

use crate::{
    counters::{self, CLOCKS, GROUP_ENDS, ROTATED},
    kernel::Task,
    kernel_log, lifecycle,
    owner::Owner,
    state::cpu,
    waits,
};

/// Counts by owner, CPU and group. Not preallocated: memory is used by the rows of owners that
/// ran, and by some free rows of each CPU. User space sets the size.
#[map]
static USAGE: HashMap<UsageKey, UsageRow> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// Errors of an insert: the map is full, or the kernel has no memory.
pub(crate) const E2BIG: i32 = -7;
const ENOMEM: i32 = -12;

/// Nanoseconds for which a CPU inserts no row after it found the map full. A pull frees rows.
pub(crate) const BACK_OFF: u64 = 10_000_000;

/// Charges for which USAGE has no room: one row per group.
#[map]
static OVERFLOW: PerCpuArray<UsageRow> = PerCpuArray::with_max_entries(GROUPS as u32, 0);

/// Maximum nanoseconds from a switch between two tasks to its program, also in an emulated guest.
/// An older time stamp is not that of the switch.
const LONGEST_DELAY: u64 = 100_000;

/// An unknown time or delay.
const UNKNOWN: u64 = u64::MAX;

/// When the counters are read.
pub(crate) enum Moment {
    /// Not at a switch.
    Now,
    /// At a switch, before `prev` has left.
    SwitchOut {
        prev: Task,
        /// Neither task is the idle task.
        between_tasks: bool,
    },
    /// After the switch that brought this task in.
    SwitchIn(Task),
}

/// Reads every running counter and stores its delta since the last reading.
///
/// Counters are read first and close together: ratios of them then cover the same time, and the
/// look-ups that follow are not charged to the outgoing task.
///
/// Programs run later than the scheduler's time stamp of the switch: by tens of microseconds when
/// the CPU leaves idle with cold caches. Clock counters are set back to this time stamp, but not by
/// more than [`LONGEST_DELAY`] between two tasks: a kernel that is not preemptible takes the time
/// stamp at the wake-up that led to the switch, and the outgoing task runs on until its system call
/// ends. At [`Moment::SwitchIn`] there is no such limit: the program itself may be that late.
#[inline(always)]
pub(crate) fn read(state: &mut CpuState, moment: Moment) {
    // The verifier drops the look-up where no clock is counted.
    let (switched_at, longest) = match moment {
        Moment::SwitchOut {
            prev,
            between_tasks,
        } if CLOCKS.load() != 0 => {
            let longest = if between_tasks {
                LONGEST_DELAY
            } else {
                UNKNOWN
            };
            (prev.switched_out_at(), longest)
        }
        Moment::SwitchIn(task) if CLOCKS.load() != 0 => (task.switched_in_at(state.read), UNKNOWN),
        _ => (None, UNKNOWN),
    };
    read_all(state, switched_at.unwrap_or(UNKNOWN), longest);
}

/// Not inlined, and a loop: with a copy for each slot and caller, the kernel took longer to load
/// the programs than everything else at the start of a session.
#[inline(never)]
fn read_all(state: &mut CpuState, switched_at: u64, longest_delay: u64) {
    let mut group = 0;
    let mut is_first_of_group = true;
    // Not an Option: before 6.3 the verifier refuses to read the unset half of a spilled None.
    let mut delay = UNKNOWN;
    for slot in counters::slots() {
        state.delta[slot] = 0;
        if !is_running(state, slot as u64) {
            if is_first_of_group {
                state.running[group & (GROUPS - 1)].delta = 0;
            }
        } else if let Some(value) = counters::read(state, slot, is_first_of_group) {
            let mut counter = value.counter;
            if CLOCKS.load() >> slot & 1 == 1
                && switched_at != UNKNOWN
                && counter >= state.last[slot]
            {
                if delay == UNKNOWN {
                    delay = hook_delay(state, counter, switched_at);
                    if delay > longest_delay {
                        state.counts.stale_clock_nanos += delay;
                        delay = 0;
                    }
                }
                // At least the last reading: a flush may have read in between.
                counter = state.last[slot].max(counter.saturating_sub(delay));
            }
            // A counter below its last reading was reset or replaced: the new value is the
            // baseline, and nothing is charged.
            if counter >= state.last[slot] {
                state.delta[slot] = counter - state.last[slot];
            } else {
                state.counts.rebased += 1;
            }
            state.last[slot] = counter;
            if is_first_of_group {
                update_time(&mut state.enabled[group & (GROUPS - 1)], value.enabled);
                update_time(&mut state.running[group & (GROUPS - 1)], value.running);
            }
        } else {
            state.counts.read_errors += 1;
            if is_first_of_group {
                state.enabled[group & (GROUPS - 1)].delta = 0;
                state.running[group & (GROUPS - 1)].delta = 0;
            }
        }
        is_first_of_group = GROUP_ENDS.load() >> slot & 1 == 1;
        group += usize::from(is_first_of_group);
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    // Measured from reading to reading, like the counters' own times: a group's running time is a
    // part of this length.
    state.length = now - state.read;
    state.read = now;
    // The scheduler's clock may date from the wake-up that led to this switch, and a flush may have
    // run since.
    state.since = if delay == UNKNOWN {
        now
    } else {
        state.since.max(now.saturating_sub(delay))
    };
}

/// True for slots of fixed groups, and for slots of the rotated group that hold a counter.
#[inline(always)]
fn is_running(state: &CpuState, slot: u64) -> bool {
    slot < ROTATED.load() || slot - ROTATED.load() < state.live_events
}

/// Makes `group` the active rotated group. Its counters' current values are the baseline.
#[inline(always)]
pub(crate) fn switch_group(state: &mut CpuState, group: u64, events: u64) {
    if (state.live, state.live_events) == (group, events) {
        return;
    }
    (state.live, state.live_events) = (group, events);
    let mut index = 0;
    for slot in counters::slots() {
        let is_first_of_group = slot as u64 == ROTATED.load();
        if slot as u64 >= ROTATED.load()
            && is_running(state, slot as u64)
            && let Some(value) = counters::read(state, slot, is_first_of_group)
        {
            state.last[slot] = value.counter;
            if is_first_of_group {
                state.enabled[index & (GROUPS - 1)].last = value.enabled;
                state.running[index & (GROUPS - 1)].last = value.running;
            }
        }
        index += (GROUP_ENDS.load() >> slot & 1) as usize;
    }
    if kernel_log::is_on() {
        kernel_log::store_readings(state);
    }
}

/// Nanoseconds from the switch at `clock` to now, given that a clock event has counted `counter`.
///
/// Both clocks run at the same rate from different starts. The smallest lead of the event so far
/// counts as no delay: its true delay is that of a warm switch, well below a microsecond.
#[inline(always)]
fn hook_delay(state: &mut CpuState, counter: u64, clock: u64) -> u64 {
    let ahead = counter.wrapping_sub(clock).cast_signed();
    if ahead < state.ahead {
        state.ahead = ahead;
    }
    (ahead - state.ahead).cast_unsigned()
}

#[inline(always)]
fn update_time(time: &mut GroupTime, now: u64) {
    time.delta = now.saturating_sub(time.last);
    time.last = now;
}

/// The share for all of what [`read`] found. Shares are in 1/65536.
const ALL: u64 = 1 << 16;

/// Charges what [`read`] found: `share` of it to `other`, the rest to `owner`. `estimated` is how
/// many nanoseconds are divided between the two by an estimate.
#[inline(always)]
pub(crate) fn charge(
    state: &mut CpuState,
    owner: Owner,
    other: Owner,
    share: u64,
    mut estimated: u64,
) {
    if share != 0 {
        let other_estimated = take_share(&mut estimated, share);
        charge_share(state, other.cgroup, other.tgid, share, other_estimated);
    }
    charge_rest(state, owner.cgroup, owner.tgid, estimated);
    state.counts.charges += 1;
}

/// The share, in 1/65536, of the task that ran for the last `ran` nanoseconds of a slice of
/// `length`.
#[inline(always)]
pub(crate) fn share(ran: u64, length: u64) -> u64 {
    // With this unit no product overflows.
    if ran < length {
        (ran << 16) / length
    } else if ran - length < length >> 3 {
        // The two clocks may differ a little.
        ALL
    } else {
        // For a real-time task `ran` may be the time since its start. Such tasks run only briefly.
        0
    }
}

/// Charges `share` (in 1/65536) of what was read. Not inlined, like [`read_all`].
#[inline(never)]
fn charge_share(state: &mut CpuState, cgroup: CgroupId, tgid: u32, share: u64, estimated: u64) {
    // Waits of the slice ended at switches that were seen: they belong to the owner alone.
    charge_part(state, (cgroup, tgid), estimated, |from, slot| match slot {
        Some(slot) if waits::is_counter(slot) => 0,
        _ => take_share(from, share),
    });
}

/// Charges what was read and not yet charged.
#[inline(never)]
fn charge_rest(state: &mut CpuState, cgroup: CgroupId, tgid: u32, estimated: u64) {
    charge_part(state, (cgroup, tgid), estimated, |from, _| *from);
}

#[inline(always)]
fn charge_part(
    state: &mut CpuState,
    (cgroup, tgid): (CgroupId, u32),
    estimated: u64,
    take_part: impl Fn(&mut u64, Option<usize>) -> u64,
) {
    let mut key = UsageKey {
        cgroup,
        tgid,
        cpu: cpu() as u16,
        group: 0,
    };
    let mut row: Option<&'static mut UsageRow> = None;
    let mut index_in_group = 0;
    let mut group = 0;
    for slot in counters::slots() {
        if index_in_group == 0 {
            let rotated = slot as u64 == ROTATED.load();
            key.group = if rotated {
                state.live as u16
            } else {
                group as u16
            };
            row = if rotated && state.live == NO_GROUP {
                None
            } else {
                row_of(state, &key)
            };
            if let Some(row) = row.as_deref_mut() {
                // A multiplexed group could run at any time, also while groups are exchanged: the
                // whole slice is its enabled time. An unmultiplexed group has its counters' own
                // time: the clock is read after them, and a hypervisor may stop the CPU in between.
                let enabled = if rotated && state.turns == 1 {
                    &mut state.length
                } else {
                    &mut state.enabled[group & (GROUPS - 1)].delta
                };
                row.enabled += take_part(enabled, None);
                row.running += take_part(&mut state.running[group & (GROUPS - 1)].delta, None);
                row.estimated += estimated;
            }
        }
        if let Some(row) = &mut row {
            row.counts[index_in_group & (GROUP_COUNTERS - 1)] +=
                take_part(&mut state.delta[slot], Some(slot));
        }
        index_in_group += 1;
        if GROUP_ENDS.load() >> slot & 1 == 1 {
            group += 1;
            index_in_group = 0;
        }
    }
}

/// Takes a share (in 1/65536) out of `from`, and returns it.
#[inline(always)]
fn take_share(from: &mut u64, share: u64) -> u64 {
    let part = (*from >> 16) * share + (((*from & 0xffff) * share) >> 16);
    *from -= part;
    part
}

/// The owner's row, inserted if it is missing; the group's overflow row where USAGE has no room.
#[inline(always)]
fn row_of(state: &mut CpuState, key: &UsageKey) -> Option<&'static mut UsageRow> {
    let row = find_or_insert(state, key);
    // SAFETY: the key contains this CPU, so no other CPU writes this row.
    unsafe { row.as_mut() }
}

/// Frees the row if its words have this sum. Returns whether the row was freed.
#[inline(always)]
pub(crate) fn free_row(key: [u64; 2], sum: u64) -> bool {
    // SAFETY: a key is two words without padding, and any two words are a key (`pod!`).
    let key: UsageKey = unsafe { core::mem::transmute(key) };
    // SAFETY: only this CPU writes the row.
    let is_unchanged = unsafe { USAGE.get(key) }.is_some_and(|row| row.sum() == sum);
    is_unchanged && USAGE.remove(key).is_ok()
}

/// A key that no owner has.
#[inline(always)]
pub(crate) fn spare_key() -> UsageKey {
    UsageKey {
        cgroup: CgroupId::EARLIER,
        tgid: 0,
        cpu: cpu() as u16,
        group: 0,
    }
}

/// Makes the kernel keep more free rows of a map on this CPU: inserts and removes a row that no
/// owner has. The kernel starts with one to four free rows and refills when one is taken
/// (kernel/bpf/memalloc.c), but only once interrupts are on again: not during a switch, a chunk, or
/// the samples of one interrupt.
#[inline(always)]
pub(crate) fn preallocate<K, V>(map: &HashMap<K, V>, key: &K, value: &V) {
    let _ = map.insert(key, value, BPF_NOEXIST.into());
    let _ = map.remove(key);
}

/// Preallocates rows of counts on this CPU.
#[inline(never)]
pub(crate) fn preallocate_rows(state: &CpuState) {
    preallocate(&USAGE, &spare_key(), &state.new_row);
}

/// The row of `key`, inserted if it is missing; the group's overflow row if the map refuses it. Not
/// inlined: one copy for all slots that may be the first of a group.
#[inline(never)]
fn find_or_insert(state: &mut CpuState, key: &UsageKey) -> *mut UsageRow {
    if let Some(row) = USAGE.get_ptr_mut(key) {
        return row;
    }
    if state.read >= state.retry {
        // SAFETY: the helper has no preconditions.
        state.new_row.made = unsafe { bpf_ktime_get_ns() };
        // By reference: a copy would be on the stack.
        let row: &UsageRow = &state.new_row;
        let inserted = USAGE.insert(key, row, BPF_NOEXIST.into());
        if let Some(row) = USAGE.get_ptr_mut(key) {
            state.counts.rows_made += 1;
            return row;
        }
        match inserted.err() {
            // Inserting into a full map is costly: the kernel adds up the rows of all CPUs under
            // one lock.
            Some(E2BIG) => {
                if state.counts.full.is_multiple_of(LifecycleKind::FULL_EVERY) {
                    lifecycle::notify(LifecycleKind::RowsFull, cpu());
                }
                state.counts.full += 1;
                state.retry = state.read + BACK_OFF;
            }
            Some(ENOMEM) => state.counts.no_memory += 1,
            _ => state.counts.contended += 1,
        }
        if kernel_log::is_on() && kernel_log::may_log(state) {
            kernel_log::row_refused(key, inserted.err().unwrap_or_default());
        }
    }
    state.counts.overflowed += 1;
    OVERFLOW
        .get_ptr_mut(u32::from(key.group))
        .unwrap_or_default()
}
