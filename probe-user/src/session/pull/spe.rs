//! Pulls SPE's samples: drains every CPU's buffer, then reads the rows.

mod counts;
mod drain_retry;
mod health;
mod idle;
mod missed_chunks;
mod threads;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use aya::Pod;
use probe_common::{
    Plain,
    spe::{Class, SpeAccess, SpeCpu, SpeKey, SpeRow},
};

use self::{
    counts::WeighedRows,
    drain_retry::weight,
    health::undecoded,
    idle::IdleSpeRows,
    missed_chunks::CpuLog,
    threads::{all_exited, forget},
};
use super::{
    freed::{FreedRows, free_ended},
    lifecycle::EndedOwners,
};
use crate::{
    session::{DrainOutcome, EbpfObject, SessionError, SpeSampling, object::Hash},
    snapshot::{OVERFLOW, SampleCounts, SampleReading, SpeReading},
    sys::clock::now,
};

/// State of SPE sampling from pull to pull.
#[derive(Default)]
pub(crate) struct SpeTotals {
    /// The rows at the last reading, with weighted counts.
    weighed: WeighedRows,
    /// Rows that were freed since the last snapshot.
    freed: FreedRows<SampleCounts>,
    /// Number of rows that were freed since the session began because their owners were idle.
    freed_idle: u64,
    /// The programs' counts of each CPU at the last reading.
    cpus: BTreeMap<u32, SpeCpu>,
    /// Sum of `cpus`.
    sum: SpeCpu,
    /// The programs' counts of CPUs that sample, each read while the CPU was stopped by the current
    /// drain.
    accounts: BTreeMap<u32, SpeCpu>,
    /// Threads that exited before the last drain. The next drain deletes them from the task map.
    exited: Vec<u64>,
    /// Number of exits that the full queue had lost at the last reading. The task map still has
    /// these threads.
    lost_exits: u64,
    /// Sums of the kernel's log of each CPU's buffer, if logs are read.
    logs: BTreeMap<u32, CpuLog>,
    /// The new period from the next drain on, if it changes.
    next_period: Option<u64>,
}

/// Number of rows that a short-lived owner may have: one for each memory level that served its
/// loads and one for stores, on one or two CPUs.
const ROWS_OF_AN_OWNER: usize = 8;

impl SpeSampling {
    /// Drains and reads for a snapshot, and frees the rows of ended owners.
    pub(super) fn pull(
        &mut self,
        object: &mut EbpfObject,
        ended: &[Arc<EndedOwners>],
    ) -> Result<SampleReading, SessionError> {
        let mut reading = self.read(object, ended)?;
        let totals = &mut self.totals;
        reading.freed = totals.freed.take(totals.weighed.readings);
        Ok(reading)
    }

    /// Frees the rows of ended owners between two snapshots. The next snapshot has the freed rows.
    /// Returns whether rows of processes were summed to save memory.
    pub(super) fn free(
        &mut self,
        object: &mut EbpfObject,
        ended: &[Arc<EndedOwners>],
    ) -> Result<bool, SessionError> {
        let reading = self.read(object, ended)?;
        let rows = reading
            .rows
            .into_iter()
            .filter(|(key, _)| ended.iter().any(|it| it.owns(key.cgroup, key.tgid)));
        Ok(self.totals.freed.add(rows, self.max_rows as usize))
    }

    /// Whether so many owners ended that their rows may soon fill the map of samples.
    pub(super) fn fills_up(&self, ended: usize) -> bool {
        ended * ROWS_OF_AN_OWNER >= (self.max_rows as usize / 8).max(1)
    }

    /// Processes of the rows that were freed since the last snapshot, without summed rows.
    pub(super) fn freed_processes(&self) -> impl Iterator<Item = u32> {
        self.totals.freed.processes()
    }

    /// Drains every CPU's buffer and reads the rows.
    pub(super) fn read(
        &mut self,
        object: &mut EbpfObject,
        ended: &[Arc<EndedOwners>],
    ) -> Result<SampleReading, SessionError> {
        self.clock.recalibrate();
        self.set_clock(object)?;
        // A task that has exited by now may still run the end of its exit, so buffers may hold
        // records of it until the second drain from now.
        let exited = object.maps.spe_exited.drain()?;

        let new_period = self.totals.next_period.take();
        let mut dead = Vec::new();
        let mut idle = self.idle_rows();
        for at in 0..self.events.len() {
            if self.drain(object, at, new_period, &mut idle)? == DrainOutcome::Dead {
                dead.push(self.events[at].cpu);
            }
        }
        let idle = idle.finish(object, |cpu| self.samples(cpu))?;
        // The samples of this drain were taken with the previous period.
        let reading = self.read_rows(object, ended, idle)?;
        self.period = new_period.unwrap_or(self.period);
        self.totals.next_period = self.adapt();
        self.finish(object, &dead, exited)?;
        Ok(reading)
    }

    /// Nanoseconds that decoding has taken on each CPU, at the last reading.
    pub(crate) fn nanos(&self) -> BTreeMap<u32, u64> {
        let cpus = self.totals.cpus.iter();
        cpus.map(|(cpu, account)| (*cpu, account.nanos)).collect()
    }

    /// A period that fits the budget better than the current one, if there is one.
    fn adapt(&mut self) -> Option<u64> {
        let nanos: Vec<u64> = self.nanos().into_values().collect();
        let step = self.budget.as_mut()?.step(now(), &nanos, self.period)?;
        tracing::info!(
            "SPE: period {} instead of {}: {}",
            step.period,
            self.period,
            step.reason
        );
        Some(step.period)
    }

    /// The idle rows that this reading frees to make room. They are limited, so that the next
    /// snapshot gets at most as many freed rows as the map has room for.
    fn idle_rows(&self) -> IdleSpeRows {
        let (totals, max_rows) = (&self.totals, self.max_rows as usize);
        let mut idle = totals.weighed.idle(max_rows);
        idle.truncate(max_rows.saturating_sub(totals.freed.rows.len()));
        IdleSpeRows::new(idle)
    }

    fn read_rows(
        &mut self,
        object: &EbpfObject,
        ended: &[Arc<EndedOwners>],
        idle: Vec<(SpeKey, SpeRow)>,
    ) -> Result<SampleReading, SessionError> {
        let mut cpus = object.maps.spe_cpu.get(0)?;
        for (number, account) in std::mem::take(&mut self.totals.accounts) {
            if let Some(cpu) = cpus.get_mut(&number) {
                *cpu = account;
            }
        }
        self.add_logs(&mut cpus);
        let rows = &object.maps.spe_rows;
        let mut raw: HashMap<SpeKey, SpeRow> = rows.all()?.into_iter().collect();
        let rows_in_map = raw.len();
        let has_ended = |key: &SpeKey| ended.iter().any(|it| it.owns(key.cgroup, key.tgid));
        let freed = free_ended(rows, raw.iter_mut(), has_ended)?;
        add_overflow(object, &mut raw)?;
        let weights = self.weights(&cpus);
        self.totals.freed_idle += idle.len() as u64;
        let idle = self.totals.weighed.take_freed(idle, &weights);
        self.totals.freed.add(idle, self.max_rows as usize);
        let rows = self.totals.weighed.add(&raw, &weights);
        self.totals.weighed.forget(&freed);
        let health = self.health(object, &cpus, rows_in_map);
        if let Some(warning) = undecoded(&self.totals.sum, &health.sum) {
            tracing::warn!("{warning}");
        }
        self.totals.sum = health.sum;
        self.totals.cpus = cpus;
        let spe = SpeReading {
            pages: read_table(self.config.pages, &object.maps.spe_pages)?,
            lines: read_table(self.config.lines, &object.maps.spe_lines)?,
            tables: Arc::clone(&self.tables),
            health,
        };
        Ok(SampleReading {
            rows,
            spe: Some(spe),
            ..SampleReading::default()
        })
    }

    /// The number of operations that each sample since the last reading represents, by CPU.
    #[expect(clippy::cast_precision_loss, reason = "a period is below 2^24")]
    fn weights(&self, cpus: &BTreeMap<u32, SpeCpu>) -> BTreeMap<u32, f64> {
        let weights = cpus.iter().map(|(cpu, now)| {
            let before = self.totals.cpus.get(cpu).copied().unwrap_or_default();
            let period = self.period as f64 + self.config.events.jitter(*cpu);
            (*cpu, weight(&before, now) * period)
        });
        weights.collect()
    }

    fn finish(
        &mut self,
        object: &mut EbpfObject,
        dead: &[u32],
        exited: Vec<u64>,
    ) -> Result<(), SessionError> {
        for cpu in dead {
            self.retain_cpus(|other| other != *cpu);
            self.open(object, *cpu)?;
        }
        let lost = self.totals.sum.lost_exits;
        let exited = if lost > self.totals.lost_exits {
            all_exited(object)?
        } else {
            exited
        };
        self.totals.lost_exits = lost;
        let drained = std::mem::replace(&mut self.totals.exited, exited);
        forget(object, &drained)
    }
}

/// Adds the records for which the row map had no room, by CPU and class.
fn add_overflow(
    object: &EbpfObject,
    rows: &mut HashMap<SpeKey, SpeRow>,
) -> Result<(), SessionError> {
    for class in Class::ALL {
        let rows_of_cpus = object.maps.spe_overflow.get(class as u32)?;
        for (cpu, row) in rows_of_cpus {
            if row.samples > 0 {
                let key = SpeKey {
                    cgroup: OVERFLOW,
                    tgid: 0,
                    cpu: u16::try_from(cpu).unwrap_or(u16::MAX),
                    access: SpeAccess::new(class, None),
                };
                rows.insert(key, row);
            }
        }
    }
    Ok(())
}

/// Reads a table with room for this many rows. A table with room for none is not used, and not
/// read.
fn read_table<K: Plain<Raw: Pod>, V: Plain<Raw: Pod>>(
    room: u32,
    table: &Hash<K, V>,
) -> Result<Vec<(K, V)>, SessionError> {
    if room == 0 {
        return Ok(Vec::new());
    }
    table.all()
}
