//! Samples between two snapshots, summed over CPUs: of memory accesses and of other events.

mod events;
mod spe;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use probe_common::spe::{Class, PageKey, PageRow, Source};
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::tests::{sampled_window, spe_reading};
use super::{CacheLines, Gained, Owner, RunningTime, Sum as _, Usage, float};
use crate::{
    event::AccessScaling,
    snapshot::{
        AddressCounts, CodeKey, CodeLocation, NameCounts, SampleCounts, SampledAddress,
        SampledHealth, Snapshot, SpeHealth,
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

/// What takes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SampleSource {
    /// Arm's SPE.
    Spe,
    /// Overflows of an event: its index into [`SampleWindow::events`].
    Event(u8),
    /// No samples, but the counted time of an event that is a clock, in ns: its index.
    Clock(u8),
}

/// The source of samples, and the kind of access that they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleKind {
    /// The source.
    pub source: SampleSource,
    /// Class and memory level; None for an event that samples no memory accesses.
    pub access: Option<(Class, MemLevel)>,
}

/// Samples of one owner by their kind.
pub type SampleUsage = BTreeMap<SampleKind, SampleCounts>;

/// The count of a sampled event itself in a window, on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventGain {
    /// Its count; not scaled.
    pub counted: u64,
    /// Its enabled and running time.
    pub time: RunningTime,
    /// Its sample rate came near the kernel's limit on some CPU: it may not have counted all the
    /// time.
    pub limited: bool,
    /// Missed samples.
    pub missed: u64,
    /// Expected samples.
    pub due: u64,
}

/// Samples between two snapshots.
#[derive(Clone, Debug, Default)]
pub struct SampleWindow {
    /// Deltas by owner.
    pub usage: BTreeMap<Owner, SampleUsage>,
    /// The whole machine: the sum of all owners.
    pub total: Gained<SampleUsage>,
    /// Deltas of SPE's samples by the socket of the CPU and owner, if uncore events are counted.
    /// Samples of events are no weights of a socket's traffic.
    pub on_socket: BTreeMap<(u32, Owner), SampleUsage>,
    /// Deltas by accessed page; empty if none are kept.
    pub pages: Vec<(PageKey, PageRow)>,
    /// Deltas by accessed cache line; empty if none are kept.
    pub lines: CacheLines,
    /// The programs' accounting of SPE since the session began, as of the later snapshot; None
    /// without SPE.
    pub spe: Option<Box<SpeHealth>>,
    /// The sampled events, with the accounting of their samples since the session began.
    pub events: Vec<SampledHealth>,
    /// The count of each event itself in this window.
    pub events_gained: Vec<EventGain>,
    /// Deltas of events by address; empty if none are kept.
    pub addresses: Vec<(SampledAddress, AddressCounts)>,
    /// Locations of instructions, by [`SampledAddress::code_key`].
    pub places: HashMap<CodeKey, CodeLocation>,
    /// Failures of naming them since the session began.
    pub names: Option<NameCounts>,
}

impl SampleKind {
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
}

impl SampleWindow {
    /// The difference of two snapshots of one session; None if it does not sample.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Option<Self> {
        let spe = earlier.spe.as_ref().zip(later.spe.as_ref());
        let events = earlier.sampled.as_ref().zip(later.sampled.as_ref());
        if spe.is_none() && events.is_none() {
            return None;
        }
        let mut window = Self::default();
        if let Some((before, now)) = spe {
            window.add_spe(before, now, later.topology.as_deref());
        }
        if let Some((before, now)) = events {
            window.add_events(before, now);
        }
        window.sum_owners(earlier.at);
        Some(window)
    }

    fn sum_owners(&mut self, since: Duration) {
        let mut total = SampleUsage::new();
        for of_owner in self.usage.values() {
            total.add_all(of_owner);
        }
        self.total = Gained::first(total, since);
    }

    /// What samples, in the order of [`SampleSource`]. Totals go on as long as this stays the same.
    pub(crate) fn sources(&self) -> Vec<String> {
        let spe = self.spe.iter().map(|_| "spe".to_owned());
        let events = self.events.iter().map(|event| event.name.clone());
        spe.chain(events).collect()
    }

    /// Adds the counted running time of each owner for events that are clocks.
    ///
    /// The samples of a timer underestimate the time of tasks that sleep until the same tick. The
    /// running time is counted exactly.
    pub(super) fn add_clock(
        &mut self,
        counted: &BTreeMap<Owner, Usage>,
        (group, at): (usize, usize),
    ) {
        let events = (0_u8..).zip(&self.events);
        let clocks = events.filter(|(_, event)| event.is_whole_clock());
        let clocks: Vec<u8> = clocks.map(|(event, _)| event).collect();
        if clocks.is_empty() {
            return;
        }
        for event in clocks {
            let kind = SampleKind {
                source: SampleSource::Clock(event),
                access: None,
            };
            for of_owner in self.usage.values_mut() {
                if let Some(sampled) = of_owner.get(&SampleKind::event(event, None)) {
                    // The default, if there is no row of counts.
                    let operations = sampled.operations.trunc();
                    of_owner.entry(kind).or_default().operations = operations;
                }
            }
            for (owner, usage) in counted {
                if let Some(Some(counted)) = usage.get(group) {
                    let of_owner = self.usage.entry(*owner).or_default();
                    of_owner.entry(kind).or_default().operations = float(counted.counts[at]);
                }
            }
        }
        self.sum_owners(self.total.since);
    }

    /// The events of memory accesses: their indices.
    pub(crate) fn access_events(&self) -> impl Iterator<Item = usize> {
        let events = self.events.iter().enumerate();
        events.filter_map(|(at, event)| event.accesses.map(|_| at))
    }

    /// Classes without a number of operations: the core chose the operations that it timed.
    #[must_use]
    pub fn tagged(&self) -> BTreeSet<Class> {
        let is_tagged = |event: &SampledHealth| event.accesses == Some(AccessScaling::Tagged);
        let sampled = self
            .total
            .delta
            .keys()
            .filter_map(|kind| match kind.source {
                SampleSource::Spe | SampleSource::Clock(_) => None,
                SampleSource::Event(event) => {
                    let (class, _) = kind.access?;
                    is_tagged(self.events.get(usize::from(event))?).then_some(class)
                }
            });
        // Includes loads even if the window has none of them, since their totals continue.
        let loads = self.events.iter().any(is_tagged).then_some(Class::Load);
        sampled.chain(loads).collect()
    }

    /// The longest latency that a sample of an access can have, in cycles.
    pub(crate) fn max_latency(&self) -> f64 {
        // Weights of events are 64 bits wide, and clamped.
        let longest = self.spe.as_ref().map_or(u16::MAX, |spe| spe.max_latency);
        longest.into()
    }

    /// Mean number of operations that a sample of an access stands for.
    #[expect(clippy::cast_precision_loss, reason = "a period is below 2^53")]
    pub(crate) fn weight(&self) -> f64 {
        if let Some(spe) = &self.spe {
            return spe.period as f64;
        }
        let (mut samples, mut operations) = (0, 0.0);
        for (kind, counts) in &self.total.total {
            if kind.access.is_some() {
                samples += counts.samples;
                operations += counts.operations;
            }
        }
        operations / samples.max(1) as f64
    }

    /// Whether the sample rate of an event came near the kernel's limit in this window: the kernel
    /// may have stopped its counter.
    pub(crate) fn was_limited(&self, event: usize) -> bool {
        let gained = self.events_gained.get(event);
        gained.is_some_and(|gained| gained.limited)
    }

    /// Whether it came near that limit since the session began: totals may lack lost samples.
    pub(crate) fn was_ever_limited(&self, event: usize) -> bool {
        self.events
            .get(event)
            .is_some_and(|event| event.limited > 0)
    }

    /// The time of a multiplexed event; None if it was on the PMU all the time.
    pub(crate) fn multiplexed_time(&self, event: usize) -> Option<RunningTime> {
        let gained = self.events_gained.get(event)?;
        (gained.time.running < gained.time.enabled).then_some(gained.time)
    }
}

/// The difference of two readings of a row. A row that was freed and created again counts as a
/// whole. Rows only grow: one that shrank counts nothing.
fn delta(earlier: Option<&SampleCounts>, now: &SampleCounts) -> SampleCounts {
    let same = earlier.filter(|earlier| earlier.made == now.made);
    now.since(&same.copied().unwrap_or_default())
}
