//! The kernel log: messages about rare and surprising events, with their values, for whoever looks
//! for a cause. Where user space shows none, the verifier drops the code.
//!
//! Programs that may be preempted do not log ([`may_log`]), nor does `event_sample`, which may run in
//! an NMI.

use aya_ebpf::{
    bindings::BPF_RB_PROD_POS, helpers::bpf_ktime_get_ns, macros::map, maps::PerCpuArray,
};
use aya_log_ebpf::{
    debug,
    macro_support::{AYA_LOGS, Level, level_enabled},
};
use probe_common::{CgroupId, CpuState, LifecycleKind, LogCpu, LogKind, UsageKey};

use crate::{kernel::Task, slice, state::cpu};

/// The target of the messages.
const TARGET: &str = "kernel";

/// What became of the messages.
#[map]
static KERNEL_LOG: PerCpuArray<LogCpu> = PerCpuArray::with_max_entries(1, 0);

/// Whether messages are sent. The level is frozen.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    level_enabled(Level::Debug)
}

/// Whether the program that has the state may log: programs that can be preempted have claimed it. On
/// a CPU that is not armed, nothing is counted that could be rare.
#[inline(always)]
pub(crate) fn may_log(state: &CpuState) -> bool {
    state.busy == 0 && state.armed == CpuState::ARMED
}

#[inline(always)]
fn this_cpu() -> Option<&'static mut LogCpu> {
    // SAFETY: a per-CPU value; programs that interrupt each other use other kinds.
    unsafe { KERNEL_LOG.get_ptr_mut(0)?.as_mut() }
}

/// Sends the values of a message, unless its kind has reached its limit on this CPU. User space has
/// the words: with them in the programs, each would be loaded with a thousand instructions more.
#[inline(never)]
fn send(kind: usize, first: u64, second: u64, third: u64, fourth: u64) {
    const SECOND: u64 = 1_000_000_000;
    let Some(limit) = this_cpu().and_then(|log| log.kinds.get_mut(kind)) else {
        return;
    };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if now - limit.since >= SECOND {
        limit.since = now;
        limit.sent = 0;
    }
    if limit.sent >= LogKind::MOST {
        limit.suppressed += 1;
        return;
    }
    limit.sent += 1;
    let suppressed = limit.suppressed;
    let more = suppressed - limit.reported;
    let before = AYA_LOGS.query(u64::from(BPF_RB_PROD_POS));
    debug!(
        (),
        target: TARGET,
        "{} {} {} {} {} {} {}",
        kind as u64,
        cpu(),
        first,
        second,
        third,
        fourth,
        more
    );
    // The macro does not say whether there was room.
    if AYA_LOGS.query(u64::from(BPF_RB_PROD_POS)) == before {
        limit.dropped += 1;
    } else {
        limit.reported = suppressed;
    }
}

/// The map of counts took no row.
#[inline(always)]
pub(crate) fn row_refused(key: &UsageKey, error: i32) {
    send(
        LogKind::RowRefused as usize,
        key.cgroup.0,
        u64::from(key.tgid),
        u64::from(key.group),
        i64::from(error).cast_unsigned(),
    );
}

/// Tells of counters that went back in the last run, and of a missed switch to `task`, whose slice
/// ends.
///
/// Called at the start of a run, which the verifier checks once. It checks the places that count both
/// up to a hundred times, and a look at the level there is code on each path.
#[inline(always)]
pub(crate) fn look_back(state: &CpuState, task: Task) {
    if is_on() && may_log(state) {
        compare_readings(state);
        if state.owner != CgroupId::UNKNOWN && !slice::seen(state, task) {
            switch_missed(state, task);
        }
    }
}

/// Keeps the last readings of the counters: they are other counters from here on.
#[inline(never)]
pub(crate) fn keep_readings(state: &CpuState) {
    if let Some(log) = this_cpu() {
        log.readings = state.last;
    }
}

/// Tells of the first counter that is below the reading that was kept.
#[inline(never)]
fn compare_readings(state: &CpuState) {
    let Some(log) = this_cpu() else { return };
    let mut back = None;
    for (slot, readings) in log.readings.iter().zip(&state.last).enumerate() {
        if back.is_none() && readings.0 > readings.1 {
            back = Some((slot, *readings.0, *readings.1));
        }
    }
    log.readings = state.last;
    if let Some((slot, last, now)) = back {
        send(LogKind::CounterBack as usize, slot as u64, last, now, 0);
    }
}

/// A switch to `task`, which leaves, was missed.
#[inline(never)]
fn switch_missed(state: &CpuState, task: Task) {
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    send(
        LogKind::SwitchMissed as usize,
        u64::from(task.pid()),
        state.owner.0,
        task.cgroup().0,
        now - state.read,
    );
}

/// A chunk of `size` bytes, whose end is at `head`, could not be read.
#[inline(always)]
pub(crate) fn chunk_unreadable(size: u64, head: u64) {
    send(LogKind::ChunkUnreadable as usize, size, head, 0, 0);
}

/// The record of a cgroup or process that came or went was lost.
#[inline(always)]
pub(crate) fn event_lost(kind: LifecycleKind, id: u64, error: i64) {
    let kind = u64::from(kind as u32);
    send(
        LogKind::EventLost as usize,
        kind,
        id,
        error.cast_unsigned(),
        0,
    );
}
