//! Pull: one [`Snapshot`] of every map and uncore counter, stamped with one clock.

mod cgroups;
mod evict;
mod freed;
mod health;
mod idle;
mod lifecycle;
mod processes;
mod sampled;
mod spe;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, CpuState, UsageKey, UsageRow};

pub(crate) use self::{
    evict::EvictionCandidates, freed::FreedRows, idle::LastIdleRows, lifecycle::LifecycleTracker,
    processes::Processes, sampled::SampleTotals, spe::SpeTotals,
};
use super::{ByProcess, CgroupSwitches, Session, SessionError};
use crate::{
    machine::memory::CommandProcesses,
    snapshot::{Names, OVERFLOW, Refused, Snapshot, SpeReading, UsageRows},
    sys::{clock::nanos, largest_child::largest_child},
};

impl Session {
    /// Flushes the CPUs and reads everything.
    ///
    /// An idle CPU is not woken: the length of its open slice follows from the clock, and the
    /// deltas of its other counters come with its next wake-up.
    ///
    /// # Errors
    ///
    /// If a map cannot be read or the flush cannot run.
    pub fn pull(&mut self) -> Result<Snapshot, SessionError> {
        self.update_cpus()?;
        // Owners that ended before this flush get no charge after it.
        self.lifecycle.drain(&mut self.object.maps.lifecycle);
        let ended = self.lifecycle.take_ended();

        let peek = self.uncore.peek();
        let began = self.clock.now();
        let before = self.states()?;
        let flushes = self.flushes;
        self.flush_busy(&before)?;
        let switches = self.cgroup_switches.as_ref().map(CgroupSwitches::switches);
        let at = self.clock.now();
        let mut uncore = self.uncore.read(&self.config.plan);
        let spe = self.pull_spe(&ended)?;
        let mut rows: UsageRows = self.object.maps.usage.all()?.into_iter().collect();
        let after = self.uncore.peek();
        self.uncore.bound_skew(&mut uncore, &peek, &after);
        let live_rows = rows.len();
        let after = self.states()?;
        let skew = nanos(self.clock.now().saturating_sub(began));
        self.add_idle(&mut rows, &before, &after, at)?;
        self.add_overflow(&mut rows, &after)?;
        self.reopen_dead_cpus(&after)?;
        let missed = match self.cgroup_switches.as_ref().zip(switches) {
            Some((hook, switches)) => hook.missed(&switches, &after),
            None => 0,
        };
        self.missed_switches = self.missed_switches.max(missed);

        self.lifecycle.drain(&mut self.object.maps.lifecycle);
        self.free(rows.iter_mut(), &ended)?;
        self.add_cgroup_rows(&rows);
        let freed = self.freed.take(nanos(at));
        let skipped_runs = self.object.programs.skipped_runs();
        self.resync(&after, &rows, spe.as_ref(), skipped_runs)?;
        // After all counts were read, since naming addresses takes time.
        let events = self.pull_sampled(&ended)?;
        if self.config.by_process.any() {
            let sampled = spe.iter().flat_map(|spe| spe.rows.keys());
            let tgids = rows
                .keys()
                .map(|key| key.tgid)
                .chain(sampled.map(|key| key.tgid))
                .chain(self.processes_sampled())
                .chain(self.watched.iter().copied());
            self.name_processes(tgids.collect())?;
        }
        self.lifecycle.update_delegated(&self.hierarchy);
        let names = self.lifecycle.names();
        self.lifecycle.forget();
        // Last, since reading every process takes time.
        let devices = self
            .devices
            .as_mut()
            .map(|devices| devices.read(at))
            .transpose()?;
        let resctrl = self.resctrl.as_mut();
        let monitored = resctrl.map_or_else(Vec::new, |resctrl| resctrl.read(at));
        let memory = self.memory.as_ref().map(|memory| {
            let cgroups = names.cgroups.iter().map(|(id, path)| (*id, path.as_str()));
            let command = self
                .command
                .map(|command| self.processes_of(command, &names));
            let processes = names.processes.keys().copied();
            memory.read(cgroups, processes, command.as_ref())
        });
        if missed > 0 {
            tracing::warn!(
                "hook cgroup-switches missed {missed} switches: using sched-switch from here on"
            );
            self.fall_back()?;
        }
        self.store_pull_time(nanos(at))?;
        if let Some(messages) = &mut self.object.maps.messages {
            messages.drain();
        }
        let log = self.log_counts()?;
        let mut health = self.health(&after, live_rows, self.flushes - flushes, log);
        health.skew = Some(skew);
        health.skipped_runs = Some(skipped_runs);
        let refused = Refused::from_counts(&health.sum);
        for news in refused.news(self.refused, self.max_rows) {
            tracing::warn!("{news}");
        }
        self.refused = refused;
        if after.values().any(|state| state.counts.missed_switches > 0) {
            self.react_to_missed();
        }
        self.object.programs.release_types();
        // After everything else was read, so that the other readings are close to the counts.
        self.evict_rows(&rows)?;
        Ok(Snapshot {
            at,
            boot_time: self.clock.boot_time(),
            rows,
            freed,
            uncore,
            topology: self.uncore.topology(),
            devices,
            monitored,
            memory,
            spe,
            sampled: events,
            names,
            health,
        })
    }

    /// Waits up to `limit` for names that were requested, and puts them into a snapshot that was
    /// already taken: for a run that ends before runtimes have answered.
    pub fn await_names(&mut self, snapshot: &mut Snapshot, limit: Duration) {
        let Some(resolver) = &self.config.resolver else {
            return;
        };
        resolver.wait_until_asked(limit);
        let described = resolver.names();
        if !Arc::ptr_eq(&described, &snapshot.names.described) {
            Arc::make_mut(&mut snapshot.names).described = described;
        }
        snapshot.health.names = Some(resolver.health());
    }

    /// The descriptor that is readable when cgroups or processes started or ended: call
    /// [`Self::drain`] then.
    #[must_use]
    pub fn lifecycle_fd(&self) -> std::os::fd::RawFd {
        self.object.maps.lifecycle.raw_fd()
    }

    /// Processes events between pulls: starts and ends of cgroups and processes, so that the ring
    /// does not fill up; changes of CPUs, so that a CPU that comes online counts at once; and
    /// missed switches. If many owners have ended, frees their rows, so that the map does not fill
    /// up. If it is full, evicts rows.
    ///
    /// # Errors
    ///
    /// If the counters of a CPU that came online cannot be opened, or rows cannot be freed.
    pub fn drain(&mut self) -> Result<(), SessionError> {
        self.lifecycle.drain(&mut self.object.maps.lifecycle);
        let ended = self.lifecycle.ended_count();
        if self.counts_fill_up(ended) || self.samples_fill_up(ended) {
            self.free_in_between()?;
        }
        if self.lifecycle.take_switch_missed() {
            self.react_to_missed();
        }
        if self.lifecycle.take_rows_full() {
            self.evict_in_between()?;
        }
        self.update_cpus()?;
        self.object.programs.release_types();
        Ok(())
    }

    fn flush_busy(&mut self, states: &BTreeMap<u32, CpuState>) -> Result<(), SessionError> {
        let mode = self.charge_mode();
        let busy = |cpu: &u32| {
            states
                .get(cpu)
                .is_none_or(|state| state.owner != CgroupId::IDLE)
        };
        let cpus: Vec<usize> = (0..self.counters.len())
            .filter(|at| busy(&self.counters[*at].cpu))
            .collect();
        cpus.into_iter()
            .try_for_each(|at| self.flush_as_is(at, mode))
    }

    /// Adds the counts for which USAGE had no room: one row per CPU and group.
    fn add_overflow(
        &self,
        rows: &mut UsageRows,
        states: &BTreeMap<u32, CpuState>,
    ) -> Result<(), SessionError> {
        if states.values().all(|state| state.counts.overflowed == 0) {
            return Ok(());
        }
        for group in 0..self.config.plan.groups.len() {
            let group = u16::try_from(group).expect("the key's group is 16 bits wide");
            let rows_of_cpus = self.object.maps.overflow.get(u32::from(group))?;
            for (cpu, row) in rows_of_cpus {
                if row != UsageRow::ZERO {
                    let cpu = u16::try_from(cpu).expect("the key's CPU is 16 bits wide");
                    *rows.get_or_zero(UsageKey {
                        cgroup: OVERFLOW,
                        tgid: 0,
                        cpu,
                        group,
                    }) = row;
                }
            }
        }
        Ok(())
    }

    /// Has the next pulls report which of these processes run, even if they have no row.
    pub(crate) fn watch(&mut self, processes: HashSet<u32>) {
        self.watched = processes;
    }

    /// Has the next pulls report the memory use of a started command's processes, in a session that
    /// reads memory use. `command` is the owner that it is charged to.
    pub(crate) fn watch_command(&mut self, command: CgroupId) {
        self.command = Some(command).filter(|_| self.machine.is_in_initial_pid_namespace());
    }

    /// The processes of a command: those in its cgroup and below, or those of its process tree. A
    /// process that cannot be read has ended.
    fn processes_of(&self, command: CgroupId, names: &Names) -> CommandProcesses {
        let live = if command == CgroupId::COMMAND {
            let all = self.object.maps.command.all().unwrap_or_default();
            all.into_iter().map(|(pid, _)| pid).collect()
        } else {
            let path = names.cgroups.get(&command).map(String::as_str);
            let found = path.map(|path| self.hierarchy.processes(path));
            found.into_iter().flatten().collect()
        };
        CommandProcesses {
            running: live,
            largest_ended: largest_child(),
        }
    }

    /// Inserts a row for each cgroup whose processes have rows, so that the cgroup stays when they
    /// end.
    fn add_cgroup_rows(&self, rows: &UsageRows) {
        if self.config.by_process != ByProcess::Counts {
            return;
        }
        let own: HashSet<CgroupId> = rows
            .keys()
            .filter(|key| key.tgid == 0)
            .map(|key| key.cgroup)
            .collect();
        let of_processes = rows.keys().map(|key| key.cgroup);
        let lacking: HashSet<CgroupId> = of_processes
            .filter(|cgroup| !own.contains(cgroup) && self.lifecycle.exists(*cgroup))
            .collect();
        if let Err(error) = self.make_rows(lacking.into_iter()) {
            // The map is full, which is reported elsewhere.
            tracing::debug!("{error}");
        }
    }

    /// Names running processes. Ended processes have reported their names; they are looked for as
    /// long as their exits may last.
    fn name_processes(&mut self, mut tgids: HashSet<u32>) -> Result<(), SessionError> {
        tgids.extend(self.lifecycle.ended_processes());
        tgids.remove(&0);
        let found = self.processes.find(&mut self.object, tgids)?;
        self.lifecycle.add_processes(found);
        Ok(())
    }

    /// Walks over all cgroups if lifecycle records were lost. The rows of cgroups that no longer
    /// exist are freed at the next pull, and cgroups that the mount shows get their names. A cgroup
    /// that is created or removed during the walk has a record after it; if this is lost too, the
    /// next pull walks again.
    fn resync(
        &mut self,
        states: &BTreeMap<u32, CpuState>,
        rows: &UsageRows,
        spe: Option<&SpeReading>,
        skipped_runs: u64,
    ) -> Result<(), SessionError> {
        let lost: u64 = states.values().map(|state| state.counts.lost_events).sum();
        // A program run that the kernel skipped is a lost record too.
        let lost = lost + skipped_runs;
        if !self.lifecycle.lost_more(lost) {
            return Ok(());
        }
        let sampled = spe
            .iter()
            .flat_map(|spe| spe.rows.keys())
            .map(|key| key.cgroup);
        let owners = rows.keys().map(|key| key.cgroup).chain(sampled);
        // All of these existed before the walk.
        let mut known: HashSet<CgroupId> = owners.chain(self.lifecycle.named_cgroups()).collect();
        known.retain(|id| id.is_cgroup());
        self.lifecycle.add_cgroups(self.hierarchy.walk()?);
        // The mount may show a part of the hierarchy only.
        let gone = cgroups::find_gone(&mut self.object, &known)?;
        self.lifecycle.add_ended(gone, []);
        Ok(())
    }

    /// Whether so many owners ended that their rows may soon fill the map. The limit is an eighth
    /// of the map: each owner may have rows on several CPUs, and its last rows are freed only the
    /// second time after its end.
    fn counts_fill_up(&self, ended: usize) -> bool {
        ended * self.config.plan.groups.len() >= (self.max_rows as usize / 8).max(1)
    }

    /// Frees the rows of ended owners, for callers that pull rarely. The next snapshot has them.
    fn free_in_between(&mut self) -> Result<(), SessionError> {
        let ended = self.lifecycle.take_ended();
        let before = self.states()?;
        self.flush_busy(&before)?;
        let mut summed = self.free_spe(&ended)?;
        self.read_sampled(&ended)?;
        let mut rows = self.object.maps.usage.all()?;
        rows.retain(|(key, _)| ended.iter().any(|ended| ended.contains(key)));
        self.free(rows.iter_mut().map(|(key, row)| (&*key, row)), &ended)?;
        summed |= self.freed.add(rows, self.max_rows as usize);
        if summed {
            let kept = self
                .freed
                .rows
                .iter()
                .map(|(key, _)| key.tgid)
                .chain(self.sampled_processes())
                .chain(self.processes_sampled())
                .collect();
            self.lifecycle.forget_processes(&kept);
        }
        Ok(())
    }

    /// Removes the rows of ended owners from the map; `rows` keeps their last values.
    fn free<'a>(
        &self,
        rows: impl Iterator<Item = (&'a UsageKey, &'a mut UsageRow)>,
        ended: &[Arc<lifecycle::EndedOwners>],
    ) -> Result<(), SessionError> {
        if ended.iter().all(|ended| ended.is_empty()) {
            return Ok(());
        }
        for (key, row) in rows.filter(|(key, _)| ended.iter().any(|ended| ended.contains(key))) {
            if let Some(last) = self.object.maps.usage.take(key)? {
                *row = last;
            }
        }
        Ok(())
    }
}
