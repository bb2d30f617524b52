//! Pulls sampled events: reads the rows that the program added to.

mod totals;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use probe_common::{
    Field as _,
    sample::{SampleCpu, SampleRow},
};

pub(crate) use self::totals::EventSampleTotals;
use super::lifecycle::EndedOwners;
use crate::{
    event::sampling::{Rate, max_sample_rate},
    session::{
        EbpfObject, KernelClock, SessionError,
        object::{EVENT_SAMPLE, SAMPLE_COUNT_FROM},
        sampling::{EventSampling, FunctionNames},
    },
    snapshot::{
        CodeKey, CodeLocation, OVERFLOW, SampleReading, SampledAddress, SampledEventHealth,
        SampledKey,
    },
    sys::clock::{nanos, now},
};

/// Maximum number of instructions, and of data pages, that are kept from reading to reading. Each
/// takes 80 bytes.
const MAX_ADDRESSES: usize = 65_536;

impl EventSampling {
    /// Adds the sampled events to the reading of a snapshot, and frees the rows of ended owners.
    pub(super) fn pull(
        &mut self,
        object: &mut EbpfObject,
        clock: KernelClock,
        ended: &[Arc<EndedOwners>],
        reading: &mut SampleReading,
    ) -> Result<(), SessionError> {
        self.read(object, clock, ended)?;
        reading.events = self.health(object);
        reading.places = self.places();
        reading.names = self.names.as_ref().map(FunctionNames::counts);
        let totals = &mut self.totals;
        reading.rows.extend(&totals.rows);
        reading.freed.extend(totals.freed.take(totals.readings));
        reading.addresses = totals.show_addresses();
        totals.ended.clear();
        Ok(())
    }

    /// Reads the samples, and frees the rows of ended owners, which the next snapshot has. Changes
    /// the rate if the cost of samples requires it. Returns whether rows of processes were summed
    /// to save memory.
    pub(super) fn read(
        &mut self,
        object: &mut EbpfObject,
        clock: KernelClock,
        ended: &[Arc<EndedOwners>],
    ) -> Result<bool, SessionError> {
        if let Some(coarser) = self.totals.next_coarser.take() {
            self.reopen(object, coarser);
        } else {
            self.retry(object);
        }
        self.read_rows(object, nanos(clock.now()))?;
        let totals = &mut self.totals;
        totals.ended.extend(ended.iter().cloned());
        let has_ended = |key: &SampledKey, _: &mut _| {
            let mut ended = totals.ended.iter();
            ended.any(|it| it.owns(key.cgroup, key.tgid))
        };
        let freed = totals.rows.extract_if(has_ended);
        let summed = totals.freed.add(freed, self.max_rows as usize);
        self.adapt();
        Ok(summed)
    }

    /// Processes with rows, including freed ones that were not summed.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        let running = self.totals.rows.keys().map(|key| key.tgid);
        running.chain(self.totals.freed.processes())
    }

    /// Adds the samples since the last reading.
    fn read_rows(&mut self, object: &mut EbpfObject, moment: u64) -> Result<(), SessionError> {
        let closed = self.next_generation(object)?;
        let rows = object.maps.sample_rows.all()?;
        let mut addresses = Vec::new();
        if self.config.addresses {
            addresses.extend(object.maps.sample_addresses.rows_of_generation(closed));
        }
        if self.config.pages {
            addresses.extend(object.maps.sample_pages.rows_of_generation(closed));
        }
        self.release_addresses(object, closed)?;
        let cpus = self.cpus(object)?;
        let totals = &mut self.totals;
        let mut dropped = Vec::new();
        for event in &mut self.open {
            let delta = totals.count(event);
            if event.adjust_period(delta) {
                dropped.push((event.event, event.cpu, event.count()));
            }
        }
        totals.readings += 1;
        totals.count_limited(&cpus, moment, max_sample_rate());
        totals.count_missed(&self.config.events, &cpus);
        let mut factors = totals.factors();
        for (event, cpu, count) in dropped {
            if let Some(factor) = totals.with_dropped_period(event, &cpus[event], cpu, count) {
                *factors.entry((event, cpu)).or_insert(1.0) *= factor;
                let programs = &mut object.programs;
                programs.run(SAMPLE_COUNT_FROM, Some(cpu), &[event as u64, count])?;
            }
        }
        let factor = |event: usize, cpu: u32| factors.get(&(event, cpu)).copied().unwrap_or(1.0);
        for (key, row) in rows.iter().filter(|(key, _)| key.generation <= closed) {
            let owner = (key.cgroup, key.tgid);
            let factor = factor(usize::from(key.event), u32::from(key.cpu));
            totals.add(
                owner,
                (key.event, key.source),
                [&SampleRow::ZERO, row],
                factor,
            );
            object.maps.sample_rows.take(key)?;
        }
        for (event, event_cpus) in (0_u8..).zip(&cpus) {
            for (cpu, now) in event_cpus {
                let before = totals.cpus[usize::from(event)]
                    .get(cpu)
                    .map(|cpu| cpu.overflow)
                    .unwrap_or_default();
                let factor = factor(usize::from(event), *cpu);
                totals.add((OVERFLOW, 0), (event, 0), [&before, &now.overflow], factor);
            }
        }
        let images = self
            .names
            .as_mut()
            .map(|names| names.name(&addresses, moment));
        for (at, (key, row)) in addresses.iter().enumerate() {
            let image = images.as_ref().map_or(0, |images| images[at]);
            let factor = factor(usize::from(key.event), u32::from(key.cpu));
            totals.add_address(key, row, image, factor);
        }
        totals.evict_addresses(true, MAX_ADDRESSES);
        let has_evicted = totals.evict_addresses(false, MAX_ADDRESSES);
        if let Some(names) = self.names.as_mut().filter(|_| has_evicted) {
            let remaining = totals.addresses.keys();
            names
                .codes
                .retain(&remaining.map(SampledAddress::code_key).collect());
        }
        totals.cpus = cpus;
        Ok(())
    }

    /// Nanoseconds that the program has taken until the last reading, by possible CPU.
    pub(crate) fn nanos(&self) -> BTreeMap<u32, u64> {
        let mut nanos = BTreeMap::new();
        for (cpu, account) in self.totals.cpus.iter().flatten() {
            // One run in MEASURE_EVERY was measured.
            *nanos.entry(*cpu).or_default() += account.nanos * SampleCpu::MEASURE_EVERY;
        }
        nanos
    }

    /// Changes the rate from the next reading on, if the cost of the program requires it.
    fn adapt(&mut self) {
        let nanos: Vec<u64> = self.nanos().into_values().collect();
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
            self.totals.next_coarser = Some(step.period);
        }
    }

    fn places(&self) -> HashMap<CodeKey, CodeLocation> {
        let names = self.names.as_ref();
        names.map_or_else(HashMap::new, |names| names.codes.places.clone())
    }

    fn health(&self, object: &EbpfObject) -> Vec<SampledEventHealth> {
        let totals = &self.totals;
        let stats = object.programs.overflow_stats(EVENT_SAMPLE);
        let accounts = totals.cpus.iter().flat_map(BTreeMap::values);
        let samples: u64 = accounts.map(|account| account.samples).sum();
        let stats = stats.filter(|(runs, _)| *runs >= samples);
        let events = self.config.events.iter().enumerate();
        let health = events.map(|(at, event)| {
            let mut sum = SampleCpu::ZERO;
            totals.cpus[at].values().for_each(|cpu| sum.add(cpu));
            // A sum of last counts over CPUs has no meaning.
            sum.last_count = 0;
            let (period, frequency) = match self.rate(event) {
                Rate::Period(period) => (Some(period), None),
                Rate::Frequency(frequency) => (None, Some(frequency)),
            };
            SampledEventHealth {
                name: event.name.clone(),
                clock: event.is_clock(),
                counts_as_it_samples: event.counts_as_it_samples(),
                skids: event.skids(),
                accesses: event.accesses,
                period,
                frequency,
                counted: totals.counted[at].count,
                enabled: totals.counted[at].enabled,
                running: totals.counted[at].running,
                missed: totals.missed[at],
                sum,
                pushed_out: totals.pushed_out[at],
                limited: totals.limited[at],
                bpf_stats: stats.and_then(|(_, time)| u64::try_from(time.as_nanos()).ok()),
            }
        });
        health.collect()
    }
}
