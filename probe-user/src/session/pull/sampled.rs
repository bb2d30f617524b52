//! What sampled events say: reads the rows that the program added to, and weighs each sample by
//! what its event counted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use probe_common::{
    Field as _,
    sample::{AddressKey, AddressRow, SampleCpu, SampleKey, SampleRow},
};

use super::lifecycle::Ended;
use crate::{
    event::sampling::Rate,
    session::{
        Object, Session, SessionError,
        object::EVENT_SAMPLE,
        sampling::{OpenEvent, Sampling, Scale},
    },
    snapshot::{
        AddressCounts, ENDED, OVERFLOW, Place, SampledAddress, SampledCounts, SampledHealth,
        SampledKey, SampledReading,
    },
    sys::clock::{nanos, now},
};

/// Instructions that are kept from reading to reading, and data pages: 64 bytes each.
const MAX_ADDRESSES: usize = 65_536;

/// Rows that are kept apart between two snapshots; processes that ended are summed beyond that.
const MAX_ROWS: usize = 32_768;

/// What a session keeps from pull to pull.
pub(crate) struct SampleTotals {
    rows: HashMap<SampledKey, SampledCounts>,
    addresses: HashMap<SampledAddress, AddressCounts>,
    /// The kernel's rows as they were read last, and its addresses.
    last_rows: HashMap<SampleKey, SampleRow>,
    last_addresses: HashMap<AddressKey, AddressRow>,
    /// The programs' account, by event and CPU.
    cpus: Vec<Vec<SampleCpu>>,
    /// By event and CPU.
    scales: HashMap<(usize, u32), Scale>,
    /// What events counted since the last reading.
    gained: HashMap<(usize, u32), u64>,
    /// What they counted since the session began.
    counted: Vec<u64>,
    pushed_out: Vec<u64>,
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
            last_rows: HashMap::new(),
            last_addresses: HashMap::new(),
            cpus: vec![Vec::new(); events],
            scales: HashMap::new(),
            gained: HashMap::new(),
            counted: vec![0; events],
            pushed_out: vec![0; events],
            ended: HashSet::new(),
            readings: 0,
            snapshot: 0,
            next: None,
        }
    }

    /// Takes in what an event counted.
    pub(crate) fn count(&mut self, event: &mut OpenEvent) {
        let gained = event.gained();
        self.counted[event.event] += gained;
        *self.gained.entry((event.event, event.cpu)).or_default() += gained;
    }

    /// What each event of a period stands for, by event and CPU.
    fn factors(&mut self, cpus: &[Vec<SampleCpu>]) -> HashMap<(usize, u32), f64> {
        let mut factors = HashMap::new();
        for (event, of_event) in cpus.iter().enumerate() {
            for (cpu, now) in (0_u32..).zip(of_event) {
                let gained = self.gained.get(&(event, cpu)).copied().unwrap_or(0);
                if gained == 0 && now.samples == 0 {
                    continue;
                }
                let before = self.cpus[event].get(cpu as usize);
                let before = before.copied().unwrap_or_default();
                let samples = now.samples - before.samples;
                let periods = now.periods.wrapping_sub(before.periods);
                let scale = self.scales.entry((event, cpu)).or_default();
                factors.insert((event, cpu), scale.factor(gained, samples, periods));
            }
        }
        self.gained.clear();
        factors
    }

    /// Adds what a row of the kernel gained since it was read last.
    fn add(&mut self, key: SampledKey, before: &SampleRow, now: &SampleRow, factor: f64) {
        let gained = SampledCounts::between(before, now, factor);
        if gained.counts.samples == 0 {
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

    fn add_address(&mut self, key: &AddressKey, now: AddressRow) {
        let before = self.last_addresses.insert(*key, now).unwrap_or_default();
        let made = self.readings;
        let address = SampledAddress {
            cgroup: key.cgroup,
            address: key.address,
            tgid: key.tgid,
            event: key.event,
            page: key.page != 0,
        };
        let counts = self.addresses.entry(address).or_insert(AddressCounts {
            made,
            ..AddressCounts::default()
        });
        counts.samples += now.samples.saturating_sub(before.samples);
        counts.periods += now.periods.saturating_sub(before.periods);
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
    /// Adds what was sampled since the last reading. Maps are read before counts: what was sampled
    /// was counted by then.
    fn read(&mut self, object: &mut Object, moment: u64) -> Result<(), SessionError> {
        let rows = object.maps.sample_rows.all()?;
        let addresses = match self.config.addresses {
            false => Vec::new(),
            true => {
                let mut addresses = object.maps.sample_addresses.all()?;
                addresses.extend(object.maps.sample_pages.all()?);
                addresses
            }
        };
        let events = 0..self.config.events.len();
        let cpus = events.map(|event| {
            object
                .maps
                .sample_cpu
                .get(u32::try_from(event).unwrap_or(0))
        });
        let cpus = cpus.collect::<Result<Vec<_>, _>>()?;
        let totals = &mut self.totals;
        self.open.iter_mut().for_each(|event| totals.count(event));
        totals.readings += 1;
        let factors = totals.factors(&cpus);
        let factor = |event: usize, cpu: u32| factors.get(&(event, cpu)).copied().unwrap_or(1.0);
        for (key, now) in rows {
            let before = totals.last_rows.insert(key, now).unwrap_or_default();
            let sampled = SampledKey {
                cgroup: key.cgroup,
                tgid: key.tgid,
                event: key.event,
                source: key.source,
            };
            let factor = factor(usize::from(key.event), u32::from(key.cpu));
            totals.add(sampled, &before, &now, factor);
            if key.generation != self.generation {
                object.maps.sample_rows.take(&key)?;
                totals.last_rows.remove(&key);
            }
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
        #[expect(clippy::cast_possible_truncation, reason = "as the program stores it")]
        let generation = self.generation as u16;
        if let Some(names) = &mut self.names {
            names.name(&addresses, moment);
        }
        for (key, now) in addresses {
            totals.add_address(&key, now);
            if key.generation != generation {
                let table = match key.page {
                    0 => &object.maps.sample_addresses,
                    _ => &object.maps.sample_pages,
                };
                table.take(&key)?;
                totals.last_addresses.remove(&key);
            }
        }
        totals.push_out(true, MAX_ADDRESSES);
        let crowded = totals.push_out(false, MAX_ADDRESSES);
        if let Some(names) = self.names.as_mut().filter(|_| crowded) {
            let kept = totals.addresses.keys();
            names.keep(&kept.map(SampledAddress::place).collect());
        }
        totals.cpus = cpus;
        self.next_generation(object)
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

    fn places(&self) -> HashMap<(u32, u64), Place> {
        let names = self.names.as_ref();
        names.map_or_else(HashMap::new, |names| names.places.clone())
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
                period,
                frequency,
                counted: totals.counted[at],
                missed: scales.map(|(_, scale)| scale.missed).sum(),
                sum,
                pushed_out: totals.pushed_out[at],
                bpf_stats: stats.and_then(|(_, time)| u64::try_from(time.as_nanos()).ok()),
            }
        });
        health.collect()
    }
}

#[cfg(test)]
mod tests {
    use probe_common::CgroupId;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Who has most samples stays, half of the room is used, and all else is counted.
        #[test]
        fn the_rarest_addresses_give_way(
            sizes in prop::collection::vec(1..20_u64, 0..60),
            pages in prop::collection::vec(1..20_u64, 0..9),
        ) {
            const ROOM: usize = 10;
            let mut totals = SampleTotals::new(1);
            let all = sizes.iter().map(|it| (false, it)).chain(pages.iter().map(|it| (true, it)));
            for (address, (page, samples)) in (0..).zip(all) {
                let key = SampledAddress {
                    cgroup: CgroupId(7),
                    address,
                    tgid: 0,
                    event: 0,
                    page,
                };
                let counts = AddressCounts { samples: *samples, periods: 0, made: 1 };
                totals.addresses.insert(key, counts);
            }
            prop_assert!(!totals.push_out(true, ROOM));
            prop_assert_eq!(totals.push_out(false, ROOM), sizes.len() > ROOM);
            let left = totals.addresses.iter().filter(|(key, _)| !key.page);
            let left: Vec<u64> = left.map(|(_, it)| it.samples).collect();
            let lost = sizes.iter().sum::<u64>() - left.iter().sum::<u64>();
            prop_assert_eq!(totals.pushed_out[0], lost);
            prop_assert_eq!(totals.addresses.len() - left.len(), pages.len());
            if sizes.len() > ROOM {
                let mut sorted = sizes.clone();
                sorted.sort_unstable_by(|a, b| b.cmp(a));
                prop_assert_eq!(left.len(), ROOM / 2);
                prop_assert_eq!(left.iter().sum::<u64>(), sorted[..ROOM / 2].iter().sum::<u64>());
            }
        }
    }
}
