//! What sampled events say: reads the rows that the program added to, and weighs each sample by
//! what its event counted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use probe_common::{
    Field as _,
    sample::{AddressKey, AddressRow, SampleCpu, SampleRow},
};

use super::lifecycle::Ended;
use crate::{
    event::sampling::{Rate, SampledEvent, max_sample_rate},
    session::{
        Object, Session, SessionError,
        object::EVENT_SAMPLE,
        sampling::{Gain, Names, OpenEvent, Sampling, Scale},
    },
    snapshot::{
        AddressCounts, CodeKey, ENDED, OVERFLOW, Place, SampledAddress, SampledCounts,
        SampledHealth, SampledKey, SampledReading,
    },
    sys::clock::{nanos, now},
};

/// Instructions that are kept from reading to reading, and data pages: 80 bytes each.
const MAX_ADDRESSES: usize = 65_536;

/// Rows that are kept apart between two snapshots; processes that ended are summed beyond that.
const MAX_ROWS: usize = 32_768;

/// What a session keeps from pull to pull.
pub(crate) struct SampleTotals {
    rows: HashMap<SampledKey, SampledCounts>,
    addresses: HashMap<SampledAddress, AddressCounts>,
    /// The programs' account, by event and CPU.
    cpus: Vec<Vec<SampleCpu>>,
    /// By event and CPU.
    scales: HashMap<(usize, u32), Scale>,
    /// What events did since the last reading.
    gained: HashMap<(usize, u32), Gain>,
    /// What they did since the session began, on all CPUs.
    counted: Vec<Gain>,
    pushed_out: Vec<u64>,
    /// By event: on how many CPUs and in how many readings samples came near the kernel's limit.
    limited: Vec<u64>,
    /// `CLOCK_MONOTONIC` nanoseconds of the last reading.
    moment: Option<u64>,
    /// Keys of rows whose owner ended: the next snapshot is their last.
    ended: HashSet<SampledKey>,
    readings: u64,
    /// Number of the reading of the last snapshot.
    snapshot: u64,
    /// How many times less often events are sampled from the next reading on.
    next: Option<u64>,
}

impl SampleTotals {
    /// Of so many events.
    pub(crate) fn new(events: usize) -> Self {
        Self {
            rows: HashMap::new(),
            addresses: HashMap::new(),
            cpus: vec![Vec::new(); events],
            scales: HashMap::new(),
            gained: HashMap::new(),
            counted: vec![Gain::default(); events],
            pushed_out: vec![0; events],
            limited: vec![0; events],
            moment: None,
            ended: HashSet::new(),
            readings: 0,
            snapshot: 0,
            next: None,
        }
    }

    /// Forgets all but the first events.
    pub(crate) fn keep(&mut self, events: usize) {
        self.rows.retain(|key, _| usize::from(key.event) < events);
        self.addresses
            .retain(|key, _| usize::from(key.event) < events);
        self.scales.retain(|(event, _), _| *event < events);
        self.gained.retain(|(event, _), _| *event < events);
        self.cpus.truncate(events);
        self.counted.truncate(events);
        self.pushed_out.truncate(events);
        self.limited.truncate(events);
    }

    /// Whether the event is one that is sampled still.
    fn has(&self, event: u8) -> bool {
        usize::from(event) < self.counted.len()
    }

    /// Takes in what an event counted.
    pub(crate) fn count(&mut self, event: &mut OpenEvent) {
        let gained = event.gained();
        self.counted[event.event].add(&gained);
        let of_cpu = self.gained.entry((event.event, event.cpu)).or_default();
        of_cpu.add(&gained);
    }

    /// What each event of a period stands for, by event and CPU.
    fn factors(
        &mut self,
        events: &[SampledEvent],
        cpus: &[Vec<SampleCpu>],
    ) -> HashMap<(usize, u32), f64> {
        let mut factors = HashMap::new();
        let compared = |(event, _): &(usize, _)| events[*event].counts_as_it_samples();
        for (event, of_event) in cpus.iter().enumerate().filter(compared) {
            for (cpu, now) in (0_u32..).zip(of_event) {
                let gained = self.gained.get(&(event, cpu)).copied().unwrap_or_default();
                if gained.counted == 0 && now.samples == 0 {
                    continue;
                }
                let before = self.cpus[event].get(cpu as usize);
                let before = before.copied().unwrap_or_default();
                let samples = now.samples - before.samples;
                let periods = now.periods.wrapping_sub(before.periods);
                let scale = self.scales.entry((event, cpu)).or_default();
                let fixed = matches!(events[event].rate, Rate::Period(_));
                let factor = scale.factor(gained.counted, (samples, periods), fixed);
                // What it would have counted had it been on the PMU all the time.
                factors.insert((event, cpu), factor * gained.scale());
            }
        }
        self.gained.clear();
        factors
    }

    /// Counts where samples came so often that the kernel may have stopped the counter: it does so
    /// up to its next tick, and the count says nothing of it. `limit` is in samples a second of a
    /// CPU.
    fn note_limit(&mut self, cpus: &[Vec<SampleCpu>], moment: u64, limit: Option<u64>) {
        let last = self.moment.replace(moment);
        let Some((last, limit)) = last.zip(limit) else {
            return;
        };
        let elapsed = moment.saturating_sub(last);
        for (event, of_event) in cpus.iter().enumerate() {
            for (cpu, now) in of_event.iter().enumerate() {
                let before = self.cpus[event].get(cpu).map_or(0, |cpu| cpu.samples);
                self.limited[event] += u64::from(near(now.samples - before, elapsed, limit));
            }
        }
    }

    /// Adds what a row of the kernel gained since it was read last.
    fn add(&mut self, key: SampledKey, before: &SampleRow, now: &SampleRow, factor: f64) {
        let gained = SampledCounts::between(before, now, factor);
        if gained.counts.samples == 0 || !self.has(key.event) {
            return;
        }
        let made = self.readings;
        let row = self.rows.entry(key).or_insert_with(|| {
            let mut row = SampledCounts::default();
            row.counts.made = made;
            row
        });
        row.add(&gained);
    }

    /// Adds the kernel's row of an address.
    #[expect(clippy::cast_precision_loss, reason = "periods between two readings")]
    fn add_address(&mut self, key: &AddressKey, row: &AddressRow, image: u64, factor: f64) {
        if !self.has(key.event) {
            return;
        }
        let made = self.readings;
        let address = SampledAddress {
            cgroup: key.cgroup,
            address: key.address,
            tgid: key.tgid,
            event: key.event,
            page: key.page != 0,
            image,
        };
        let counts = self.addresses.entry(address).or_insert(AddressCounts {
            made,
            ..AddressCounts::default()
        });
        counts.samples += u64::from(row.samples);
        counts.periods += row.periods;
        counts.events += row.periods as f64 * factor;
        counts.timed += u64::from(row.timed);
        counts.cycles += row.cycles;
    }

    /// Drops the instructions, or the data pages, with the fewest samples where there are too many.
    /// Half of the room is free then. Returns whether any were dropped.
    fn push_out(&mut self, page: bool, room: usize) -> bool {
        let kind = self.addresses.iter().filter(|(key, _)| key.page == page);
        let mut sizes: Vec<u64> = kind.map(|(_, it)| it.samples).collect();
        if sizes.len() <= room {
            return false;
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let least = sizes[room / 2 - 1];
        let above = sizes.partition_point(|size| *size > least);
        let mut equal = room / 2 - above;
        let pushed_out = &mut self.pushed_out;
        self.addresses.retain(|key, counts| {
            if key.page != page {
                return true;
            }
            // Of those with as many samples as the last that stays, as many as there is room for.
            let keep = match counts.samples.cmp(&least) {
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal if equal > 0 => {
                    equal -= 1;
                    true
                }
                _ => false,
            };
            if !keep {
                pushed_out[usize::from(key.event)] += counts.samples;
            }
            keep
        });
        true
    }

    /// Sums the rows of processes that ended where rows are too many. Those that the last snapshot
    /// has stay, since a window takes their difference.
    fn sum_ended(&mut self, room: usize) {
        if self.rows.len() <= room {
            return;
        }
        let snapshot = self.snapshot;
        let ended: Vec<SampledKey> = self.ended.iter().copied().collect();
        for key in ended {
            let can_be_summed = |row: &SampledCounts| row.counts.made > snapshot;
            if key.tgid == 0 || key.tgid == ENDED || !self.rows.get(&key).is_some_and(can_be_summed)
            {
                continue;
            }
            let Some(row) = self.rows.remove(&key) else {
                continue;
            };
            self.ended.remove(&key);
            let sum = SampledKey { tgid: ENDED, ..key };
            let made = row.counts.made;
            let into = self.rows.entry(sum).or_insert_with(|| {
                let mut row = SampledCounts::default();
                row.counts.made = made;
                row
            });
            into.add(&row);
            self.ended.insert(sum);
        }
    }
}

/// Whether so many samples in so many nanoseconds are nine tenths of the limit of a CPU or more.
/// The limit holds for each of the kernel's ticks, of 10 ms at most: readings that are nearer to
/// each other tell nothing of it.
fn near(samples: u64, elapsed: u64, limit: u64) -> bool {
    const TICK: u64 = 10_000_000;
    let allowed = u128::from(elapsed.max(TICK)) * u128::from(limit);
    samples > 0 && u128::from(samples) * 10_000_000_000 >= 9 * allowed
}

impl Session {
    /// Reads for a snapshot; rows of what ended are in this one for the last time. None where no
    /// event is sampled.
    pub(super) fn pull_sampled(
        &mut self,
        ended: &[Arc<Ended>],
    ) -> Result<Option<SampledReading>, SessionError> {
        self.read_sampled(ended)?;
        let Some(sampling) = &mut self.sampling else {
            return Ok(None);
        };
        let reading = SampledReading {
            events: sampling.health(&self.object),
            rows: sampling.totals.rows.clone(),
            addresses: sampling.totals.addresses.clone(),
            places: sampling.places(),
            names: sampling.names.as_ref().map(Names::counts),
        };
        let totals = &mut sampling.totals;
        for key in totals.ended.drain() {
            totals.rows.remove(&key);
        }
        totals.snapshot = totals.readings;
        Ok(Some(reading))
    }

    /// Reads between two snapshots.
    pub(super) fn read_sampled(&mut self, ended: &[Arc<Ended>]) -> Result<(), SessionError> {
        let Some(sampling) = &mut self.sampling else {
            return Ok(());
        };
        let coarser = sampling.totals.next.take();
        if let Some(coarser) = coarser {
            sampling.reopen(&mut self.object, coarser);
        } else {
            sampling.retry(&mut self.object);
        }
        let moment = nanos(self.clock.now());
        sampling.read(&mut self.object, moment)?;
        let totals = &mut sampling.totals;
        let owners = totals.rows.keys();
        let gone = owners.filter(|key| ended.iter().any(|it| it.owns(key.cgroup, key.tgid)));
        totals.ended.extend(gone);
        totals.sum_ended(MAX_ROWS);
        sampling.adapt();
        Ok(())
    }

    /// Processes that have samples.
    pub(super) fn processes_sampled(&self) -> impl Iterator<Item = u32> {
        let rows = self.sampling.iter().flat_map(|it| it.totals.rows.keys());
        rows.map(|key| key.tgid).filter(|tgid| *tgid != ENDED)
    }
}

impl Sampling {
    /// Adds what was sampled since the last reading. Rows are read before counts: what was sampled
    /// was counted by then.
    fn read(&mut self, object: &mut Object, moment: u64) -> Result<(), SessionError> {
        let closed = self.next_generation(object)?;
        let rows = object.maps.sample_rows.all()?;
        let mut addresses = Vec::new();
        if self.config.addresses {
            addresses.extend(object.maps.sample_addresses.of(closed));
        }
        if self.config.pages {
            addresses.extend(object.maps.sample_pages.of(closed));
        }
        self.addresses_are_read(object, closed)?;
        let cpus = self.cpus(object)?;
        let totals = &mut self.totals;
        self.open.iter_mut().for_each(|event| totals.count(event));
        totals.readings += 1;
        totals.note_limit(&cpus, moment, max_sample_rate());
        let factors = totals.factors(&self.config.events, &cpus);
        let factor = |event: usize, cpu: u32| factors.get(&(event, cpu)).copied().unwrap_or(1.0);
        for (key, row) in rows.iter().filter(|(key, _)| key.generation <= closed) {
            let sampled = SampledKey {
                cgroup: key.cgroup,
                tgid: key.tgid,
                event: key.event,
                source: key.source,
            };
            let factor = factor(usize::from(key.event), u32::from(key.cpu));
            totals.add(sampled, &SampleRow::ZERO, row, factor);
            object.maps.sample_rows.take(key)?;
        }
        for (event, of_event) in (0_u8..).zip(&cpus) {
            for (cpu, now) in (0_u32..).zip(of_event) {
                let before = totals.cpus[usize::from(event)].get(cpu as usize);
                let before = before.map(|cpu| cpu.overflow).unwrap_or_default();
                let sampled = SampledKey {
                    cgroup: OVERFLOW,
                    tgid: 0,
                    event,
                    source: 0,
                };
                let factor = factor(usize::from(event), cpu);
                totals.add(sampled, &before, &now.overflow, factor);
            }
        }
        let images = self.names.as_mut();
        let images = images.map(|names| names.name(&addresses, moment));
        for (at, (key, row)) in addresses.iter().enumerate() {
            let image = images.as_ref().map_or(0, |images| images[at]);
            let factor = factor(usize::from(key.event), u32::from(key.cpu));
            totals.add_address(key, row, image, factor);
        }
        totals.push_out(true, MAX_ADDRESSES);
        let crowded = totals.push_out(false, MAX_ADDRESSES);
        if let Some(names) = self.names.as_mut().filter(|_| crowded) {
            let kept = totals.addresses.keys();
            names.codes.keep(&kept.map(SampledAddress::place).collect());
        }
        totals.cpus = cpus;
        Ok(())
    }

    /// Nanoseconds that the program took, by possible CPU, as of the last reading.
    pub(crate) fn nanos(&self) -> Vec<u64> {
        let cpus = self.totals.cpus.iter().map(Vec::len).max().unwrap_or(0);
        let mut nanos = vec![0; cpus];
        for of_event in &self.totals.cpus {
            for (sum, cpu) in nanos.iter_mut().zip(of_event) {
                // One run in some was measured.
                *sum += cpu.nanos * SampleCpu::MEASURE_EVERY;
            }
        }
        nanos
    }

    /// Another rate where the cost of the program asks for it, from the next reading on.
    fn adapt(&mut self) {
        let nanos = self.nanos();
        let Some(budget) = &mut self.budget else {
            return;
        };
        if let Some(step) = budget.step(now(), &nanos, self.coarser) {
            tracing::info!(
                "events are sampled {} times less often than asked for, instead of {}: {}",
                step.period,
                self.coarser,
                step.reason
            );
            self.totals.next = Some(step.period);
        }
    }

    fn places(&self) -> HashMap<CodeKey, Place> {
        let names = self.names.as_ref();
        names.map_or_else(HashMap::new, |names| names.codes.places.clone())
    }

    fn health(&self, object: &Object) -> Vec<SampledHealth> {
        let totals = &self.totals;
        let stats = object.programs.overflow_stats(EVENT_SAMPLE);
        let all: u64 = totals.cpus.iter().flatten().map(|cpu| cpu.samples).sum();
        let stats = stats.filter(|(runs, _)| *runs >= all);
        let events = self.config.events.iter().enumerate();
        let health = events.map(|(at, event)| {
            let mut sum = SampleCpu::ZERO;
            totals.cpus[at].iter().for_each(|cpu| sum.add(cpu));
            let scales = totals.scales.iter().filter(|((of, _), _)| *of == at);
            let (period, frequency) = match self.rate(event) {
                Rate::Period(period) => (Some(period), None),
                Rate::Frequency(frequency) => (None, Some(frequency)),
            };
            SampledHealth {
                name: event.name.clone(),
                clock: event.is_clock(),
                skids: event.skids(),
                accesses: event.accesses,
                period,
                frequency,
                counted: totals.counted[at].counted,
                enabled: totals.counted[at].enabled,
                running: totals.counted[at].running,
                missed: scales.map(|(_, scale)| scale.missed).sum(),
                sum,
                pushed_out: totals.pushed_out[at],
                limited: totals.limited[at],
                bpf_stats: stats.and_then(|(_, time)| u64::try_from(time.as_nanos()).ok()),
            }
        });
        health.collect()
    }
}

#[cfg(test)]
mod weighed;

#[cfg(test)]
mod tests;
