//! What samples added up to since the session began: rows, addresses, and by event and CPU what the
//! events themselves counted.

use std::collections::{BTreeMap, HashMap, HashSet};

use probe_common::sample::{AddressKey, AddressRow, SampleCpu, SampleRow};

use crate::{
    event::sampling::{Rate, SampledEvent},
    session::sampling::{Gain, OpenEvent, Periods, Scale},
    snapshot::{AddressCounts, ENDED, SampledAddress, SampledCounts, SampledKey},
};

/// What a session keeps from pull to pull.
pub(crate) struct SampleTotals {
    pub(super) rows: HashMap<SampledKey, SampledCounts>,
    pub(super) addresses: HashMap<SampledAddress, KeptAddress>,
    /// The programs' account, by event and CPU.
    pub(super) cpus: Vec<BTreeMap<u32, SampleCpu>>,
    /// By event and CPU.
    pub(super) scales: HashMap<(usize, u32), Scale>,
    /// What events did since the last reading.
    pub(super) gained: HashMap<(usize, u32), Gain>,
    /// What they did since the session began, on all CPUs.
    pub(super) counted: Vec<Gain>,
    pub(super) pushed_out: Vec<u64>,
    /// By event: on how many CPUs and in how many readings samples came near the kernel's limit.
    pub(super) limited: Vec<u64>,
    /// `CLOCK_MONOTONIC` nanoseconds of the last reading.
    pub(super) moment: Option<u64>,
    /// Keys of rows whose owner ended: the next snapshot is their last.
    pub(super) ended: HashSet<SampledKey>,
    pub(super) readings: u64,
    /// Number of the reading of the last snapshot.
    pub(super) snapshot: u64,
    /// How many times less often events are sampled from the next reading on.
    pub(super) next: Option<u64>,
}

/// An address that is kept from reading to reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptAddress {
    pub(super) counts: AddressCounts,
    /// Samples that the last snapshot had.
    shown: u64,
}

impl KeptAddress {
    /// Samples since the last snapshot, and all.
    fn size(&self) -> [u64; 2] {
        let all = self.counts.samples;
        [all - self.shown, all]
    }
}

impl SampleTotals {
    /// Of so many events.
    pub(crate) fn new(events: usize) -> Self {
        Self {
            rows: HashMap::new(),
            addresses: HashMap::new(),
            cpus: vec![BTreeMap::new(); events],
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

    /// Takes in what an event counted, and returns it.
    pub(crate) fn count(&mut self, event: &mut OpenEvent) -> Gain {
        let gained = event.gained();
        self.counted[event.event].add(&gained);
        let of_cpu = self.gained.entry((event.event, event.cpu)).or_default();
        of_cpu.add(&gained);
        gained
    }

    /// What each event of a period stands for, by event and CPU. Those of `dropped` have begun
    /// another period.
    pub(super) fn factors(
        &mut self,
        events: &[SampledEvent],
        cpus: &[BTreeMap<u32, SampleCpu>],
        dropped: &HashSet<(usize, u32)>,
    ) -> HashMap<(usize, u32), f64> {
        let mut factors = HashMap::new();
        let compared = |(event, _): &(usize, _)| events[*event].counts_as_it_samples();
        for (event, of_event) in cpus.iter().enumerate().filter(compared) {
            for (&cpu, now) in of_event {
                let gained = self.gained.get(&(event, cpu)).copied().unwrap_or_default();
                if gained.counted == 0 && now.samples == 0 {
                    continue;
                }
                let before = self.cpus[event].get(&cpu);
                let before = before.copied().unwrap_or_default();
                let samples = now.samples - before.samples;
                let periods = now.periods.wrapping_sub(before.periods);
                let scale = self.scales.entry((event, cpu)).or_default();
                let of = match events[event].rate {
                    Rate::Period(_) => Periods::Fixed,
                    Rate::Frequency(_) if dropped.contains(&(event, cpu)) => Periods::Dropped,
                    Rate::Frequency(_) => Periods::Adapted,
                };
                let factor = scale.factor(gained.counted, (samples, periods), of);
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
    pub(super) fn note_limit(
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
        for (event, of_event) in cpus.iter().enumerate() {
            for (cpu, now) in of_event {
                let before = self.cpus[event].get(cpu).map_or(0, |cpu| cpu.samples);
                self.limited[event] += u64::from(near(now.samples - before, elapsed, limit));
            }
        }
    }

    /// Adds what a row of the kernel gained since it was read last.
    pub(super) fn add(
        &mut self,
        key: SampledKey,
        before: &SampleRow,
        now: &SampleRow,
        factor: f64,
    ) {
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
    pub(super) fn add_address(
        &mut self,
        key: &AddressKey,
        row: &AddressRow,
        image: u64,
        factor: f64,
    ) {
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
        let kept = self.addresses.entry(address).or_insert(KeptAddress {
            counts: AddressCounts {
                made,
                ..AddressCounts::default()
            },
            shown: 0,
        });
        let counts = &mut kept.counts;
        counts.samples += u64::from(row.samples);
        counts.periods += row.periods;
        counts.events += row.periods as f64 * factor;
        counts.timed += u64::from(row.timed);
        counts.cycles += row.cycles;
    }

    /// The addresses for a snapshot.
    pub(super) fn show_addresses(&mut self) -> HashMap<SampledAddress, AddressCounts> {
        let addresses = self.addresses.iter_mut();
        let shown = addresses.map(|(key, kept)| {
            kept.shown = kept.counts.samples;
            (*key, kept.counts)
        });
        shown.collect()
    }

    /// Drops the instructions, or the data pages, with the fewest samples since the last snapshot
    /// where there are too many: those of programs that ended long ago are in no window that comes.
    /// Half of the room is free then. Returns whether any were dropped.
    pub(super) fn push_out(&mut self, page: bool, room: usize) -> bool {
        let kind = self.addresses.iter().filter(|(key, _)| key.page == page);
        let mut sizes: Vec<[u64; 2]> = kind.map(|(_, it)| it.size()).collect();
        if sizes.len() <= room {
            return false;
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let least = sizes[room / 2 - 1];
        let above = sizes.partition_point(|size| *size > least);
        let mut equal = room / 2 - above;
        let pushed_out = &mut self.pushed_out;
        self.addresses.retain(|key, kept| {
            if key.page != page {
                return true;
            }
            // Of those as large as the last that stays, as many as there is room for.
            let keep = match kept.size().cmp(&least) {
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal if equal > 0 => {
                    equal -= 1;
                    true
                }
                _ => false,
            };
            if !keep {
                pushed_out[usize::from(key.event)] += kept.counts.samples;
            }
            keep
        });
        true
    }

    /// Sums the rows of processes that ended where rows are too many. Those that the last snapshot
    /// has stay, since a window takes their difference.
    pub(super) fn sum_ended(&mut self, room: usize) {
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

#[cfg(test)]
mod weighed;

#[cfg(test)]
mod tests;
