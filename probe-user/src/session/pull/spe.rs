//! What SPE sampled: drains every CPU's buffer, then reads the rows.

mod counts;
mod health;
mod idle;
mod late;
mod stopped;
mod threads;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use aya::Pod;
use probe_common::{
    Plain,
    spe::{Access, Class, SpeCpu, SpeKey, SpeRow},
};

use self::{
    counts::Weighed,
    health::undecoded,
    idle::IdleRows,
    late::CpuLog,
    stopped::weight,
    threads::{all_exited, forget},
};
use super::{Freed, lifecycle::Ended};
use crate::{
    session::{Drained, Object, Session, SessionError, Spe, object::Hash},
    snapshot::{OVERFLOW, SpeCounts, SpeReading},
    sys::clock::now,
};

/// What a session keeps from pull to pull.
#[derive(Default)]
pub(crate) struct SpeTotals {
    weighed: Weighed,
    /// Rows that were freed since the last snapshot.
    freed: Freed<SpeCounts>,
    /// Rows that were freed since the session began because their owners were idle.
    freed_idle: u64,
    cpus: BTreeMap<u32, SpeCpu>,
    /// Their sum.
    sum: SpeCpu,
    /// Accounts of the CPUs that sample, each as of when it was stopped last.
    stopped: BTreeMap<u32, SpeCpu>,
    /// Threads that exited before the last drain: free to delete after the next one.
    exited: Vec<u64>,
    /// The queue of exits ran full: threads that exited are still in the task map.
    lost_exits: u64,
    /// What the kernel's logs say of each CPU's buffer, where logs are kept.
    logs: BTreeMap<u32, CpuLog>,
    /// The period from the next drain on, where it is another.
    next_period: Option<u64>,
}

/// Rows that an owner may have: one for each place where its loads were served, one of stores, on
/// each CPU where it was sampled. What lives so short that this matters was on one or two.
const ROWS_OF_AN_OWNER: usize = 8;

impl Session {
    /// True where it samples: call [`Self::upkeep`] where pulls are rare.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.spe.is_some() || self.sampling.is_some()
    }

    /// Drains the buffers of a session that samples and reads its rows, for a caller that pulls
    /// rarely, and takes in what came and went as [`Self::drain`].
    ///
    /// # Errors
    ///
    /// As of [`Session::pull`].
    pub fn upkeep(&mut self) -> Result<(), SessionError> {
        self.drain()?;
        self.read_sampled(&[])?;
        self.read_spe(&[]).map(drop)
    }

    /// Drains and reads for a snapshot, and frees the rows of what ended; None where this session
    /// does not sample.
    pub(super) fn pull_spe(
        &mut self,
        ended: &[Arc<Ended>],
    ) -> Result<Option<SpeReading>, SessionError> {
        let Some(mut reading) = self.read_spe(ended)? else {
            return Ok(None);
        };
        if let Some(spe) = &mut self.spe {
            let totals = &mut spe.totals;
            reading.freed = totals.freed.take(totals.weighed.readings);
        }
        Ok(Some(reading))
    }

    /// Frees the rows of what ended between two snapshots: the next one has them. Returns whether
    /// processes were summed up for that.
    pub(super) fn free_spe(&mut self, ended: &[Arc<Ended>]) -> Result<bool, SessionError> {
        let Some(reading) = self.read_spe(ended)? else {
            return Ok(false);
        };
        let Some(spe) = &mut self.spe else {
            return Ok(false);
        };
        let rows = reading.rows.into_iter();
        let rows = rows.filter(|(key, _)| ended.iter().any(|it| it.owns(key.cgroup, key.tgid)));
        Ok(spe.totals.freed.add(rows, spe.max_rows as usize))
    }

    /// Whether so many owners ended that their rows may soon fill the map of samples.
    pub(super) fn samples_fill_up(&self, ended: usize) -> bool {
        let full = |spe: &Spe| ended * ROWS_OF_AN_OWNER >= (spe.max_rows as usize / 8).max(1);
        self.spe.as_ref().is_some_and(full)
    }

    /// Processes among the rows that were freed since the last snapshot.
    pub(super) fn sampled_processes(&self) -> impl Iterator<Item = u32> {
        let freed = self.spe.iter().flat_map(|spe| &spe.totals.freed.rows);
        freed.map(|(key, _)| key.tgid)
    }

    fn read_spe(&mut self, ended: &[Arc<Ended>]) -> Result<Option<SpeReading>, SessionError> {
        let Some(spe) = &mut self.spe else {
            return Ok(None);
        };
        let object = &mut self.object;
        spe.clock.again();
        spe.set_clock(object)?;
        // A task that has exited by now may still run the end of its exit, so it has nothing left
        // in a buffer only after the next drain but one.
        let exited = object.maps.spe_exited.drain()?;

        let step = spe.totals.next_period.take();
        let mut dead = Vec::new();
        let mut idle = spe.idle_rows();
        for at in 0..spe.events.len() {
            if spe.drain(object, at, step, &mut idle)? == Drained::Dead {
                dead.push(spe.events[at].cpu);
            }
        }
        let idle = idle.end(object, |cpu| spe.samples(cpu))?;
        // What was drained now was sampled with the period before.
        let reading = spe.read(object, ended, idle)?;
        spe.period = step.unwrap_or(spe.period);
        spe.totals.next_period = spe.adapt();
        spe.finish(object, reading, &dead, exited).map(Some)
    }
}

impl Spe {
    /// What decoding has taken on each CPU, as of the last time that it was read.
    pub(crate) fn nanos(&self) -> BTreeMap<u32, u64> {
        let cpus = self.totals.cpus.iter();
        cpus.map(|(cpu, account)| (*cpu, account.nanos)).collect()
    }

    /// A period that fits the budget better than the one in force.
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

    /// The rows that this reading frees, for want of room. No more are kept for the next snapshot
    /// than the map has room for.
    fn idle_rows(&self) -> IdleRows {
        let (totals, max_rows) = (&self.totals, self.max_rows as usize);
        let mut idle = totals.weighed.idle(max_rows);
        idle.truncate(max_rows.saturating_sub(totals.freed.rows.len()));
        IdleRows::new(idle)
    }

    fn read(
        &mut self,
        object: &Object,
        ended: &[Arc<Ended>],
        idle: Vec<(SpeKey, SpeRow)>,
    ) -> Result<SpeReading, SessionError> {
        let mut cpus = object.maps.spe_cpu.get(0)?;
        for (number, account) in std::mem::take(&mut self.totals.stopped) {
            if let Some(cpu) = cpus.get_mut(&number) {
                *cpu = account;
            }
        }
        self.add_logs(&mut cpus);
        let rows = &object.maps.spe_rows;
        let mut raw: HashMap<SpeKey, SpeRow> = rows.all()?.into_iter().collect();
        let live = raw.len();
        let mut freed = Vec::new();
        for (key, row) in raw
            .iter_mut()
            .filter(|(key, _)| ended.iter().any(|ended| ended.owns(key.cgroup, key.tgid)))
        {
            freed.push(*key);
            if let Some(last) = rows.take(key)? {
                *row = last;
            }
        }
        add_overflow(object, &mut raw)?;
        let weights = self.weights(&cpus);
        self.totals.freed_idle += idle.len() as u64;
        let idle = self.totals.weighed.end(idle, &weights);
        self.totals.freed.add(idle, self.max_rows as usize);
        let rows = self.totals.weighed.add(&raw, &weights);
        self.totals.weighed.forget(&freed);
        let health = self.health(object, &cpus, live);
        if let Some(warning) = undecoded(&self.totals.sum, &health.sum) {
            tracing::warn!("{warning}");
        }
        self.totals.sum = health.sum;
        self.totals.cpus = cpus;
        Ok(SpeReading {
            rows,
            freed: Vec::new(),
            pages: kept(self.config.pages, &object.maps.spe_pages)?,
            lines: kept(self.config.lines, &object.maps.spe_lines)?,
            tables: Arc::clone(&self.tables),
            health,
        })
    }

    /// What each sample since the last reading stands for, by CPU.
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
        object: &mut Object,
        reading: SpeReading,
        dead: &[u32],
        exited: Vec<u64>,
    ) -> Result<SpeReading, SessionError> {
        for cpu in dead {
            self.keep(|kept| kept != *cpu);
            self.open(object, *cpu)?;
        }
        let lost = reading.health.sum.lost_exits;
        let exited = if lost > self.totals.lost_exits {
            all_exited(object)?
        } else {
            exited
        };
        self.totals.lost_exits = lost;
        let before = std::mem::replace(&mut self.totals.exited, exited);
        forget(object, &before)?;
        Ok(reading)
    }
}

/// Records that the row map had no room for, by CPU and class.
fn add_overflow(object: &Object, rows: &mut HashMap<SpeKey, SpeRow>) -> Result<(), SessionError> {
    for class in Class::ALL {
        let rows_of_cpus = object.maps.spe_overflow.get(class as u32)?;
        for (cpu, row) in rows_of_cpus {
            if row.samples > 0 {
                let key = SpeKey {
                    cgroup: OVERFLOW,
                    tgid: 0,
                    cpu: u16::try_from(cpu).unwrap_or(u16::MAX),
                    access: Access::new(class, None),
                };
                rows.insert(key, row);
            }
        }
    }
    Ok(())
}

/// A table that is kept where it has room for more than 0 rows.
fn kept<K: Plain<Raw: Pod>, V: Plain<Raw: Pod>>(
    room: u32,
    table: &Hash<K, V>,
) -> Result<Vec<(K, V)>, SessionError> {
    if room == 0 {
        return Ok(Vec::new());
    }
    table.all()
}
