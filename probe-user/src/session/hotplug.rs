//! Detects CPUs that go offline or come online: the counters of a CPU that went offline stay dead,
//! and `pull/upkeep.rs` opens new ones.

use std::{
    collections::HashMap,
    os::fd::RawFd,
    time::{Duration, Instant},
};

use probe_common::CpuState;

use crate::sys::uevents::CpuUevents;

/// Nanoseconds within which the enabled time of a working counter certainly grows. A kernel that
/// does not trust the CPU's clock advances its own clock only at each tick, every 10 ms at most.
const STALLED_AFTER: u64 = 100_000_000;

/// The longest time for which the kernel may refuse events on a CPU that it lists as online. It
/// lists a CPU before perf can count there, and still lists it when perf no longer can. This takes
/// milliseconds, and longer on a virtual CPU that gets no time.
const MAX_CHANGE_TIME: Duration = Duration::from_secs(10);

/// Detects CPUs that go offline or come online, by the kernel's messages or by stalled counters.
pub(crate) struct Hotplug {
    messages: CpuUevents,
    /// By CPU: the enabled time of its first group, and the time at which that value was first
    /// read, both in ns.
    last_enabled: HashMap<u32, (u64, u64)>,
    /// By CPU: the time at which its events were first refused.
    refused: HashMap<u32, Instant>,
}

impl Hotplug {
    pub(crate) fn listen() -> Self {
        Self {
            messages: CpuUevents::listen(),
            last_enabled: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    /// The descriptor that is readable when a CPU came online or went offline; None if the kernel's
    /// messages are not available.
    pub(super) fn raw_fd(&self) -> Option<RawFd> {
        self.messages.raw_fd()
    }

    /// The CPUs that came online or went offline since the last call.
    pub(super) fn changed(&mut self) -> Vec<u32> {
        let changes = self.messages.changed().into_iter();
        changes.map(|change| change.cpu).collect()
    }

    /// Notes that the kernel refuses events on an online CPU. Returns whether the CPU may still be
    /// coming online or going offline.
    pub(super) fn may_be_changing(&mut self, cpu: u32, now: Instant) -> bool {
        let first = *self.refused.entry(cpu).or_insert(now);
        now.saturating_duration_since(first) < MAX_CHANGE_TIME
    }

    /// Forgets refusals on CPUs that are counted or offline: `is_uncounted` is false for these.
    pub(super) fn retain_refused(&mut self, is_uncounted: impl Fn(u32) -> bool) {
        self.refused.retain(|cpu, _| is_uncounted(*cpu));
    }

    /// Forgets the readings of a CPU.
    pub(super) fn forget(&mut self, cpu: u32) {
        self.last_enabled.remove(&cpu);
    }

    /// Whether the enabled time of a CPU's counters no longer grows, by the readings so far.
    pub(super) fn is_stalled(&mut self, cpu: u32, state: &CpuState) -> bool {
        let (enabled, time) = (state.enabled[0].last, state.since);
        let last_growth = self.last_enabled.entry(cpu).or_insert((enabled, time));
        if last_growth.0 != enabled {
            *last_growth = (enabled, time);
        }
        time.saturating_sub(last_growth.1) > STALLED_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_cpu_has_its_own_time_limit() {
        let mut hotplug = Hotplug::listen();
        let start = Instant::now();
        assert!(hotplug.may_be_changing(1, start));
        assert!(hotplug.may_be_changing(1, start + MAX_CHANGE_TIME / 2));
        assert!(!hotplug.may_be_changing(1, start + MAX_CHANGE_TIME));
        // The CPU went offline, and is refused again when it comes back a day later.
        hotplug.retain_refused(|cpu| cpu != 1);
        assert!(hotplug.may_be_changing(1, start + MAX_CHANGE_TIME * 8640));
    }
}
