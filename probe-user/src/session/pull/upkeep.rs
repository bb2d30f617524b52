//! Upkeep between two pulls: drains events and buffers, frees rows, rotates groups, and follows
//! CPUs that come online or go offline.

use std::{
    collections::{BTreeMap, HashSet},
    os::fd::RawFd,
    time::{Duration, Instant},
};

use probe_common::{CgroupId, CpuState, FlushMode, NO_GROUP};

use super::{freed::free_ended, make_idle_rows};
use crate::{
    session::{CpuCounters, EventSampling, Session, SessionError, SpeSampling},
    snapshot::Hook,
    sys::descriptors,
};

impl Session {
    /// The descriptor that is readable when cgroups or processes started or ended. Call
    /// [`Self::drain`] when it is readable.
    #[must_use]
    pub fn lifecycle_fd(&self) -> RawFd {
        self.object.maps.lifecycle.raw_fd()
    }

    /// The descriptor that is readable when a CPU came online or went offline; None if the kernel's
    /// messages about that are not available. Call [`Self::drain`] when it is readable.
    #[must_use]
    pub fn hotplug_fd(&self) -> Option<RawFd> {
        self.hotplug.raw_fd()
    }

    /// Processes events between pulls: starts and ends of cgroups and processes, so that the ring
    /// does not fill up; changes of CPUs, so that a CPU that comes online counts at once; and
    /// missed switches. If many owners have ended, frees their rows, so that the map does not fill
    /// up. If the map is full, evicts rows.
    ///
    /// # Errors
    ///
    /// If the counters of a CPU that came online cannot be opened, or rows cannot be freed.
    pub fn drain(&mut self) -> Result<(), SessionError> {
        self.lifecycle.drain(&mut self.object.maps.lifecycle);
        let ended = self.lifecycle.ended_count();
        let spe = self.spe.as_ref();
        if self.counts_fill_up(ended) || spe.is_some_and(|spe| spe.fills_up(ended)) {
            self.free_in_between()?;
        }
        if self.lifecycle.take_switch_missed() {
            self.cpus.react_to_missed(&mut self.object);
        }
        if self.lifecycle.take_rows_full() {
            self.evict_in_between()?;
        }
        self.update_cpus()?;
        self.object.programs.release_types();
        Ok(())
    }

    /// Drains the buffers of a session that samples and reads its rows, for callers that pull
    /// rarely. Also does the work of [`Self::drain`].
    ///
    /// # Errors
    ///
    /// The errors of [`Session::pull`].
    pub fn upkeep(&mut self) -> Result<(), SessionError> {
        self.drain()?;
        if let Some(sampling) = &mut self.sampling {
            sampling.read(&mut self.object, self.clock, &[])?;
        }
        if let Some(spe) = &mut self.spe {
            spe.read(&mut self.object, &[])?;
        }
        Ok(())
    }

    /// Whether groups are multiplexed. If so, call [`Self::rotate_if_due`], and again after the
    /// time that it returns.
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.cpus.round() > 1
    }

    /// Switches to the next group if the current multiplexing interval is over. The interval has
    /// the length `fixed`, or one that follows from the cost of exchanges. Returns the time until
    /// the next call.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to exchange the counters.
    pub fn rotate_if_due(&mut self, fixed: Option<Duration>) -> Result<Duration, SessionError> {
        self.cpus.rotate_if_due(&mut self.object, fixed)
    }

    /// Switches to the next group on every CPU now. A CPU that has slept since the last exchange is
    /// not woken.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to exchange the counters.
    pub fn rotate(&mut self) -> Result<(), SessionError> {
        let states = self.states()?;
        self.cpus.rotate(&mut self.object, &states)
    }

    /// Makes the next pulls report which of these processes run, even if they have no row.
    pub(crate) fn watch(&mut self, processes: HashSet<u32>) {
        self.lifecycle.watch(processes);
    }

    /// Makes the next pulls report the memory use of a started command's processes, in a session
    /// that reads memory use. `command` is the owner to which the command is charged.
    pub(crate) fn watch_command(&mut self, command: CgroupId) {
        self.command = Some(command).filter(|_| self.machine.is_in_initial_pid_namespace());
    }

    /// Whether so many owners ended that their rows may soon fill the map. The limit is an eighth
    /// of the map: each owner may have rows on several CPUs, and its last rows may be freed only at
    /// the second pull after its end.
    fn counts_fill_up(&self, ended: usize) -> bool {
        ended * self.config.plan.groups.len() >= (self.max_rows as usize / 8).max(1)
    }

    /// Frees the rows of ended owners between two pulls. The next snapshot has the freed rows.
    fn free_in_between(&mut self) -> Result<(), SessionError> {
        let ended = self.lifecycle.take_ended();
        let before = self.states()?;
        self.cpus.flush_busy(&mut self.object, &before)?;
        self.add_waits(&ended)?;
        let mut summed = false;
        if let Some(spe) = &mut self.spe {
            summed |= spe.free(&mut self.object, &ended)?;
        }
        if let Some(sampling) = &mut self.sampling {
            summed |= sampling.read(&mut self.object, self.clock, &ended)?;
        }
        let mut rows = self.object.maps.usage.all()?;
        rows.retain(|(key, _)| ended.iter().any(|it| it.owns(key.cgroup, key.tgid)));
        let ended_rows = rows.iter_mut().map(|(key, row)| (&*key, row));
        free_ended(&self.object.maps.usage, ended_rows, |_| true)?;
        summed |= self.freed.add(rows, self.max_rows as usize);
        if summed {
            let spe_processes = self.spe.iter().flat_map(SpeSampling::freed_processes);
            let sampled = self.sampling.iter().flat_map(EventSampling::processes);
            let keep = self.freed.processes().chain(spe_processes).chain(sampled);
            self.lifecycle.forget_processes(&keep.collect());
        }
        Ok(())
    }

    /// Evicts rows from a full map between two pulls. The next snapshot has the evicted rows.
    fn evict_in_between(&mut self) -> Result<(), SessionError> {
        if self.candidates.begin_try() {
            let rows = self.object.maps.usage.all()?.into_iter().collect();
            let (object, max_rows) = (&mut self.object, self.max_rows);
            let candidates = &mut self.candidates;
            let evicted = candidates.evict(object, &mut self.lifecycle, &rows, max_rows)?;
            self.freed.add(evicted, max_rows as usize);
        }
        Ok(())
    }

    /// Opens the counters of CPUs that came (back) online, and closes those of CPUs that went
    /// offline.
    pub(super) fn update_cpus(&mut self) -> Result<(), SessionError> {
        let changed = self.hotplug.changed();
        let online = self.machine.online()?;
        let before: Vec<u32> = self.cpus.numbers().collect();
        self.uncore.rescan |= !changed.is_empty()
            || online.len() != before.len()
            || !online.iter().all(|cpu| before.contains(&cpu));
        self.retain_cpus(|cpu| online.contains(cpu) && !changed.contains(&cpu));
        if let Some(spe) = &mut self.spe {
            spe.retain_cpus(|cpu| online.contains(cpu) && !changed.contains(&cpu));
        }
        for cpu in before.iter().filter(|cpu| !online.contains(**cpu)) {
            tracing::info!("CPU {cpu} went offline");
        }
        let counted: Vec<u32> = self.cpus.numbers().collect();
        self.hotplug
            .retain_refused(|cpu| online.contains(cpu) && !counted.contains(&cpu));
        for cpu in online.iter().filter(|cpu| !counted.contains(cpu)) {
            self.open_online_cpu(cpu)?;
        }
        Ok(())
    }

    /// Opens new counters on CPUs that went offline and came back between two checks. Their old
    /// counters are stalled.
    pub(super) fn reopen_dead_cpus(
        &mut self,
        states: &BTreeMap<u32, CpuState>,
    ) -> Result<(), SessionError> {
        let has_fixed_groups = self.config.plan.fixed() > 0;
        let mut dead: Vec<u32> = self.cpus.numbers().collect();
        dead.retain(|cpu| {
            let state = states.get(cpu);
            state.is_some_and(|state| {
                (has_fixed_groups || state.live_events > 0) && self.hotplug.is_stalled(*cpu, state)
            })
        });
        for cpu in dead {
            self.retain_cpus(|other| other != cpu);
            self.hotplug.forget(cpu);
            self.open_online_cpu(cpu)?;
        }
        Ok(())
    }

    /// Closes the counters and sampled events of all CPUs for which `keep` is false.
    fn retain_cpus(&mut self, keep: impl Fn(u32) -> bool) {
        self.cpus.counters.retain(|counters| keep(counters.cpu));
        if let Some(sampling) = &mut self.sampling {
            sampling.retain_cpus(keep);
        }
    }

    fn open_online_cpu(&mut self, cpu: u32) -> Result<(), SessionError> {
        descriptors::allow(&self.config.descriptors_on(&self.machine, &[cpu]))?;
        let plan = &self.config.plan;
        let object = &mut self.object;
        let counters = CpuCounters::open(plan, cpu).and_then(|counters| {
            match &mut self.spe {
                Some(spe) if !spe.samples(cpu) => spe.open(object, cpu)?,
                _ => {}
            }
            Ok(counters)
        });
        let opened = match counters {
            Ok(opened) => opened,
            // The CPU is coming online or going offline: the next call opens its counters or finds
            // it offline.
            Err(_) if !self.machine.online()?.contains(cpu) => return Ok(()),
            Err(error) if self.hotplug.may_be_changing(cpu, Instant::now()) => {
                tracing::debug!("CPU {cpu} is not counted yet: {error}");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if self.cpus.hook.kind() == Hook::CgroupSwitches {
            // The hook's own events are dead on this CPU too. New events would have to be admitted
            // first, which shows that they miss no switch.
            tracing::warn!("CPU {cpu} came online: using hook sched-switch from here on");
            self.cpus.fall_back(object)?;
        }
        self.cpus.counters.push(opened);
        if !plan.groups.is_empty() {
            // A switch must not compare the new counters with the dead ones, so the CPU is disarmed
            // first. Scheduler counters continue: waits that ended since the CPU came online are in
            // the ledger.
            make_idle_rows(object, plan, cpu);
            self.cpus
                .flush(object, cpu, FlushMode::Disarm, (NO_GROUP, 0))?;
            let last = self.cpus.counters.len() - 1;
            self.cpus.arm(object, last)?;
        }
        if let Some(sampling) = &mut self.sampling
            && !sampling.samples(cpu)
        {
            sampling.open_or_retry(object, cpu);
        }
        tracing::info!("CPU {cpu} came online");
        Ok(())
    }
}
