//! CPU hotplug: the counters of a CPU that goes offline stay dead, so new ones are opened when it
//! is back.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::RawFd,
};

use probe_common::{CpuState, FlushMode, NO_GROUP};

use super::{CpuCounters, Session, SessionError};
use crate::sys::{descriptors, uevents::CpuUevents};

/// Nanoseconds in which the enabled time of a working counter certainly grows. Where a kernel does
/// not trust the CPU's clock, its own clock advances by ticks, of 10 ms at most.
const CERTAINLY_ENABLED: u64 = 100_000_000;

/// Detects CPUs that go offline or come online, by the kernel's messages or by stalled counters.
pub(crate) struct Hotplug {
    messages: CpuUevents,
    /// By CPU: the enabled time of its first group, and when that value was first read.
    last_enabled: HashMap<u32, (u64, u64)>,
}

impl Hotplug {
    pub(crate) fn listen() -> Self {
        Self {
            messages: CpuUevents::listen(),
            last_enabled: HashMap::new(),
        }
    }

    /// Whether repeated readings show that the enabled time of a CPU's counters no longer grows.
    fn is_stalled(&mut self, cpu: u32, state: &CpuState) -> bool {
        let now = (state.enabled[0].last, state.since);
        let first = self.last_enabled.entry(cpu).or_insert(now);
        if first.0 != now.0 {
            *first = now;
        }
        now.1.saturating_sub(first.1) > CERTAINLY_ENABLED
    }
}

impl Session {
    /// The descriptor that is readable when a CPU came online or went offline, if there is one:
    /// call [`Self::drain`] then.
    #[must_use]
    pub fn hotplug_fd(&self) -> Option<RawFd> {
        self.hotplug.messages.raw_fd()
    }

    /// Opens the counters of CPUs that came (back) online, and closes those of CPUs that went
    /// offline.
    pub(crate) fn update_cpus(&mut self) -> Result<(), SessionError> {
        let changed: Vec<u32> = self
            .hotplug
            .messages
            .changed()
            .into_iter()
            .map(|change| change.cpu)
            .collect();
        let online = self.machine.online()?;
        let known = |cpu| self.counters.iter().any(|counters| counters.cpu == cpu);
        self.uncore.rescan |=
            !changed.is_empty() || online.len() != self.counters.len() || !online.iter().all(known);
        let before: Vec<u32> = self.counters.iter().map(|counters| counters.cpu).collect();
        self.counters
            .retain(|counters| online.contains(counters.cpu) && !changed.contains(&counters.cpu));
        if let Some(spe) = &mut self.spe {
            spe.retain_cpus(|cpu| online.contains(cpu) && !changed.contains(&cpu));
        }
        if let Some(sampling) = &mut self.sampling {
            sampling.retain_cpus(|cpu| online.contains(cpu) && !changed.contains(&cpu));
        }
        let missing: Vec<u32> = online
            .iter()
            .filter(|cpu| self.counters.iter().all(|counters| counters.cpu != *cpu))
            .collect();
        for cpu in before.iter().filter(|cpu| !online.contains(**cpu)) {
            tracing::info!("CPU {cpu} went offline");
        }
        for cpu in missing {
            self.open_online_cpu(cpu)?;
        }
        Ok(())
    }

    /// Opens new counters on CPUs that went offline and came back between two checks. Their old
    /// counters are stalled.
    pub(crate) fn reopen_dead_cpus(
        &mut self,
        states: &BTreeMap<u32, CpuState>,
    ) -> Result<(), SessionError> {
        let fixed = self.config.plan.fixed() > 0;
        let mut dead: Vec<u32> = self.counters.iter().map(|counters| counters.cpu).collect();
        dead.retain(|cpu| {
            let state = states.get(cpu);
            state.is_some_and(|state| {
                (fixed || state.live_events > 0) && self.hotplug.is_stalled(*cpu, state)
            })
        });
        for cpu in dead {
            self.counters.retain(|counters| counters.cpu != cpu);
            if let Some(sampling) = &mut self.sampling {
                sampling.retain_cpus(|other| other != cpu);
            }
            self.hotplug.last_enabled.remove(&cpu);
            self.open_online_cpu(cpu)?;
        }
        Ok(())
    }

    fn open_online_cpu(&mut self, cpu: u32) -> Result<(), SessionError> {
        descriptors::allow(&self.config.descriptors_on(&self.machine, &[cpu]))?;
        let opened = match CpuCounters::open(&self.config.plan, cpu) {
            Ok(opened) => opened,
            // It went offline again while its counters were opened.
            Err(_) if !self.machine.online()?.contains(cpu) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(spe) = &mut self.spe
            && !spe.samples(cpu)
        {
            match spe.open(&mut self.object, cpu) {
                Err(_) if !self.machine.online()?.contains(cpu) => return Ok(()),
                opened => opened?,
            }
        }
        if self.cgroup_switches.is_some() {
            // The hook's own events are dead on this CPU too, and nothing proves that new ones
            // would miss no switch.
            tracing::warn!("CPU {cpu} came online: using hook sched-switch from here on");
            self.fall_back()?;
        }
        self.counters.push(opened);
        if !self.config.plan.groups.is_empty() {
            // A switch must not compare the new counters with the dead ones.
            self.flush(cpu, FlushMode::Disarm, (NO_GROUP, 0))?;
            self.make_idle_rows(cpu)?;
            self.arm(self.counters.len() - 1)?;
        }
        if let Some(sampling) = &mut self.sampling
            && !sampling.samples(cpu)
        {
            sampling.open_or_retry(&mut self.object, cpu);
        }
        tracing::info!("CPU {cpu} came online");
        Ok(())
    }
}
