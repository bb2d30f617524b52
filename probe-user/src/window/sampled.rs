//! Samples of events between two snapshots.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU64,
};

use super::{Gained, Owner, RunningTime, Sum, Usage};
use crate::snapshot::{
    AddressCounts, CodeKey, CodeLocation, NameCounts, SampledAddress, SampledCounts, SampledHealth,
    SampledReading, Snapshot,
};

/// Samples of one owner, by the index of the event and the
/// [`DataSource`](probe_common::sample::DataSource).
pub type SampledUsage = BTreeMap<(u8, u8), SampledCounts>;

/// The count of a sampled event itself, on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventGain {
    /// Its count; not scaled.
    pub counted: u64,
    /// Its enabled and running time.
    pub time: RunningTime,
    /// Its sample rate came near the kernel's limit on some CPU: it may not have counted all the
    /// time.
    pub limited: bool,
}

/// Samples of events between two snapshots.
#[derive(Clone, Debug, Default)]
pub struct SampledWindow {
    /// Deltas by owner.
    pub usage: BTreeMap<Owner, SampledUsage>,
    /// The whole machine: the sum of all owners.
    pub total: Gained<SampledUsage>,
    /// Deltas by address; empty if none are kept.
    pub addresses: Vec<(SampledAddress, AddressCounts)>,
    /// Locations of instructions, by [`SampledAddress::code_key`].
    pub places: HashMap<CodeKey, CodeLocation>,
    /// Failures of naming them since the session began.
    pub names: Option<NameCounts>,
    /// The events, with the accounting of their samples since the session began.
    pub events: Vec<SampledHealth>,
    /// Missed samples and expected samples of each event in this window.
    pub missed: Vec<(u64, u64)>,
    /// The count of each event itself in this window.
    pub events_gained: Vec<EventGain>,
}

impl SampledWindow {
    /// The difference of two snapshots of one session; None where it samples no events.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Option<Self> {
        let (before, now) = (earlier.sampled.as_ref()?, later.sampled.as_ref()?);
        let mut usage: BTreeMap<Owner, SampledUsage> = BTreeMap::new();
        for (key, counts) in &now.rows {
            let owner = Owner {
                cgroup: key.cgroup,
                tgid: key.tgid,
            };
            let of_owner = usage.entry(owner).or_default();
            let kind = of_owner.entry((key.event, key.source)).or_default();
            kind.add(&counts.since(before.rows.get(key)));
        }
        let mut total = SampledUsage::new();
        for of_owner in usage.values() {
            total.add_all(of_owner);
        }
        Some(Self {
            total: Gained::first(total, earlier.at),
            usage,
            addresses: addresses(before, now),
            places: now.places.clone(),
            names: now.names,
            missed: missed(&before.events, &now.events),
            events_gained: events_gained(&before.events, &now.events),
            events: now.events.clone(),
        })
    }

    /// Adds the counted running time of each owner to events that are clocks.
    ///
    /// The samples of a timer underestimate the time of tasks that sleep until the same tick. The
    /// running time is counted exactly.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "nanoseconds, rounded down"
    )]
    pub(super) fn with_clock(
        mut self,
        counted: &BTreeMap<Owner, Usage>,
        (group, at): (usize, usize),
    ) -> Self {
        let events = (0_u8..).zip(&self.events);
        let clocks = events.filter(|(_, event)| event.is_whole_clock());
        let clocks: Vec<u8> = clocks.map(|(event, _)| event).collect();
        if clocks.is_empty() {
            return self;
        }
        for event in &clocks {
            for of_owner in self.usage.values_mut() {
                if let Some(counts) = of_owner.get_mut(&(*event, 0)) {
                    // The default, if there is no row of counts.
                    counts.counted = NonZeroU64::new(counts.counts.operations as u64);
                }
            }
            for (owner, usage) in counted {
                if let Some(Some(counted)) = usage.get(group) {
                    let of_owner = self.usage.entry(*owner).or_default();
                    let counts = of_owner.entry((*event, 0)).or_default();
                    counts.counted = NonZeroU64::new(counted.counts[at]);
                }
            }
        }
        let mut total = SampledUsage::new();
        for of_owner in self.usage.values() {
            total.add_all(of_owner);
        }
        self.total = Gained::first(total, self.total.since);
        self
    }

    /// Whether the sample rate of an event came near the kernel's limit in this window.
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

fn addresses(
    before: &SampledReading,
    now: &SampledReading,
) -> Vec<(SampledAddress, AddressCounts)> {
    let all = now.addresses.iter();
    let gained = all.map(|(key, counts)| (*key, counts.since(before.addresses.get(key))));
    let mut gained: Vec<_> = gained.filter(|(_, counts)| counts.samples > 0).collect();
    gained.sort_unstable_by_key(|(key, _)| *key);
    gained
}

fn missed(before: &[SampledHealth], now: &[SampledHealth]) -> Vec<(u64, u64)> {
    let pairs = now.iter().zip(before);
    let gained = pairs.map(|(now, before)| {
        let missed = now.missed.saturating_sub(before.missed);
        let taken = now.sum.samples.saturating_sub(before.sum.samples);
        (missed, missed + taken)
    });
    gained.collect()
}

fn events_gained(before: &[SampledHealth], now: &[SampledHealth]) -> Vec<EventGain> {
    let pairs = now.iter().zip(before);
    let gained = pairs.map(|(now, before)| EventGain {
        counted: now.counted.saturating_sub(before.counted),
        time: RunningTime {
            enabled: now.enabled.saturating_sub(before.enabled),
            running: now.running.saturating_sub(before.running),
        },
        limited: now.limited > before.limited,
    });
    gained.collect()
}

impl Sum for SampledUsage {
    fn nothing(&self) -> Self {
        Self::new()
    }

    fn add_all(&mut self, other: &Self) {
        for (kind, counts) in other {
            self.entry(*kind).or_default().add(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use probe_common::CgroupId;

    use super::*;
    use crate::snapshot::SampledKey;

    fn at(rows: &[(u64, u64, u64)]) -> Snapshot {
        let row = |&(cgroup, samples, made): &(u64, u64, u64)| {
            let key = SampledKey {
                cgroup: CgroupId(cgroup),
                tgid: 0,
                event: 0,
                source: 0,
            };
            let mut row = SampledCounts::default();
            row.counts.samples = samples;
            row.counts.operations = 10.0 * crate::window::float(samples);
            row.counts.made = made;
            (key, row)
        };
        let mut snapshot = crate::window::tests::snapshot([]);
        snapshot.sampled = Some(SampledReading {
            rows: rows.iter().map(row).collect::<HashMap<_, _>>(),
            ..SampledReading::default()
        });
        snapshot
    }

    #[test]
    fn owners_gain_what_was_added_and_new_rows_count_as_a_whole() {
        let before = at(&[(7, 100, 1), (8, 50, 1)]);
        let now = at(&[(7, 130, 1), (8, 60, 5), (9, 4, 6)]);
        let window = SampledWindow::between(&before, &now).unwrap();
        let samples = |usage: &SampledUsage| usage[&(0, 0)].counts.samples;
        let found: Vec<u64> = window.usage.values().map(samples).collect();
        assert_eq!(found, [30, 60, 4]);
        assert_eq!(samples(&window.total.delta), 94);
        let counts = window.total.delta[&(0, 0)].counts;
        assert_eq!(counts.operations, 940.0);
    }
}
