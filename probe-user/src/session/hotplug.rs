//! CPU hotplug: the counters of a CPU that goes offline stay dead, so new ones are opened when it
//! is back.

use std::collections::HashMap;

use probe_common::CpuState;

use crate::sys::uevents::CpuUevents;

/// Nanoseconds in which the enabled time of a working counter certainly grows. Where a kernel does
/// not trust the CPU's clock, its own clock advances by ticks, of 10 ms at most.
const CERTAINLY_ENABLED: u64 = 100_000_000;

/// Detects CPUs that go offline or come online, by the kernel's messages or by stalled counters.
pub(crate) struct Hotplug {
    pub(super) messages: CpuUevents,
    /// By CPU: the enabled time of its first group, and when that value was first read.
    pub(super) last_enabled: HashMap<u32, (u64, u64)>,
}

impl Hotplug {
    pub(crate) fn listen() -> Self {
        Self {
            messages: CpuUevents::listen(),
            last_enabled: HashMap::new(),
        }
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
