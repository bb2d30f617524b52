//! CPUs that go offline and come back. Their old counters stay dead, so new ones are opened.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::RawFd,
};

use probe_common::{CpuState, FlushMode, NO_GROUP};

use super::{CpuCounters, Session, SessionError};
use crate::sys::{descriptors, uevents::Messages};

/// Nanoseconds in which the enabled time of a live counter cannot stand still: where a kernel does
/// not trust the CPU's clock, its own advances by ticks, of 10 ms at most.
const CERTAINLY_ENABLED: u64 = 100_000_000;

/// What the kernel says of CPUs that come and go.
pub(crate) struct Hotplug {
    messages: Messages,
    /// By CPU: the enabled time of its first group, and when that value was first read.
    seen: HashMap<u32, (u64, u64)>,
}

impl Hotplug {
    pub(crate) fn listen() -> Self {
        Self {
            messages: Messages::listen(),
            seen: HashMap::new(),
        }
    }

    /// True where repeated reads of a CPU's counters show that their time stands still.
    fn stands_still(&mut self, cpu: u32, state: &CpuState) -> bool {
        let now = (state.enabled[0].last, state.since);
        let seen = self.seen.entry(cpu).or_insert(now);
        if seen.0 != now.0 {
            *seen = now;
        }
        now.1.saturating_sub(seen.1) > CERTAINLY_ENABLED
    }
}

impl Session {
    /// The descriptor that is readable when a CPU came or went, where there is one: call
    /// [`Self::drain`] then.
    #[must_use]
    pub fn hotplug_fd(&self) -> Option<RawFd> {
        self.hotplug.messages.raw_fd()
    }

    /// Opens the counters of CPUs that came (back) online, and forgets those of CPUs that left.
    pub(crate) fn follow_cpus(&mut self) -> Result<(), SessionError> {
        let changed = self.hotplug.messages.changed().into_iter();
        let changed: Vec<u32> = changed.map(|change| change.cpu).collect();
        let online = self.machine.online()?;
        let known = |cpu| self.counters.iter().any(|counters| counters.cpu == cpu);
        self.uncore.look |=
            !changed.is_empty() || online.len() != self.counters.len() || !online.iter().all(known);
        let before: Vec<u32> = self.counters.iter().map(|counters| counters.cpu).collect();
        self.counters
            .retain(|counters| online.contains(counters.cpu) && !changed.contains(&counters.cpu));
        if let Some(spe) = &mut self.spe {
            spe.keep(|cpu| online.contains(cpu) && !changed.contains(&cpu));
        }
        if let Some(sampling) = &mut self.sampling {
            sampling.keep(|cpu| online.contains(cpu) && !changed.contains(&cpu));
        }
        let missing: Vec<u32> = online
            .iter()
            .filter(|cpu| self.counters.iter().all(|counters| counters.cpu != *cpu))
            .collect();
        for cpu in before.iter().filter(|cpu| !online.contains(**cpu)) {
            tracing::info!("CPU {cpu} went offline");
        }
        for cpu in missing {
            self.revive(cpu)?;
        }
        Ok(())
    }

    /// A CPU that left and came back between two looks is told by its counters, which stand still.
    pub(crate) fn revive_dead(
        &mut self,
        states: &BTreeMap<u32, CpuState>,
    ) -> Result<(), SessionError> {
        let fixed = self.config.plan.fixed() > 0;
        let mut dead: Vec<u32> = self.counters.iter().map(|counters| counters.cpu).collect();
        dead.retain(|cpu| {
            let state = states.get(cpu);
            state.is_some_and(|state| {
                (fixed || state.live_events > 0) && self.hotplug.stands_still(*cpu, state)
            })
        });
        for cpu in dead {
            self.counters.retain(|counters| counters.cpu != cpu);
            if let Some(sampling) = &mut self.sampling {
                sampling.keep(|kept| kept != cpu);
            }
            self.hotplug.seen.remove(&cpu);
            self.revive(cpu)?;
        }
        Ok(())
    }

    fn revive(&mut self, cpu: u32) -> Result<(), SessionError> {
        descriptors::allow(&self.config.descriptors_on(&self.machine, &[cpu]))?;
        let opened = match CpuCounters::open(&self.config.plan, cpu) {
            Ok(opened) => opened,
            // It left again while its counters were opened.
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
            // The program's own events are dead there too, and nothing shows that new ones are
            // complete.
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
