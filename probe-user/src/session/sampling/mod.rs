//! Sampled events: opens them on every CPU, and attaches the program to their overflows. There is
//! no ring buffer and no wake-up: the program adds samples to rows, which user space reads.

mod error;
mod function_names;
mod open_event;
mod period_control;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    os::fd::AsFd as _,
    thread,
};

use probe_common::sample::{AddressKey, SampleCpu, SampleSetting};

pub use self::error::SampleError;
use self::open_event::open;

pub(crate) use self::{
    error::refused, function_names::FunctionNames, open_event::OpenEvent,
    period_control::FixedPeriod,
};
use super::{
    EbpfObject, SessionError,
    object::{EVENT_SAMPLE, SAMPLE_COUNT_FROM, SAMPLE_PREPARE},
    spe::{Budget, UPKEEP},
};
use crate::{
    event::sampling::{DEFAULT_FREQUENCY, Rate, SampledEvent},
    machine::Machine,
    session::pull::EventSampleTotals,
    sys::perf,
};

/// Configuration of sampled events.
#[derive(Clone, Debug, Default)]
pub struct SamplingConfig {
    /// The events; those that sample memory accesses come last.
    pub events: Vec<SampledEvent>,
    /// Share of a CPU's time that the program may take. Events are sampled less often if it takes
    /// more. None if rates stay.
    pub budget: Option<f64>,
    /// Whether to record the sampled instructions too, with the names of functions.
    pub addresses: bool,
    /// Whether to record the sampled data pages too.
    pub pages: bool,
    /// The minimum weight of a memory access that is recorded; 0 if all are recorded.
    pub least_weight: u64,
    /// Number of slots of each CPU in each table of addresses, rounded down to a power of two. None
    /// for a number that follows from the events' rates and the number of CPUs.
    pub max_addresses: Option<u32>,
    /// Maximum number of rows in the map of owners; None for a number that follows from the number
    /// of CPUs.
    pub max_rows: Option<u32>,
}

/// Share of a CPU's time that the program may take, if the user does not set it.
pub const DEFAULT_SAMPLE_BUDGET: f64 = 0.005;

impl SamplingConfig {
    /// Number of file descriptors that sampling on these CPUs takes. Each event takes one for
    /// itself on a CPU, one for its link, and one for its leader if it has one. Naming functions
    /// takes two on each CPU.
    pub(super) fn descriptors(&self, cpus: &[u32]) -> usize {
        let for_event = |event: &SampledEvent| {
            let counts_on = |cpu: &&u32| event.counter.scope.counts_on(**cpu);
            (2 + usize::from(event.leader.is_some())) * cpus.iter().filter(counts_on).count()
        };
        let names = if self.addresses { 2 * cpus.len() } else { 0 };
        self.events.iter().map(for_event).sum::<usize>() + names
    }

    /// Checks that the kernel accepts the events that sample memory accesses: opens each on the
    /// first of these CPUs that it counts on.
    pub(super) fn try_accesses(&self, online: &[u32]) -> Result<(), SampleError> {
        let accesses = self.events.iter().filter(|event| event.accesses.is_some());
        for event in accesses {
            let mut cpus = online.iter().copied();
            if let Some(cpu) = cpus.find(|cpu| event.counter.scope.counts_on(*cpu)) {
                let fixed_period = FixedPeriod::for_event(event, event.rate);
                let opened = open(
                    event,
                    FixedPeriod::open_rate(fixed_period.as_ref(), event.rate),
                    cpu,
                );
                opened.map_err(|error| SampleError::open(event, cpu, &error))?;
            }
        }
        Ok(())
    }

    /// Bit n is set if samples of event n are memory accesses.
    pub(crate) fn accesses(&self) -> u64 {
        self.bits(|event| event.accesses.is_some())
    }

    /// Bit n is set if event n counts nothing but what it samples.
    pub(super) fn counted(&self) -> u64 {
        self.bits(SampledEvent::counts_as_it_samples)
    }

    /// Bit n is set if event n is precise.
    pub(super) fn precise(&self) -> u64 {
        self.bits(|event| event.precise > 0)
    }

    /// Bit n is set if samples of event n may have a weight and a data source.
    pub(super) fn weighed(&self) -> u64 {
        self.bits(|event| event.counter.is_hardware())
    }

    /// Bit n is set if data pages are recorded, and samples of event n may have a data address.
    /// Samples of the kernel's clocks have none.
    pub(super) fn addressed(&self) -> u64 {
        self.bits(|event| self.pages && !event.is_clock())
    }

    /// Bit n is set if `holds` is true for event n.
    fn bits(&self, holds: impl Fn(&SampledEvent) -> bool) -> u64 {
        let events = self.events.iter().enumerate();
        let bits = events.map(|(at, event)| u64::from(holds(event)) << at);
        bits.sum()
    }

    /// Number of slots of each CPU in a table of addresses, given the number of possible CPUs. It
    /// is a power of two, and at least twice the number of samples between two readings if the
    /// limit of all slots allows it: each sample may have a new address.
    pub(super) fn slots(&self, possible: usize) -> u64 {
        /// Maximum number of slots of all CPUs: 128 MiB.
        const MAX_TOTAL: u64 = 1 << 21;
        /// Minimum number of wanted slots of a CPU: samples with a fixed period may come in bursts.
        const MIN_WANTED: u64 = 8192;
        let rates = self.events.iter().map(|event| match event.rate {
            Rate::Frequency(frequency) => frequency,
            Rate::Period(_) => DEFAULT_FREQUENCY,
        });
        let samples = rates
            .fold(0, u64::saturating_add)
            .saturating_mul(UPKEEP.as_secs());
        let wanted = samples
            .saturating_mul(2)
            .clamp(MIN_WANTED, MAX_TOTAL)
            .next_power_of_two();
        let room = (MAX_TOTAL / possible.max(1) as u64).max(1);
        let slots = self.max_addresses.map_or(wanted.min(room), u64::from);
        1 << slots.max(1).ilog2()
    }

    /// Maximum number of rows in the map of owners, given the number of possible CPUs. Rows are
    /// freed every two seconds, so a CPU has at most one row for each sample of the last four
    /// seconds.
    pub(super) fn rows(&self, possible: usize) -> u32 {
        let by_cpus = u32::try_from(possible.saturating_mul(8192)).unwrap_or(u32::MAX);
        self.max_rows.unwrap_or(by_cpus.clamp(65_536, 1 << 20))
    }
}

/// Event sampling of one session: its open events and state.
pub(crate) struct EventSampling {
    pub(crate) config: SamplingConfig,
    /// Maximum number of rows in the map of owners. If more rows of processes are freed between two
    /// snapshots, they are summed.
    pub(crate) max_rows: u32,
    pub(crate) open: Vec<OpenEvent>,
    pub(crate) budget: Option<Budget>,
    /// Factor by which every event is sampled less often than requested.
    pub(crate) coarser: u64,
    /// CPUs on which the kernel refused events. Each reading retries them.
    refused: BTreeSet<u32>,
    /// Generation of the rows to which the program adds now.
    pub(crate) generation: u64,
    pub(crate) totals: EventSampleTotals,
    /// Names of functions; None if addresses are not recorded.
    pub(crate) names: Option<FunctionNames>,
}

impl EventSampling {
    /// Loads the program and starts sampling on these CPUs, which already count.
    pub(crate) fn start(
        config: SamplingConfig,
        object: &mut EbpfObject,
        online: &[u32],
        possible: usize,
        machine: &Machine,
    ) -> Result<Self, SessionError> {
        object.programs.load_at_overflow(EVENT_SAMPLE)?;
        object.programs.load(SAMPLE_PREPARE)?;
        let is_adjusted =
            |event: &SampledEvent| FixedPeriod::for_event(event, event.rate).is_some();
        if config.events.iter().any(is_adjusted) {
            object.programs.load(SAMPLE_COUNT_FROM)?;
        }
        let mut sampling = Self {
            max_rows: config.rows(possible),
            open: Vec::new(),
            budget: config.budget.map(Budget::for_events),
            coarser: 1,
            refused: BTreeSet::new(),
            generation: AddressKey::FIRST,
            totals: EventSampleTotals::new(config.events.len()),
            names: config
                .addresses
                .then(|| FunctionNames::start(machine, online)),
            config,
        };
        sampling.release_addresses(object, AddressKey::FIRST - 1)?;
        sampling.set_generation(object)?;
        for &cpu in online {
            sampling.open(object, cpu)?;
        }
        Ok(sampling)
    }

    /// Starts sampling on a CPU. If an event is refused, no event stays open on the CPU.
    pub(crate) fn open(&mut self, object: &mut EbpfObject, cpu: u32) -> Result<(), SessionError> {
        let opened = self.open_all(object, cpu);
        if opened.is_err() {
            self.close(|other| other != cpu);
        }
        opened
    }

    fn open_all(&mut self, object: &mut EbpfObject, cpu: u32) -> Result<(), SessionError> {
        // Mappings are also watched on CPUs on which no event counts: processes create mappings
        // there too.
        if let Some(names) = &mut self.names {
            names.follow(cpu);
        }
        // If the CPU went offline, opening the events fails.
        object.programs.run(SAMPLE_PREPARE, Some(cpu), &[])?;
        for (at, event) in self.config.events.iter().enumerate() {
            if !event.counter.scope.counts_on(cpu) {
                continue;
            }
            let failed = |error| SampleError::open(event, cpu, &error);
            let rate = self.rate(event);
            let fixed_period = FixedPeriod::for_event(event, rate);
            let rate = FixedPeriod::open_rate(fixed_period.as_ref(), rate);
            let (fd, leader) = open(event, rate, cpu).map_err(failed)?;
            let link = object.programs.link(EVENT_SAMPLE, fd.as_fd(), at as u64)?;
            perf::enable(leader.as_ref().unwrap_or(&fd).as_fd()).map_err(failed)?;
            self.open
                .push(OpenEvent::new((at, cpu), link, (fd, leader), fixed_period));
        }
        Ok(())
    }

    /// Ends the sampling of memory accesses. None if nothing else is sampled.
    pub(crate) fn without_accesses(mut self) -> Option<Self> {
        let events = &mut self.config.events;
        let first_access = events.iter().position(|event| event.accesses.is_some());
        let others = first_access.unwrap_or(events.len());
        events.truncate(others);
        self.open.retain(|open| open.event < others);
        self.totals.retain_events(others);
        (others > 0).then_some(self)
    }

    /// Whether events are open on this CPU.
    pub(crate) fn samples(&self, cpu: u32) -> bool {
        self.open.iter().any(|event| event.cpu == cpu)
    }

    /// Closes the events of all CPUs for which `keep` is false: they went offline, even if they are
    /// online again. The events on these CPUs are dead, also those that watch processes.
    pub(crate) fn retain_cpus(&mut self, keep: impl Fn(u32) -> bool) {
        self.close(&keep);
        self.refused.retain(|cpu| keep(*cpu));
        if let Some(names) = &mut self.names {
            names.retain_cpus(keep);
        }
    }

    /// Closes the events of all CPUs for which `keep` is false.
    fn close(&mut self, keep: impl Fn(u32) -> bool) {
        let totals = &mut self.totals;
        self.open.retain_mut(|event| {
            let stays = keep(event.cpu);
            if !stays {
                totals.count(event);
            }
            stays
        });
    }

    /// Reopens all events, to be sampled `coarser` times less often than requested.
    pub(crate) fn reopen(&mut self, object: &mut EbpfObject, coarser: u64) {
        let cpus: BTreeSet<u32> = self.open.iter().map(|event| event.cpu).collect();
        self.close(|_| false);
        self.coarser = coarser;
        for cpu in cpus {
            // Events of a CPU that went offline meanwhile are opened when it is back online.
            self.open_or_retry(object, cpu);
        }
    }

    /// Starts sampling on a CPU. If the kernel refuses an event, the CPU is retried at every
    /// reading.
    pub(crate) fn open_or_retry(&mut self, object: &mut EbpfObject, cpu: u32) {
        if let Err(error) = self.open(object, cpu) {
            tracing::warn!("{error}: tried again with every reading");
            self.refused.insert(cpu);
        }
    }

    /// Retries the CPUs on which events were refused.
    pub(crate) fn retry(&mut self, object: &mut EbpfObject) {
        for cpu in mem::take(&mut self.refused) {
            if !self.samples(cpu) && self.open(object, cpu).is_err() {
                self.refused.insert(cpu);
            }
        }
    }

    /// Starts a new generation of rows. Returns the previous generation, to which no program adds
    /// any more.
    pub(crate) fn next_generation(&mut self, object: &mut EbpfObject) -> Result<u64, SessionError> {
        let closed = self.generation;
        self.generation += 1;
        self.set_generation(object)?;
        // Runs that began before may still add to the previous generation. Programs run with
        // interrupts off, so they finish within some microseconds.
        let begun: Vec<u64> = self.counts(object)?.map(|cpu| cpu.samples).collect();
        loop {
            let mut finished = self.counts(object)?.map(|cpu| cpu.finished).zip(&begun);
            if finished.all(|(finished, begun)| finished >= *begun) {
                return Ok(closed);
            }
            thread::yield_now();
        }
    }

    /// Frees the slots of this and all earlier generations, after their addresses were read.
    pub(crate) fn release_addresses(
        &self,
        object: &mut EbpfObject,
        generation: u64,
    ) -> Result<(), SessionError> {
        let settings = &mut object.maps.sample_settings;
        settings.set(SampleSetting::Read as u32, &generation)
    }

    fn set_generation(&self, object: &mut EbpfObject) -> Result<(), SessionError> {
        let settings = &mut object.maps.sample_settings;
        settings.set(SampleSetting::Generation as u32, &self.generation)
    }

    /// The programs' counts of each event and CPU.
    fn counts(&self, object: &EbpfObject) -> Result<impl Iterator<Item = SampleCpu>, SessionError> {
        let cpus = self.cpus(object)?.into_iter();
        Ok(cpus.flat_map(BTreeMap::into_values))
    }

    /// The programs' counts of each CPU, by event.
    pub(crate) fn cpus(
        &self,
        object: &EbpfObject,
    ) -> Result<Vec<BTreeMap<u32, SampleCpu>>, SessionError> {
        let events = (0..).take(self.config.events.len());
        events.map(|at| object.maps.sample_cpu.get(at)).collect()
    }

    /// The current rate of an event.
    pub(crate) fn rate(&self, event: &SampledEvent) -> Rate {
        match event.rate {
            Rate::Period(period) => Rate::Period(period.saturating_mul(self.coarser)),
            Rate::Frequency(rate) => Rate::Frequency((rate / self.coarser).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::sampling::sampled, machine::Pmus};

    #[test]
    fn tables_have_two_slots_per_sample_up_to_a_limit() {
        let pmus = Pmus::read(&test_support::sysfs("spr")).unwrap();
        let slots = |events: &str, max_addresses, possible| {
            let config = SamplingConfig {
                events: sampled(events, &pmus, None).unwrap(),
                max_addresses,
                ..SamplingConfig::default()
            };
            config.slots(possible)
        };
        assert_eq!(slots("cycles", None, 2), 8192);
        let four = "cycles,instructions,cache-misses,branch-misses";
        assert_eq!(slots(four, None, 144), 8192);
        assert_eq!(slots(four, None, 64), 16_384);
        assert_eq!(slots("cycles/freq=4000/", None, 2), 16_384);
        // 128 MiB in all.
        assert_eq!(slots("cycles", None, 512), 4096);
        assert_eq!(slots(four, None, 8192), 256);
        assert_eq!(slots("cycles", None, 1 << 30), 1);
        assert_eq!(slots("cycles", Some(100), 2), 64);
        assert_eq!(slots("cycles/freq=9223372036854775807/", None, 1), 1 << 21);
    }
}
