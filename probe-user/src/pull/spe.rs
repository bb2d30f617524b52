//! What SPE sampled: drains every CPU's buffer, then reads the rows.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
};

use aya::{
    Ebpf,
    maps::{Map, MapError, PerCpuArray, Queue},
};
use probe_common::spe::{
    Access, BadKind, Class, PageKey, PageRow, SourceTable, SpeCpu, SpeKey, SpeRow, SpeSetting,
    SpeTask, Unattributed,
};

use super::{OVERFLOW, lifecycle::Ended, now};
use crate::{
    load::{Drained, LoadError, Maps, Session, Spe, SpeHook, chain, no_map},
    sys::bpf,
};

/// Samples of one row, and what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpeCounts {
    /// As counted.
    pub row: SpeRow,
    /// Operations that the samples stand for: each counts as the period that was in force, times the
    /// cells that its CPU wrote for each that was decoded.
    pub operations: f64,
    /// Sum of the squares of those weights: the variance of `operations`.
    pub variance: f64,
}

/// Everything that SPE sampled since the session began.
#[derive(Clone, Debug)]
pub struct SpeReading {
    /// By owner, CPU and data source. Rows of owners that ended are freed one pull later.
    pub rows: HashMap<SpeKey, SpeCounts>,
    /// Pages by process; empty where none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Data-source tables by CPU.
    pub tables: Arc<HashMap<u32, SourceTable>>,
    /// What the programs say of themselves.
    pub health: SpeHealth,
}

/// The programs' account of themselves since the session began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeHealth {
    /// The hook in use.
    pub hook: SpeHook,
    /// Period in force, in operations.
    pub period: u64,
    /// What became of everything that was written, all CPUs; `event`, `next` and `switches` mean nothing.
    pub sum: SpeCpu,
    /// Longest time that a chunk took, in ns.
    pub longest: u64,
    /// Rows in the map.
    pub rows: usize,
    /// What the cores count of their sampling, where they do: operations, samples taken, kept, and dropped
    /// because one was in flight; since the CPUs' events were opened.
    pub sampler: BTreeMap<&'static str, u64>,
    /// Bytes of each CPU's AUX buffer.
    pub aux_size: usize,
}

impl SpeHealth {
    /// Names and values of all counts, as metrics.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, u64)> {
        let sum = &self.sum;
        let mut counts: Vec<(String, u64)> = [
            ("period", self.period),
            ("aux_bytes", self.aux_size as u64),
            ("rows", self.rows as u64),
            ("chunks", sum.chunks),
            ("cells", sum.cells),
            ("records", sum.records),
            ("padding", sum.padding),
            ("skipped_records", sum.skipped),
            ("invalid_records", sum.invalid),
            ("overflowed_records", sum.overflowed),
            ("missed_bytes", sum.missed_bytes),
            ("aux_buffers_truncated", sum.truncated),
            ("aux_buffers_partial", sum.partial),
            ("aux_buffers_with_collision", sum.collided),
            ("unreadable_chunks", sum.unreadable),
            ("decode_ns", sum.nanos),
            ("irq_off_ns_max", self.longest),
            ("unknown_threads", sum.unknown_threads),
            ("lost_exits", sum.lost_exits),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
        let sampler = self.sampler.iter();
        counts.extend(sampler.map(|(name, count)| ((*name).to_owned(), *count)));
        counts.extend(
            BadKind::ALL
                .iter()
                .zip(sum.bad)
                .map(|(kind, n)| (format!("bad_records_{}", kind.name()), n)),
        );
        counts.extend(
            Unattributed::ALL
                .iter()
                .zip(sum.unattributed)
                .map(|(reason, n)| (format!("unattributed_{}", reason.name()), n)),
        );
        counts
    }

    /// Nanoseconds that a decoded record took; None before there was one.
    #[must_use]
    pub fn nanos_per_record(&self) -> Option<u64> {
        self.sum
            .nanos
            .checked_div(self.sum.cells.saturating_sub(self.sum.skipped))
    }
}

/// What a session keeps from pull to pull.
#[derive(Default)]
pub(crate) struct SpeTotals {
    /// Samples, operations and variance of each row at the last pull.
    rows: HashMap<SpeKey, (u64, f64, f64)>,
    cpus: Vec<SpeCpu>,
    /// Threads that exited before the last drain: free to delete after the next one.
    exited: Vec<u64>,
    /// The queue of exits ran full: threads that exited are still in the task map.
    lost_exits: u64,
}

/// Cells of a CPU below which the cost of a record is not believed.
const ENOUGH_CELLS: u64 = 1000;

impl Session {
    /// Drains the buffers of a session that samples, for a caller that pulls rarely. Nothing is freed.
    ///
    /// # Errors
    ///
    /// As of [`Session::pull`].
    pub fn upkeep(&mut self) -> Result<(), LoadError> {
        self.follow_cpus()?;
        self.pull_spe(&[]).map(drop)
    }

    /// Drains and reads; None where this session does not sample.
    pub(super) fn pull_spe(
        &mut self,
        ended: &[Arc<Ended>],
    ) -> Result<Option<SpeReading>, LoadError> {
        let Some(spe) = &mut self.spe else {
            return Ok(None);
        };
        let ebpf = &mut self.ebpf;
        spe.clock.again();
        Maps(ebpf).set_clock(spe.clock.slot, &spe.clock)?;
        Maps(ebpf).set(SpeSetting::Clock, u64::from(spe.clock.slot))?;
        // What has exited by now has nothing left in a buffer after the next drain but one: it may
        // still run the last of its exit.
        let exited = exited(ebpf)?;

        let step = spe.adapt();
        let mut dead = Vec::new();
        for event in &mut spe.events {
            if event.drain(step)? == Drained::Dead {
                dead.push(event.cpu);
            }
        }
        // What was drained now was sampled with the period before.
        let reading = spe.read(ebpf, ended)?;
        spe.period = step.unwrap_or(spe.period);
        spe.finish(ebpf, reading, &dead, exited).map(Some)
    }
}

impl Spe {
    /// A period that fits the budget better than the one in force.
    fn adapt(&mut self) -> Option<u64> {
        let nanos: Vec<u64> = self.totals.cpus.iter().map(|cpu| cpu.nanos).collect();
        let step = self.budget.as_mut()?.step(now(), &nanos, self.period)?;
        tracing::info!(
            "SPE: period {} instead of {}: {}",
            step.period,
            self.period,
            step.reason
        );
        Some(step.period)
    }

    fn read(&mut self, ebpf: &Ebpf, ended: &[Arc<Ended>]) -> Result<SpeReading, LoadError> {
        let cpus = cpus(ebpf)?;
        let Some(Map::HashMap(map)) = ebpf.map("SPE_ROWS") else {
            return Err(no_map("SPE_ROWS"));
        };
        let raw = bpf::lookup_all::<{ SpeKey::WORDS }, { SpeRow::WORDS }>(map.fd().as_fd())
            .map_err(|source| LoadError::Map {
                what: "read the SPE_ROWS map",
                source,
            })?;
        let live = raw.len();
        let mut raw: HashMap<SpeKey, SpeRow> = raw
            .into_iter()
            .map(|(key, row)| (SpeKey::from_words(key), SpeRow::from_words(&row)))
            .collect();
        for (key, row) in raw
            .iter_mut()
            .filter(|(key, _)| ended.iter().any(|ended| ended.owns(key.cgroup, key.tgid)))
        {
            let last =
                bpf::take(map.fd().as_fd(), &key.to_words()).map_err(|source| LoadError::Map {
                    what: "free a row of the SPE_ROWS map",
                    source,
                })?;
            if let Some(words) = last {
                *row = SpeRow::from_words(&words);
            }
        }
        add_overflow(ebpf, &mut raw)?;
        let rows = self.weigh(&raw, &cpus);
        let health = self.health(&cpus, live);
        self.totals.cpus = cpus;
        Ok(SpeReading {
            rows,
            pages: pages(ebpf, self.config.pages)?,
            tables: Arc::clone(&self.tables),
            health,
        })
    }

    /// What the samples since the last pull stand for, added to what those before did.
    #[expect(
        clippy::cast_precision_loss,
        reason = "samples of a window, and a period below 2^24"
    )]
    fn weigh(
        &mut self,
        raw: &HashMap<SpeKey, SpeRow>,
        cpus: &[SpeCpu],
    ) -> HashMap<SpeKey, SpeCounts> {
        let weights: Vec<f64> = cpus
            .iter()
            .enumerate()
            .map(|(at, now)| {
                let before = self.totals.cpus.get(at).copied().unwrap_or_default();
                let cells = now.cells - before.cells;
                let decoded = cells - (now.skipped - before.skipped);
                let missed = (now.missed_bytes - before.missed_bytes) / 64;
                let all = (cells + missed) as f64;
                let each = if decoded > 0 {
                    all / decoded as f64
                } else {
                    1.0
                };
                each * self.period as f64
            })
            .collect();
        let mut last = HashMap::with_capacity(raw.len());
        let mut rows = HashMap::with_capacity(raw.len());
        for (key, row) in raw {
            // A row that is smaller was freed and made anew.
            let before = self.totals.rows.get(key).copied();
            let (samples, operations, variance) = before
                .filter(|(samples, ..)| *samples <= row.samples)
                .unwrap_or_default();
            let weight = weights.get(usize::from(key.cpu)).copied().unwrap_or(0.0);
            let new = (row.samples - samples) as f64;
            let operations = operations + new * weight;
            let variance = variance + new * weight * weight;
            last.insert(*key, (row.samples, operations, variance));
            rows.insert(
                *key,
                SpeCounts {
                    row: *row,
                    operations,
                    variance,
                },
            );
        }
        self.totals.rows = last;
        rows
    }

    fn health(&self, cpus: &[SpeCpu], rows: usize) -> SpeHealth {
        let mut sum = SpeCpu::default();
        for cpu in cpus {
            add(&mut sum, cpu);
        }
        let mut sampler = BTreeMap::new();
        for (name, count) in self.events.iter().flat_map(|event| event.sampler.read()) {
            *sampler.entry(name).or_default() += count;
        }
        SpeHealth {
            hook: self.hook,
            period: self.period,
            longest: cpus.iter().map(|cpu| cpu.longest).max().unwrap_or(0),
            sum,
            rows,
            sampler,
            aux_size: self.config.aux_size,
        }
    }

    fn finish(
        &mut self,
        ebpf: &mut Ebpf,
        reading: SpeReading,
        dead: &[u32],
        exited: Vec<u64>,
    ) -> Result<SpeReading, LoadError> {
        for cpu in dead {
            self.keep(|kept| kept != *cpu);
            self.open(ebpf, *cpu)?;
        }
        // What a record costs here, and so how many fit the time allowed.
        let sum = &reading.health.sum;
        if sum.cells - sum.skipped > ENOUGH_CELLS
            && let Some(nanos) = reading.health.nanos_per_record()
        {
            let allowed = u64::try_from(self.config.irq_max.as_nanos()).unwrap_or(u64::MAX);
            Maps(ebpf).set(SpeSetting::Records, (allowed / nanos.max(1)).max(1))?;
        }
        let lost = sum.lost_exits;
        let exited = if lost > self.totals.lost_exits {
            all_exited(ebpf)?
        } else {
            exited
        };
        self.totals.lost_exits = lost;
        let before = std::mem::replace(&mut self.totals.exited, exited);
        forget(ebpf, &before)?;
        Ok(reading)
    }
}

fn cpus(ebpf: &Ebpf) -> Result<Vec<SpeCpu>, LoadError> {
    let map = ebpf.map("SPE_CPU").ok_or_else(|| no_map("SPE_CPU"))?;
    let map: PerCpuArray<_, [u64; SpeCpu::WORDS]> = map.try_into().map_err(failed("SPE_CPU"))?;
    let values = map.get(&0, 0).map_err(failed("SPE_CPU"))?;
    Ok(values.iter().map(SpeCpu::from_words).collect())
}

/// Records that the row map had no room for, by CPU and class.
fn add_overflow(ebpf: &Ebpf, rows: &mut HashMap<SpeKey, SpeRow>) -> Result<(), LoadError> {
    let map = ebpf
        .map("SPE_OVERFLOW")
        .ok_or_else(|| no_map("SPE_OVERFLOW"))?;
    let map: PerCpuArray<_, [u64; SpeRow::WORDS]> =
        map.try_into().map_err(failed("SPE_OVERFLOW"))?;
    for class in Class::ALL {
        let values = map
            .get(&(class as u32), 0)
            .map_err(failed("SPE_OVERFLOW"))?;
        for (cpu, words) in values.iter().enumerate() {
            let row = SpeRow::from_words(words);
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

fn pages(ebpf: &Ebpf, kept: u32) -> Result<Vec<(PageKey, PageRow)>, LoadError> {
    if kept == 0 {
        return Ok(Vec::new());
    }
    let Some(Map::LruHashMap(map)) = ebpf.map("SPE_PAGES") else {
        return Err(no_map("SPE_PAGES"));
    };
    let rows = bpf::lookup_all::<2, 2>(map.fd().as_fd()).map_err(|source| LoadError::Map {
        what: "read the SPE_PAGES map",
        source,
    })?;
    let row = |([page, tgid], [samples, cycles]): ([u64; 2], [u64; 2])| {
        (PageKey { page, tgid }, PageRow { samples, cycles })
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Takes the threads that exited out of the queue.
fn exited(ebpf: &mut Ebpf) -> Result<Vec<u64>, LoadError> {
    let map = ebpf
        .map_mut("SPE_EXITED")
        .ok_or_else(|| no_map("SPE_EXITED"))?;
    let mut queue: Queue<_, u64> = map.try_into().map_err(failed("SPE_EXITED"))?;
    let mut threads = Vec::new();
    loop {
        match queue.pop(0) {
            Ok(thread) => threads.push(thread),
            Err(MapError::ElementNotFound) => return Ok(threads),
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
            {
                return Ok(threads);
            }
            Err(error) => return Err(failed("SPE_EXITED")(error)),
        }
    }
}

/// Deletes threads from the task map that exited and were drained since.
fn forget(ebpf: &mut Ebpf, threads: &[u64]) -> Result<(), LoadError> {
    for &thread in threads {
        let taken = bpf::take::<1, { SpeTask::WORDS }>(tasks(ebpf)?, &[thread]);
        let taken = taken.map_err(|source| LoadError::Map {
            what: "delete a thread from the SPE_TASKS map",
            source,
        })?;
        // The id has a new owner already.
        if let Some(task) = taken.map(SpeTask::from_words)
            && task.exited == 0
        {
            Maps(ebpf).set_task(thread, task)?;
        }
    }
    Ok(())
}

/// Threads in the task map that exited, whether the queue told or not.
fn all_exited(ebpf: &Ebpf) -> Result<Vec<u64>, LoadError> {
    let all = bpf::lookup_all::<1, { SpeTask::WORDS }>(tasks(ebpf)?).map_err(|source| {
        LoadError::Map {
            what: "read the SPE_TASKS map",
            source,
        }
    })?;
    let exited = all
        .into_iter()
        .filter(|(_, words)| SpeTask::from_words(*words).exited == 1);
    Ok(exited.map(|([thread], _)| thread).collect())
}

fn tasks(ebpf: &Ebpf) -> Result<BorrowedFd<'_>, LoadError> {
    match ebpf.map("SPE_TASKS") {
        Some(Map::HashMap(map)) => Ok(map.fd().as_fd()),
        _ => Err(no_map("SPE_TASKS")),
    }
}

fn failed(map: &'static str) -> impl Fn(MapError) -> LoadError {
    move |error| LoadError::Bpf {
        what: format!("map {map}"),
        reason: chain(&error),
    }
}

fn add(sum: &mut SpeCpu, cpu: &SpeCpu) {
    sum.chunks += cpu.chunks;
    sum.cells += cpu.cells;
    sum.records += cpu.records;
    sum.padding += cpu.padding;
    for (sum, n) in sum.bad.iter_mut().zip(cpu.bad) {
        *sum += n;
    }
    sum.skipped += cpu.skipped;
    sum.invalid += cpu.invalid;
    for (sum, n) in sum.unattributed.iter_mut().zip(cpu.unattributed) {
        *sum += n;
    }
    sum.overflowed += cpu.overflowed;
    sum.missed_bytes += cpu.missed_bytes;
    sum.truncated += cpu.truncated;
    sum.partial += cpu.partial;
    sum.collided += cpu.collided;
    sum.unreadable += cpu.unreadable;
    sum.nanos += cpu.nanos;
    sum.unknown_threads += cpu.unknown_threads;
    sum.lost_exits += cpu.lost_exits;
    sum.pages += cpu.pages;
}
