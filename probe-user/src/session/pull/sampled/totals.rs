//! Totals of samples since the session began: rows, addresses, and the events' own counts by event
//! and CPU.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use probe_common::{
    CgroupId,
    sample::{AddressKey, AddressRow, SampleCpu, SampleRow},
};

use crate::{
    event::sampling::{Rate, SampledEvent},
    session::{
        pull::{FreedRows, lifecycle::EndedOwners},
        sampling::OpenEvent,
    },
    snapshot::{AddressCounts, SampleCounts, SampleOrigin, SampledAddress, SampledKey},
    sys::perf::CounterReading,
};

/// State of event sampling from pull to pull.
pub(crate) struct EventSampleTotals {
    pub(super) rows: HashMap<SampledKey, SampleCounts>,
    pub(super) addresses: HashMap<SampledAddress, AddressTotals>,
    /// The programs' counts at the last reading, by event and CPU.
    pub(super) cpus: Vec<BTreeMap<u32, SampleCpu>>,
    /// Counts and times of events since the last reading, by event and CPU.
    pub(super) deltas: HashMap<(usize, u32), CounterReading>,
    /// Counts and times of events since the session began, over all CPUs.
    pub(super) counted: Vec<CounterReading>,
    /// By event with a fixed period: samples that were due but did not run the program.
    pub(super) missed: Vec<u64>,
    /// By event: samples of evicted addresses.
    pub(super) pushed_out: Vec<u64>,
    /// By event: how often a reading found the sample rate of a CPU near the kernel's limit.
    pub(super) limited: Vec<u64>,
    /// `CLOCK_MONOTONIC` nanoseconds of the last reading.
    pub(super) moment: Option<u64>,
    /// Owners that ended since the last snapshot. Each reading frees their rows again, since the
    /// end of an exit may be sampled later.
    pub(super) ended: Vec<Arc<EndedOwners>>,
    /// Rows that were freed since the last snapshot.
    pub(super) freed: FreedRows<SampleCounts>,
    /// Number of readings so far: the generation of new rows.
    pub(super) readings: u64,
    /// The new factor by which events are sampled less often, from the next reading on.
    pub(super) next_coarser: Option<u64>,
}

/// Totals of an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressTotals {
    pub(super) counts: AddressCounts,
    /// Samples at the last snapshot.
    shown: u64,
}

impl AddressTotals {
    /// The number of samples since the last snapshot, then of all samples.
    fn size(&self) -> [u64; 2] {
        let samples = self.counts.samples;
        [samples - self.shown, samples]
    }
}

impl EventSampleTotals {
    /// Empty totals of this many events.
    pub(crate) fn new(events: usize) -> Self {
        Self {
            rows: HashMap::new(),
            addresses: HashMap::new(),
            cpus: vec![BTreeMap::new(); events],
            deltas: HashMap::new(),
            counted: vec![CounterReading::default(); events],
            missed: vec![0; events],
            pushed_out: vec![0; events],
            limited: vec![0; events],
            moment: None,
            ended: Vec::new(),
            freed: FreedRows::default(),
            readings: 0,
            next_coarser: None,
        }
    }

    /// Keeps only the first `events` events.
    pub(crate) fn retain_events(&mut self, events: usize) {
        let is_kept = |key: &SampledKey| match key.origin {
            SampleOrigin::Event { event, .. } => usize::from(event) < events,
            SampleOrigin::Spe { .. } => false,
        };
        self.rows.retain(|key, _| is_kept(key));
        self.freed.retain(is_kept);
        self.addresses
            .retain(|key, _| usize::from(key.event) < events);
        self.deltas.retain(|(event, _), _| *event < events);
        self.cpus.truncate(events);
        self.counted.truncate(events);
        self.missed.truncate(events);
        self.pushed_out.truncate(events);
        self.limited.truncate(events);
    }

    /// Whether the event is still sampled.
    fn is_sampled(&self, event: u8) -> bool {
        usize::from(event) < self.counted.len()
    }

    /// Adds the delta of an event since its last reading, and returns it.
    pub(crate) fn count(&mut self, event: &mut OpenEvent) -> CounterReading {
        let delta = event.read_delta();
        self.counted[event.event].add(delta);
        let cpu_delta = self.deltas.entry((event.event, event.cpu)).or_default();
        cpu_delta.add(delta);
        delta
    }

    /// Factors by which the samples of multiplexed events are scaled to the whole time, by event
    /// and CPU.
    pub(super) fn factors(&mut self) -> HashMap<(usize, u32), f64> {
        let deltas = self.deltas.drain();
        deltas.map(|(key, delta)| (key, delta.scale())).collect()
    }

    /// The factor by which to scale the samples since the last reading, so that they also stand for
    /// an incomplete period that ends at `count`. None if there were no samples.
    #[expect(clippy::cast_precision_loss, reason = "counts between two readings")]
    pub(super) fn with_dropped_period(
        &self,
        event: usize,
        now: &BTreeMap<u32, SampleCpu>,
        cpu: u32,
        count: u64,
    ) -> Option<f64> {
        let now = now.get(&cpu)?;
        let before = self.cpus[event].get(&cpu).map_or(0, |cpu| cpu.periods);
        let periods = now.periods.wrapping_sub(before);
        let dropped = count.saturating_sub(now.last_count);
        (periods > 0).then(|| 1.0 + dropped as f64 / periods as f64)
    }

    /// Counts the missed samples of events with a fixed period: samples that were due but did not
    /// run the program. The next sample stands for their events too.
    pub(super) fn count_missed(
        &mut self,
        events: &[SampledEvent],
        cpus: &[BTreeMap<u32, SampleCpu>],
    ) {
        let has_fixed_period = |event: usize| {
            matches!(events[event].rate, Rate::Period(_)) && events[event].counts_as_it_samples()
        };
        let by_event = cpus.iter().enumerate();
        for (event, event_cpus) in by_event.filter(|(event, _)| has_fixed_period(*event)) {
            // A sample that is only late reduces `missed` at the next reading. The total must not
            // decrease.
            let missed = event_cpus.values().map(missed_samples).sum();
            self.missed[event] = self.missed[event].max(missed);
        }
    }

    /// Counts the CPUs that had so many samples that the kernel may have throttled the event there.
    /// Throttling stops the counter until the next tick, which its count does not show. `limit` is
    /// in samples per second and CPU.
    pub(super) fn count_limited(
        &mut self,
        cpus: &[BTreeMap<u32, SampleCpu>],
        moment: u64,
        limit: Option<u64>,
    ) {
        let last = self.moment.replace(moment);
        let Some((last, limit)) = last.zip(limit) else {
            return;
        };
        let elapsed = moment.saturating_sub(last);
        for (event, event_cpus) in cpus.iter().enumerate() {
            for (cpu, now) in event_cpus {
                let before = self.cpus[event].get(cpu).map_or(0, |cpu| cpu.samples);
                self.limited[event] +=
                    u64::from(is_near_limit(now.samples - before, elapsed, limit));
            }
        }
    }

    /// Adds the growth of a kernel row since its last reading.
    pub(super) fn add(
        &mut self,
        (cgroup, tgid): (CgroupId, u32),
        (event, source): (u8, u8),
        [before, now]: [&SampleRow; 2],
        factor: f64,
    ) {
        let gained = SampleCounts::from_periods(before, now, factor);
        if gained.samples == 0 || !self.is_sampled(event) {
            return;
        }
        let key = SampledKey {
            cgroup,
            tgid,
            origin: SampleOrigin::Event { event, source },
        };
        let made = self.readings;
        let row = self.rows.entry(key).or_insert_with(|| SampleCounts {
            made,
            ..SampleCounts::default()
        });
        row.add(&gained);
    }

    /// Adds the kernel's row of an address.
    #[expect(clippy::cast_precision_loss, reason = "periods between two readings")]
    pub(super) fn add_address(
        &mut self,
        key: &AddressKey,
        row: &AddressRow,
        image: u64,
        factor: f64,
    ) {
        if !self.is_sampled(key.event) {
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
        let entry = self.addresses.entry(address).or_insert(AddressTotals {
            counts: AddressCounts {
                made,
                ..AddressCounts::default()
            },
            shown: 0,
        });
        let counts = &mut entry.counts;
        counts.samples += u64::from(row.samples);
        counts.events += row.periods as f64 * factor;
        counts.timed += u64::from(row.timed);
        counts.cycles += row.cycles;
    }

    /// The addresses for a snapshot. Remembers their samples as shown.
    pub(super) fn show_addresses(&mut self) -> HashMap<SampledAddress, AddressCounts> {
        let addresses = self.addresses.iter_mut();
        let shown = addresses.map(|(key, entry)| {
            entry.shown = entry.counts.samples;
            (*key, entry.counts)
        });
        shown.collect()
    }

    /// If there are more than `max` addresses of one kind (data pages if `page` is true, else
    /// instructions), keeps only the `max / 2` with the most samples since the last snapshot. So
    /// addresses of programs that ended long ago, which are in no later window, are dropped first.
    /// Returns whether any were dropped.
    pub(super) fn evict_addresses(&mut self, page: bool, max: usize) -> bool {
        let kind = self.addresses.iter().filter(|(key, _)| key.page == page);
        let mut sizes: Vec<[u64; 2]> = kind.map(|(_, it)| it.size()).collect();
        if sizes.len() <= max {
            return false;
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let smallest_kept = sizes[max / 2 - 1];
        let above = sizes.partition_point(|size| *size > smallest_kept);
        let mut room_for_equal = max / 2 - above;
        let pushed_out = &mut self.pushed_out;
        self.addresses.retain(|key, entry| {
            if key.page != page {
                return true;
            }
            // Of the addresses of this size, as many stay as there is room for.
            let keep = match entry.size().cmp(&smallest_kept) {
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal if room_for_equal > 0 => {
                    room_for_equal -= 1;
                    true
                }
                _ => false,
            };
            if !keep {
                pushed_out[usize::from(key.event)] += entry.counts.samples;
            }
            keep
        });
        true
    }
}

/// The number of samples that were due by the event's count at its last sample, but did not come.
fn missed_samples(cpu: &SampleCpu) -> u64 {
    let late = cpu.periods.saturating_sub(cpu.reported);
    let missed = u128::from(late) * u128::from(cpu.samples) / u128::from(cpu.reported.max(1));
    u64::try_from(missed).unwrap_or(u64::MAX)
}

/// Whether `samples` in `elapsed` nanoseconds are at least nine tenths of a CPU's limit. The kernel
/// applies the limit to each tick, of 10 ms at most, so shorter times count as one tick.
fn is_near_limit(samples: u64, elapsed: u64, limit: u64) -> bool {
    const TICK: u64 = 10_000_000;
    let allowed = u128::from(elapsed.max(TICK)) * u128::from(limit);
    samples > 0 && u128::from(samples) * 10_000_000_000 >= 9 * allowed
}

#[cfg(test)]
mod weighed;

#[cfg(test)]
mod tests;
