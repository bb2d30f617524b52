//! The kernel log: messages about rare and surprising events, with their values, for diagnosis.
//! Where user space shows no messages, the verifier drops the code.
//!
//! Programs that may be preempted do not log ([`may_log`]), nor does `event_sample`, which may run
//! in an NMI.

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

/// Counts of messages by kind, and the counters' readings with which the next run compares its own.
#[map]
static KERNEL_LOG: PerCpuArray<LogCpu> = PerCpuArray::with_max_entries(1, 0);

/// Whether messages are sent. The verifier knows the level, which is frozen.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    level_enabled(Level::Debug)
}

/// Whether this program may log. Programs that can be preempted set `busy`, and may not log. A CPU
/// that is not armed counts nothing, and has nothing to report.
#[inline(always)]
pub(crate) fn may_log(state: &CpuState) -> bool {
    state.busy == 0 && state.armed == CpuState::ARMED
}

#[inline(always)]
fn this_cpu() -> Option<&'static mut LogCpu> {
    // SAFETY: a per-CPU value; programs that interrupt each other send different kinds.
    unsafe { KERNEL_LOG.get_ptr_mut(0)?.as_mut() }
}

/// Sends the values of a message, unless its kind has reached its limit on this CPU. The texts are
/// in user space: in the programs, each would add a thousand instructions.
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
    if limit.sent >= LogKind::MAX_PER_SECOND {
        limit.suppressed += 1;
        return;
    }
    limit.sent += 1;
    let suppressed = limit.suppressed;
    let newly_suppressed = suppressed - limit.reported;
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
        newly_suppressed
    );
    // The macro does not report whether the ring had room.
    if AYA_LOGS.query(u64::from(BPF_RB_PROD_POS)) == before {
        limit.dropped += 1;
    } else {
        limit.reported = suppressed;
    }
}

/// Logs that the map of counts refused a row.
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

/// Logs a counter that went back in the last run of a program, and a missed switch to `task`, the
/// running or outgoing task.
///
/// Called at the start of a run, where the verifier checks this code once. The verifier checks the
/// code that counts these anomalies up to a hundred times: a test of the log level there would
/// lengthen every path.
#[inline(always)]
pub(crate) fn log_anomalies(state: &CpuState, task: Task) {
    if is_on() && may_log(state) {
        log_counter_back(state);
        if state.owner != CgroupId::UNKNOWN && !slice::is_slice_task(state, task) {
            switch_missed(state, task);
        }
    }
}

/// Stores the last readings as the baseline of the next comparison. Call after an exchange of
/// counters.
#[inline(never)]
pub(crate) fn store_readings(state: &CpuState) {
    if let Some(log) = this_cpu() {
        log.readings = state.last;
    }
}

/// Logs the first counter that is below its stored reading.
#[inline(never)]
fn log_counter_back(state: &CpuState) {
    let Some(log) = this_cpu() else { return };
    let mut went_back = None;
    for (slot, readings) in log.readings.iter().zip(&state.last).enumerate() {
        if went_back.is_none() && readings.0 > readings.1 {
            went_back = Some((slot, *readings.0, *readings.1));
        }
    }
    log.readings = state.last;
    if let Some((slot, last, now)) = went_back {
        send(LogKind::CounterBack as usize, slot as u64, last, now, 0);
    }
}

/// Logs a missed switch to `task`, the running or outgoing task.
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

/// Logs that a chunk of `size` bytes that ends at `head` could not be read.
#[inline(always)]
pub(crate) fn chunk_unreadable(size: u64, head: u64) {
    send(LogKind::ChunkUnreadable as usize, size, head, 0, 0);
}

/// Logs that the record of a new or removed cgroup, or of an ended process, was lost.
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
