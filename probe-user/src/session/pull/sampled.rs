//! What sampled events say: reads the rows that the program added to, and weighs each sample by
//! what its event counted.

mod totals;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use probe_common::{
    Field as _,
    sample::{SampleCpu, SampleRow},
};

pub(crate) use self::totals::SampleTotals;
use super::lifecycle::Ended;
use crate::{
    event::sampling::{Rate, max_sample_rate},
    session::{
        Object, Session, SessionError,
        object::EVENT_SAMPLE,
        sampling::{Names, Sampling},
    },
    snapshot::{
        CodeKey, ENDED, OVERFLOW, Place, SampledAddress, SampledHealth, SampledKey, SampledReading,
    },
    sys::clock::{nanos, now},
};

/// Instructions that are kept from reading to reading, and data pages: 80 bytes each.
const MAX_ADDRESSES: usize = 65_536;

/// Rows that are kept apart between two snapshots; processes that ended are summed beyond that.
const MAX_ROWS: usize = 32_768;

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
            addresses: sampling.totals.show_addresses(),
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
        let mut dropped = HashSet::new();
        for event in &mut self.open {
            let gained = totals.count(event);
            if event.hold(&gained) {
                dropped.insert((event.event, event.cpu));
            }
        }
        totals.readings += 1;
        totals.note_limit(&cpus, moment, max_sample_rate());
        let factors = totals.factors(&self.config.events, &cpus, &dropped);
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
            for (cpu, now) in of_event {
                let before = totals.cpus[usize::from(event)].get(cpu);
                let before = before.map(|cpu| cpu.overflow).unwrap_or_default();
                let sampled = SampledKey {
                    cgroup: OVERFLOW,
                    tgid: 0,
                    event,
                    source: 0,
                };
                let factor = factor(usize::from(event), *cpu);
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
    pub(crate) fn nanos(&self) -> BTreeMap<u32, u64> {
        let mut nanos = BTreeMap::new();
        for (cpu, account) in self.totals.cpus.iter().flatten() {
            // One run in some was measured.
            *nanos.entry(*cpu).or_default() += account.nanos * SampleCpu::MEASURE_EVERY;
        }
        nanos
    }

    /// Another rate where the cost of the program asks for it, from the next reading on.
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
        let accounts = totals.cpus.iter().flat_map(BTreeMap::values);
        let all: u64 = accounts.map(|account| account.samples).sum();
        let stats = stats.filter(|(runs, _)| *runs >= all);
        let events = self.config.events.iter().enumerate();
        let health = events.map(|(at, event)| {
            let mut sum = SampleCpu::ZERO;
            totals.cpus[at].values().for_each(|cpu| sum.add(cpu));
            let scales = totals.scales.iter().filter(|((of, _), _)| *of == at);
            let (period, frequency) = match self.rate(event) {
                Rate::Period(period) => (Some(period), None),
                Rate::Frequency(frequency) => (None, Some(frequency)),
            };
            SampledHealth {
                name: event.name.clone(),
                clock: event.is_clock(),
                counts_as_it_samples: event.counts_as_it_samples(),
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
