//! Samples between two snapshots, summed over CPUs: of memory accesses and of other events.

mod events;
mod spe;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use probe_common::{
    sample::DataSource,
    spe::{Class, PageKey, PageRow, Source},
};
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::tests::{sampled_window, spe_reading};
use super::{CacheLines, Gained, Owner, RunningTime, Sum as _, Usage, float, totals::SampleTotals};
use crate::{
    event::AccessScaling,
    machine::topology::Topology,
    snapshot::{
        AddressCounts, CodeKey, CodeLocation, GrowingRow as _, NameCounts, SampleCounts,
        SampleOrigin, SampleReading, SampledAddress, SampledEventHealth, Snapshot, SpeHealth,
    },
};

/// The memory level that served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemLevel {
    /// Known by the core's data-source table.
    By(Source),
    /// A data-source number without a known meaning.
    Number(u64),
    /// Unknown: the record has no data source. Stores have none on most cores.
    Unknown,
}

/// Name of Arm's SPE: the prefix of its PMUs' names.
pub(crate) const SPE: &str = "arm_spe";

/// What takes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SampleSource {
    /// Arm's SPE.
    Spe,
    /// Overflows of an event: the event's index into [`SampleWindow::events`].
    Event(u8),
    /// The counted time of a sampled clock event, in ns, instead of its samples: the event's index
    /// into [`SampleWindow::events`].
    Clock(u8),
}

/// The source of samples, and the kind of the sampled accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleKind {
    /// The source of the samples.
    pub source: SampleSource,
    /// Class and memory level; None for an event that samples no memory accesses.
    pub access: Option<(Class, MemLevel)>,
}

/// Samples of one owner by their kind.
pub type SampleUsage = BTreeMap<SampleKind, SampleCounts>;

/// The count of a sampled event itself in a window, on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventGain {
    /// The count of the event; not scaled.
    pub counted: u64,
    /// The event's enabled and running time.
    pub time: RunningTime,
    /// Whether the sample rate came near the kernel's limit on some CPU: then the event may not
    /// have counted all the time.
    pub limited: bool,
    /// Missed samples ([`SampledEventHealth::missed`]).
    pub missed: u64,
    /// Expected samples: those taken and those missed.
    pub due: u64,
}

/// A sampled event in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventWindow {
    /// The event, with the accounting of its samples since the session began.
    pub health: SampledEventHealth,
    /// The event's own count in the window.
    pub gained: EventGain,
    /// Whether the sample rate came near the kernel's limit since totals began: then the totals may
    /// lack samples.
    pub ever_limited: bool,
}

/// Samples between two snapshots.
#[derive(Clone, Debug, Default)]
pub struct SampleWindow {
    /// Deltas by owner.
    pub usage: BTreeMap<Owner, SampleUsage>,
    /// The whole machine: the sum of all owners.
    pub total: Gained<SampleUsage>,
    /// Deltas of SPE's samples by the socket of the CPU and owner, if uncore events are counted.
    /// Samples of events are not used to apportion a socket's traffic.
    pub on_socket: BTreeMap<(u32, Owner), SampleUsage>,
    /// Deltas by accessed page; empty if none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Deltas by accessed cache line; empty if none are kept.
    pub lines: CacheLines,
    /// The programs' accounting of SPE since the session began, as of the later snapshot; None
    /// without SPE.
    pub spe: Option<Box<SpeHealth>>,
    /// The sampled events.
    pub events: Vec<EventWindow>,
    /// Deltas of events by address; empty if none are kept.
    pub addresses: Vec<(SampledAddress, AddressCounts)>,
    /// Locations of instructions, by [`SampledAddress::code_key`].
    pub places: HashMap<CodeKey, CodeLocation>,
    /// Failures of naming the instructions since the session began; None if no addresses are kept.
    pub names: Option<NameCounts>,
}

impl SampleKind {
    /// The kind of a row's samples.
    fn from_origin(origin: SampleOrigin, reading: &SampleReading) -> Self {
        match origin {
            SampleOrigin::Spe { cpu, access } => {
                let level = (reading.spe.as_ref())
                    .map_or(MemLevel::Unknown, |spe| spe::level(spe, cpu, access));
                Self::spe(access.class(), level)
            }
            SampleOrigin::Event { event, source } => {
                let sampled = reading.events.get(usize::from(event));
                let accesses = sampled.and_then(|event| event.accesses);
                Self::event(event, accesses.map(|_| events::access(DataSource(source))))
            }
        }
    }

    /// The kind of an access that SPE sampled.
    #[must_use]
    pub const fn spe(class: Class, level: MemLevel) -> Self {
        Self {
            source: SampleSource::Spe,
            access: Some((class, level)),
        }
    }

    /// The kind of samples of an event.
    #[must_use]
    pub const fn event(event: u8, access: Option<(Class, MemLevel)>) -> Self {
        Self {
            source: SampleSource::Event(event),
            access,
        }
    }

    /// The kind of the counted time of an event that is a clock.
    const fn clock(event: u8) -> Self {
        Self {
            source: SampleSource::Clock(event),
            access: None,
        }
    }
}

impl SampleWindow {
    /// The difference of two snapshots of one session; None if the session does not sample.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Option<Self> {
        let (before, now) = earlier.samples.as_ref().zip(later.samples.as_ref())?;
        let mut window = Self::default();
        window.add_rows(before, now, later.topology.as_deref());
        if let Some((before, now)) = before.spe.as_ref().zip(now.spe.as_ref()) {
            window.add_spe(before, now);
        }
        window.add_events(before, now);
        let mut total = SampleUsage::new();
        for owner_usage in window.usage.values() {
            total.add_all(owner_usage);
        }
        window.total = Gained::first(total, earlier.at);
        Some(window)
    }

    /// Adds the samples between two readings to their owners, and the samples of SPE to sockets.
    fn add_rows(
        &mut self,
        before: &SampleReading,
        now: &SampleReading,
        topology: Option<&Topology>,
    ) {
        let freed = now.freed.iter().map(|(key, counts)| (key, counts));
        for (key, counts) in now.rows.iter().chain(freed) {
            let delta = counts.since(before.rows.get(key));
            let (owner, kind) = (Owner::from(key), SampleKind::from_origin(key.origin, now));
            let owner_usage = self.usage.entry(owner).or_default();
            // An owner that was sampled before keeps a row, as with counters.
            owner_usage.entry(kind).or_default().add(&delta);
            if let (SampleOrigin::Spe { cpu, .. }, Some(topology)) = (key.origin, topology)
                && delta.samples > 0
            {
                // A CPU of no known socket counts as one of socket 0.
                let socket = topology.socket(cpu.into()).unwrap_or(0);
                let owner_usage = self.on_socket.entry((socket, owner)).or_default();
                owner_usage.entry(kind).or_default().add(&delta);
            }
        }
    }

    /// The names of the sources of samples, in the order of [`SampleSource`]. Totals continue as
    /// long as this list stays the same.
    pub(crate) fn sources(&self) -> Vec<String> {
        let spe = self.spe.iter().map(|_| SPE.to_owned());
        let events = (0_u8..).zip(&self.events).map(|(at, event)| {
            let name = &event.health.name;
            match self.total.total.contains_key(&SampleKind::clock(at)) {
                true => format!("{name}, counted"),
                false => name.clone(),
            }
        });
        spe.chain(events).collect()
    }

    /// The name of the sampler of accesses of a class: `arm_spe`, or the names of the events. It
    /// stays the same as long as the sources do. On Intel's cores one event samples loads, and
    /// another one stores.
    pub(crate) fn sampler(&self, class: Class) -> String {
        if self.spe.is_some() {
            return SPE.to_owned();
        }
        let scaling = match class {
            Class::Load => AccessScaling::Tagged,
            _ => AccessScaling::Counted,
        };
        let has_class = |event: &&EventWindow| event.health.accesses == Some(scaling);
        let access_events: Vec<&EventWindow> = self.access_events().collect();
        let mut names: Vec<&str> = (access_events.iter().copied().filter(has_class))
            .map(|event| event.health.name.as_str())
            .collect();
        if names.is_empty() {
            names.extend(access_events.iter().map(|event| event.health.name.as_str()));
        }
        // A comma cannot separate the names, since names contain commas.
        names.join(" ")
    }

    /// Continues the totals of the previous window, if the same sources sampled then.
    pub(super) fn apply_totals(&mut self, before: &SampleTotals<'_>) {
        if before.sources != self.sources() {
            return;
        }
        self.total.continue_from(&before.total);
        for (event, limited) in self.events.iter_mut().zip(&before.limited) {
            event.ever_limited |= limited;
        }
    }

    /// The totals of the machine's samples.
    pub(super) fn totals(&self) -> SampleTotals<'_> {
        SampleTotals {
            sources: self.sources(),
            limited: self.events.iter().map(|event| event.ever_limited).collect(),
            total: Cow::Borrowed(&self.total),
        }
    }

    /// Adds the counted running time of each owner for events that are clocks.
    ///
    /// Samples of a timer underestimate the time of tasks that sleep until the timer's next tick.
    /// The running time is counted exactly.
    pub(super) fn add_clock(
        &mut self,
        counted: &BTreeMap<Owner, Usage>,
        (group, at): (usize, usize),
    ) {
        let events = (0_u8..).zip(&self.events);
        let clocks = events.filter(|(_, event)| event.health.is_whole_clock());
        let clocks: Vec<u8> = clocks.map(|(event, _)| event).collect();
        for event in clocks {
            let kind = SampleKind::clock(event);
            for owner_usage in self.usage.values_mut() {
                if let Some(sampled) = owner_usage.get(&SampleKind::event(event, None)) {
                    // The sampled time stands in for an owner without a row of counts.
                    let operations = sampled.operations.trunc();
                    owner_usage.entry(kind).or_default().operations = operations;
                }
            }
            for (owner, usage) in counted {
                if let Some(Some(counted)) = usage.get(group) {
                    let owner_usage = self.usage.entry(*owner).or_default();
                    owner_usage.entry(kind).or_default().operations = float(counted.counts[at]);
                }
            }
            let owner_counts = self.usage.values().filter_map(|it| it.get(&kind));
            for counts in owner_counts {
                for sum in [&mut self.total.delta, &mut self.total.total] {
                    sum.entry(kind).or_default().add(counts);
                }
            }
        }
    }

    /// The events of memory accesses.
    pub(crate) fn access_events(&self) -> impl Iterator<Item = &EventWindow> {
        let events = self.events.iter();
        events.filter(|event| event.health.accesses.is_some())
    }

    /// Classes whose number of operations is unknown, since a sample stands only for itself
    /// ([`AccessScaling::Tagged`]).
    #[must_use]
    pub fn tagged(&self) -> BTreeSet<Class> {
        let is_tagged = |event: &EventWindow| event.health.accesses == Some(AccessScaling::Tagged);
        let sampled = self
            .total
            .total
            .keys()
            .filter_map(|kind| match kind.source {
                SampleSource::Spe | SampleSource::Clock(_) => None,
                SampleSource::Event(event) => {
                    let (class, _) = kind.access?;
                    is_tagged(self.events.get(usize::from(event))?).then_some(class)
                }
            });
        // Loads are tagged from the first window on, even if it has no loads.
        let loads = self.events.iter().any(is_tagged).then_some(Class::Load);
        sampled.chain(loads).collect()
    }

    /// The longest latency that a sample of an access can have, in cycles.
    pub(crate) fn max_latency(&self) -> f64 {
        // An event's latencies are clamped to 16 bits.
        let longest = self.spe.as_ref().map_or(u16::MAX, |spe| spe.max_latency);
        longest.into()
    }

    /// Mean number of operations that a sample of an access stands for.
    pub(crate) fn weight(&self) -> f64 {
        if let Some(spe) = &self.spe {
            return float(spe.period);
        }
        let sum = |usage: &SampleUsage| {
            let mut sum = SampleCounts::default();
            let accesses = usage.iter().filter(|(kind, _)| kind.access.is_some());
            accesses.for_each(|(_, counts)| sum.add(counts));
            sum
        };
        // The sampling rate may have changed since totals began, so the window's samples come
        // first.
        let window_sum = Some(sum(&self.total.delta)).filter(|sum| sum.samples > 0);
        let sum = window_sum.unwrap_or_else(|| sum(&self.total.total));
        sum.operations / float(sum.samples.max(1))
    }
}

impl EventWindow {
    /// Its time if it was multiplexed; None if it was on the PMU all the time.
    pub(crate) fn multiplexed_time(&self) -> Option<RunningTime> {
        let time = self.gained.time;
        (time.running < time.enabled).then_some(time)
    }
}
