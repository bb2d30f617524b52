//! Pull: takes a [`Snapshot`] of all maps and uncore counters, by one clock.

mod cgroups;
mod evict;
mod freed;
mod idle;
mod lifecycle;
mod processes;
mod sampled;
mod spe;
mod upkeep;
mod waits;

use std::{
    cell::Cell,
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, CpuCounts, CpuState, Field as _, UsageKey, UsageRow, WaitKey};

pub(crate) use self::{
    evict::EvictionCandidates,
    freed::FreedRows,
    idle::{LastIdleRows, make_idle_rows},
    lifecycle::LifecycleTracker,
    sampled::EventSampleTotals,
    spe::SpeTotals,
};
use self::{freed::free_ended, lifecycle::EndedOwners, waits::RowTotals};
use super::{
    ByProcess, EbpfObject, ProcessCounts, Session, SessionError, memory, object,
    sources::PullContext,
};
use crate::{
    plan::Plan,
    snapshot::{
        CountingCost, Health, LogCounts, OVERFLOW, OwnerWaits, Refused, SampleReading, Snapshot,
        UsageRows, WaitReading,
    },
    sys::clock::{nanos, now},
};

/// The totals of waits.
#[derive(Debug, Default)]
pub(crate) struct WaitTotals {
    pairs: RowTotals<WaitKey>,
    lengths: RowTotals<UsageKey>,
}

impl Session {
    /// Flushes the CPUs and reads all counts.
    ///
    /// An idle CPU is not woken. Its time in the open slice follows from the clock; the counts of
    /// its other counters are charged at its next wake-up.
    ///
    /// # Errors
    ///
    /// If a map cannot be read or the flush cannot run.
    pub fn pull(&mut self) -> Result<Snapshot, SessionError> {
        self.update_cpus()?;
        // Owners that ended before this flush get no charge after it.
        self.lifecycle.drain(&mut self.object.maps.lifecycle);
        let ended = self.lifecycle.take_ended();

        let peek_before = self.uncore.peek();
        let began = self.clock.now();
        let before = self.states()?;
        let flushes = self.cpus.flushes;
        self.cpus.flush_busy(&mut self.object, &before)?;
        let switches = self.cpus.hook.switches();
        let at = self.clock.now();
        let mut uncore = self.uncore.read(&self.config.plan);
        let mut samples = match &mut self.spe {
            Some(spe) => spe.pull(&mut self.object, &ended)?,
            None => SampleReading::default(),
        };
        let mut rows: UsageRows = self.object.maps.usage.all()?.into_iter().collect();
        let rows_read_at = self.clock.now();
        self.add_waits(&ended)?;
        let waits = self.read_waits()?;
        let peek_after = self.uncore.peek();
        self.uncore
            .bound_skew(&mut uncore, &peek_before, &peek_after);
        let rows_in_map = rows.len();
        let after = self.states()?;
        let skew = nanos(self.clock.now().saturating_sub(began));
        self.idle.add_open_slices(
            &self.object,
            &self.config.plan,
            &self.cpus,
            &mut rows,
            [&before, &after],
            at,
        )?;
        add_overflow(&self.object, &self.config.plan, &mut rows, &after)?;
        self.reopen_dead_cpus(&after)?;
        let missed = self.cpus.hook.missed(&switches, &after);

        self.lifecycle.drain(&mut self.object.maps.lifecycle);
        let has_ended = |key: &UsageKey| ended.iter().any(|it| it.owns(key.cgroup, key.tgid));
        if ended.iter().any(|ended| !ended.is_empty()) {
            free_ended(&self.object.maps.usage, rows.iter_mut(), has_ended)?;
        }
        self.add_cgroup_rows(&rows);
        let freed = self.freed.take(nanos(rows_read_at));
        let skipped_runs = self.object.programs.skipped_runs();
        let lost: u64 = after.values().map(|state| state.counts.lost_events).sum();
        // A program run that the kernel skipped also sent no record.
        let lost = lost + skipped_runs;
        let sampled_cgroups = samples.rows.keys().map(|key| key.cgroup);
        let owners = rows.keys().map(|key| key.cgroup).chain(sampled_cgroups);
        self.lifecycle.resync(&mut self.object, owners, lost)?;
        // Sampled events come after all counts were read, since naming addresses takes time.
        if let Some(sampling) = &mut self.sampling {
            sampling.pull(&mut self.object, self.clock, &ended, &mut samples)?;
        }
        if self.config.by_process.any() {
            let sampled_tgids = samples.rows.keys().map(|key| key.tgid);
            let tgids = rows.keys().map(|key| key.tgid).chain(sampled_tgids);
            self.lifecycle.name_processes(&mut self.object, tgids)?;
        }
        self.lifecycle.update_delegated();
        let names = self.lifecycle.names();
        self.lifecycle.forget();
        // Sources are read last, since reading every process takes time.
        let sources = self.sources.read(&PullContext {
            at,
            names: &names,
            waits: Cell::new(waits),
            object: &self.object,
            hierarchy: &self.lifecycle.hierarchy,
            command: self.command,
        })?;
        if missed > 0 {
            tracing::warn!(
                "hook cgroup-switches missed {missed} switches: using sched-switch from here on"
            );
            self.cpus.fall_back(&mut self.object)?;
        }
        if let Some(pins) = &mut self.pins {
            pins.handover.store_pull_time(&mut self.object, nanos(at))?;
        }
        if let Some(messages) = &mut self.object.maps.messages {
            messages.drain();
        }
        let log = log_counts(&self.object)?;
        let wait_rows = sources.waits.as_ref();
        let wait_rows = wait_rows.map_or([0; 2], |waits| [waits.rows, waits.length_rows]);
        let rows_of_maps = (rows_in_map, wait_rows);
        let mut health = self.health(&after, rows_of_maps, self.cpus.flushes - flushes, log);
        health.skew = Some(skew);
        health.skipped_runs = Some(skipped_runs);
        let refused = Refused::from_counts(&health.sum);
        for message in refused.news(self.refused, self.max_rows) {
            tracing::warn!("{message}");
        }
        self.refused = refused;
        if after.values().any(|state| state.counts.missed_switches > 0) {
            self.cpus.react_to_missed(&mut self.object);
        }
        self.object.programs.release_types();
        // Eviction comes after all readings, so that these are close in time to the counts.
        let (object, lifecycle) = (&mut self.object, &mut self.lifecycle);
        self.candidates
            .evict(object, lifecycle, &rows, self.max_rows)?;
        Ok(Snapshot {
            at,
            boot_time: self.clock.boot_time(),
            rows,
            freed,
            uncore,
            topology: self.uncore.topology(),
            sources,
            samples: self.samples().then_some(samples),
            names,
            health,
        })
    }

    /// Adds the new waits to the totals. Frees the rows whose owners ended before the last flush,
    /// and rows without new waits if a map fills up.
    fn add_waits(&mut self, ended: &[Arc<EndedOwners>]) -> Result<(), SessionError> {
        if !self.config.plan.counts_waits() {
            return Ok(());
        }
        let maps = &self.object.maps;
        let owns = |cgroup, tgid| ended.iter().any(|it| it.owns(cgroup, tgid));
        let has_ended = |key: &WaitKey| owns(key.waiting, key.tgid) || owns(key.running, 0);
        let rows = maps.waits.all()?;
        let free_from = self.config.max_waits() as usize / 4;
        let waits = &mut self.waits;
        waits
            .pairs
            .add(rows, free_from, has_ended, |key| maps.waits.take(key))?;
        let has_ended = |key: &UsageKey| owns(key.cgroup, key.tgid);
        let rows = maps.wait_times.all()?;
        let free_from = self.max_rows as usize / 4 * 3;
        waits
            .lengths
            .add(rows, free_from, has_ended, |key| maps.wait_times.take(key))
    }

    /// The waits since the session began; none in a session that does not count them.
    fn read_waits(&mut self) -> Result<WaitReading, SessionError> {
        if !self.config.plan.counts_waits() {
            return Ok(WaitReading::default());
        }
        let states = self.states()?;
        let waits = &mut self.waits;
        let owners = waits.lengths.totals();
        let owners = owners.map(|((cgroup, tgid), lengths)| OwnerWaits {
            cgroup,
            tgid,
            lengths,
        });
        Ok(WaitReading {
            pairs: waits.pairs.totals().collect(),
            unplaced: states.values().map(|state| state.unplaced_wait).sum(),
            rows: waits.pairs.rows(),
            owners: owners.collect(),
            unplaced_waits: states.values().map(|state| state.unplaced_waits).sum(),
            length_rows: waits.lengths.rows(),
        })
    }

    /// Waits up to `limit` for requested names, and adds them to a snapshot that was already taken.
    /// A run can end before runtimes have answered.
    pub fn await_names(&mut self, snapshot: &mut Snapshot, limit: Duration) {
        let Some(resolver) = &self.config.resolver else {
            return;
        };
        resolver.wait_until_asked(limit);
        let described = resolver.names();
        if !Arc::ptr_eq(&described, &snapshot.names.described) {
            Arc::make_mut(&mut snapshot.names).described = described;
        }
        snapshot.health.names = self.process_counts().names;
    }

    /// Inserts a row for each cgroup whose processes have rows, so that the cgroup still has a row
    /// when the processes have ended.
    fn add_cgroup_rows(&self, rows: &UsageRows) {
        if self.config.by_process != ByProcess::Counts {
            return;
        }
        let with_own_row: HashSet<CgroupId> = rows
            .keys()
            .filter(|key| key.tgid == 0)
            .map(|key| key.cgroup)
            .collect();
        let cgroups = rows.keys().map(|key| key.cgroup);
        let without_own_row: HashSet<CgroupId> = cgroups
            .filter(|cgroup| !with_own_row.contains(cgroup) && self.lifecycle.exists(*cgroup))
            .collect();
        let now = nanos(self.clock.now());
        let result = self
            .cpus
            .make_rows(&self.object, now, without_own_row.into_iter());
        if let Err(error) = result {
            // The map is full. A pull warns of that when programs find no room for a row.
            tracing::debug!("{error}");
        }
    }

    /// Counts of this process since the session began.
    fn process_counts(&self) -> ProcessCounts {
        ProcessCounts::now(self.config.resolver.as_deref()).since(&self.counts_before)
    }

    fn health(
        &self,
        states: &BTreeMap<u32, CpuState>,
        (rows, wait_rows): (usize, [usize; 2]),
        flushes: u64,
        log: Option<LogCounts>,
    ) -> Health {
        let mut sum = sum_of_counts(states);
        sum.missed_switches += self.cpus.hook.most_missed;
        let log_ring = object::log_ring_size(log.is_some(), self.pins.is_some());
        let elapsed = now().saturating_sub(self.began);
        let read = |cpu| self.read_costs.on(&self.config.plan, cpu);
        let ProcessCounts { map_retries, names } = self.process_counts();
        Health {
            hook: self.hook(),
            cost: CountingCost::from_states(states, elapsed, read, sum.same, sum.changed),
            sum,
            flushes,
            skew: None,
            handed_over: self.pins.as_ref().map(|pins| pins.handover.counts()),
            exchanges: self.cpus.rotation.exchanges,
            rows,
            evicted_rows: Some(self.candidates.evicted),
            memory: memory::counts_memory(rows, self.max_rows, states.len(), log_ring).and(
                self.config
                    .waits_memory(wait_rows, self.max_rows, states.len()),
            ),
            map_retries,
            skipped_runs: None,
            log,
            names,
        }
    }
}

/// The programs' counts of their own work, summed over CPUs.
pub(crate) fn sum_of_counts(states: &BTreeMap<u32, CpuState>) -> CpuCounts {
    let mut sum = CpuCounts::ZERO;
    for state in states.values() {
        sum.add(&state.counts);
    }
    sum
}

/// Suppressed and dropped messages of the kernel log, if it is on.
fn log_counts(object: &EbpfObject) -> Result<Option<LogCounts>, SessionError> {
    if object.maps.messages.is_none() {
        return Ok(None);
    }
    let mut counts = LogCounts::default();
    for cpu in object.maps.kernel_log.get(0)?.values() {
        for kind in cpu.kinds {
            counts.suppressed += kind.suppressed;
            counts.dropped += kind.dropped;
        }
    }
    Ok(Some(counts))
}

/// Adds the counts that did not fit into USAGE, as rows of [`OVERFLOW`]: one per CPU and group.
fn add_overflow(
    object: &EbpfObject,
    plan: &Plan,
    rows: &mut UsageRows,
    states: &BTreeMap<u32, CpuState>,
) -> Result<(), SessionError> {
    if states.values().all(|state| state.counts.overflowed == 0) {
        return Ok(());
    }
    for group in 0..plan.groups.len() {
        let group = u16::try_from(group).expect("the key's group is 16 bits wide");
        let rows_of_cpus = object.maps.overflow.get(u32::from(group))?;
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
