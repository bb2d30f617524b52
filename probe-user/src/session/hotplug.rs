//! Detects CPUs that go offline or come online: the counters of a CPU that went offline stay dead,
//! and `pull/upkeep.rs` opens new ones.

use std::{
    collections::HashMap,
    os::fd::RawFd,
    time::{Duration, Instant},
};

use probe_common::CpuState;

use crate::sys::uevents::CpuUevents;

/// The enabled time of a working counter grows within these nanoseconds: a kernel that does not
/// trust the CPU's clock advances its own by ticks, of 10 ms at most.
const CERTAINLY_ENABLED: u64 = 100_000_000;

/// The longest time for which the kernel refuses events on a CPU that it lists as online: it lists
/// a CPU before perf can count there, and still does when perf no longer can. This takes
/// milliseconds; a virtual CPU that gets no time takes longer.
const CHANGES: Duration = Duration::from_secs(10);

/// Detects CPUs that go offline or come online, by the kernel's messages or by stalled counters.
pub(crate) struct Hotplug {
    messages: CpuUevents,
    /// By CPU: the enabled time of its first group, and when that value was first read.
    last_enabled: HashMap<u32, (u64, u64)>,
    /// By CPU: when its events were first refused.
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

    /// The descriptor that is readable when a CPU came online or went offline, if there is one.
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
        now.saturating_duration_since(first) < CHANGES
    }

    /// Forgets refusals on CPUs that are counted or offline. `waiting` is true for the other CPUs.
    pub(super) fn retain_refused(&mut self, waiting: impl Fn(u32) -> bool) {
        self.refused.retain(|cpu, _| waiting(*cpu));
    }

    /// Forgets the readings of a CPU.
    pub(super) fn forget(&mut self, cpu: u32) {
        self.last_enabled.remove(&cpu);
    }

    /// Whether repeated readings show that the enabled time of a CPU's counters no longer grows.
    pub(super) fn is_stalled(&mut self, cpu: u32, state: &CpuState) -> bool {
        let now = (state.enabled[0].last, state.since);
        let first = self.last_enabled.entry(cpu).or_insert(now);
        if first.0 != now.0 {
            *first = now;
        }
        now.1.saturating_sub(first.1) > CERTAINLY_ENABLED
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
        assert!(hotplug.may_be_changing(1, start + CHANGES / 2));
        assert!(!hotplug.may_be_changing(1, start + CHANGES));
        // The CPU went offline, and is refused again when it comes back a day later.
        hotplug.retain_refused(|cpu| cpu != 1);
        assert!(hotplug.may_be_changing(1, start + CHANGES * 8640));
    }
}
