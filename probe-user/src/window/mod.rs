//! Window: the deltas between two [`Snapshot`]s, estimated for each CPU and then summed over CPUs,
//! with the totals since the session began. Entry: [`Window::between`] and [`Window::next`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, UsageKey, spe::LineKey};

pub(crate) use self::group_counts::float;
use self::usage::Gains;
pub use self::{
    cache_lines::CacheLines,
    group_counts::{GroupCounts, RunningTime},
};
use crate::{
    plan::Plan,
    snapshot::{Health, Hook, Names, SampledAddress, SampledKey, Snapshot, UncoreReading},
};

/// The owner of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The cgroup, or one of the special values of [`CgroupId`].
    pub cgroup: CgroupId,
    /// Process id; 0 unless counting by process.
    pub tgid: u32,
}

/// The owner of all counts of a cgroup.
impl From<CgroupId> for Owner {
    fn from(cgroup: CgroupId) -> Self {
        Self { cgroup, tgid: 0 }
    }
}

macro_rules! from_keys {
    ($($key:ty),*) => {$(
        /// The owner in a key.
        impl From<&$key> for Owner {
            fn from(key: &$key) -> Self {
                Self {
                    cgroup: key.cgroup,
                    tgid: key.tgid,
                }
            }
        }
    )*};
}

from_keys!(UsageKey, LineKey, SampledKey, SampledAddress);

/// The counts of an owner: one entry per counter group, None for a group without a row.
pub type Usage = Vec<Option<GroupCounts>>;

/// The deltas between two snapshots, and the totals.
#[derive(Clone, Debug)]
pub struct Window {
    /// `CLOCK_MONOTONIC` at the first snapshot of the session, or of the earlier session whose
    /// totals it continues.
    pub began: Duration,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, by the wall clock at `began`. The wall clock may
    /// have been set since.
    pub boot_time: Duration,
    /// `boot_time` by the wall clock at the later snapshot.
    pub boot_time_at_end: Duration,
    /// `CLOCK_MONOTONIC` at the earlier snapshot.
    pub start: Duration,
    /// Time between the snapshots.
    pub length: Duration,
    /// Deltas by owner. The join keeps the totals of rows, since a row outlives its owners, as a
    /// pod outlives its containers.
    pub usage: BTreeMap<Owner, Usage>,
    /// The whole machine: the sum of all owners.
    pub total: Gained<Usage>,
    /// Deltas by the socket of the CPU and owner, if uncore events are counted.
    pub on_socket: BTreeMap<(u32, Owner), Usage>,
    /// Deltas of the uncore counters; their count is None if it could not be read or went back.
    pub uncore: Vec<UncoreReading>,
    /// Totals of the uncore counters since the session began, by event and socket.
    pub uncore_totals: Vec<UncoreTotal>,
    /// Deltas of the sources.
    pub sources: SourceDeltas,
    /// Samples; None if the session does not sample.
    pub samples: Option<SampleWindow>,
    /// Whether the hook cannot tell idle from the root cgroup: the hook at the earlier snapshot. A
    /// hook that replaced it within the window can, but only from then on.
    pub merged_idle: bool,
    /// Names as of the later snapshot.
    pub names: Arc<Names>,
    /// The programs' counts of their own work since the session began, as of the later snapshot.
    pub health: Health,
}

impl Window {
    /// The first window of a session with this plan: the difference of two snapshots.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot, plan: &Plan) -> Self {
        let Gains { usage, on_socket } = Gains::between(earlier, later, plan);
        let mut total: Usage = vec![None; plan.groups.len()];
        for owner_usage in usage.values() {
            total.add_all(owner_usage);
        }
        // A slice that was split between two owners by estimate is exact in the machine's total.
        total.iter_mut().flatten().for_each(|it| it.estimated = 0);
        let uncore = uncore_deltas(&earlier.uncore, &later.uncore);
        let mut samples = SampleWindow::between(earlier, later);
        if let Some((samples, clock)) = samples.as_mut().zip(plan.clock()) {
            samples.add_clock(&usage, clock);
        }
        Self {
            began: earlier.at,
            boot_time: earlier.boot_time,
            boot_time_at_end: later.boot_time,
            start: earlier.at,
            length: later.at.saturating_sub(earlier.at),
            usage,
            total: Gained::first(total, earlier.at),
            on_socket,
            uncore_totals: totals::uncore(&uncore, earlier.at, &[]),
            uncore,
            sources: SourceDeltas::between(&earlier.sources, &later.sources),
            samples,
            merged_idle: earlier.health.hook == Hook::CgroupSwitches,
            names: Arc::clone(&later.names),
            health: later.health.clone(),
        }
    }

    /// The window after this one, with the totals of this one continued.
    #[must_use]
    pub fn next(&self, earlier: &Snapshot, later: &Snapshot, plan: &Plan) -> Self {
        let mut next = Self::between(earlier, later, plan);
        next.apply_totals(&self.totals());
        next
    }

    /// The samples; None if memory accesses are not sampled.
    pub(crate) fn access_samples(&self) -> Option<&SampleWindow> {
        let accesses = |samples: &&SampleWindow| {
            samples.spe.is_some() || samples.access_events().next().is_some()
        };
        self.samples.as_ref().filter(accesses)
    }

    /// The samples; None if no event is sampled.
    pub(crate) fn event_samples(&self) -> Option<&SampleWindow> {
        let samples = self.samples.as_ref();
        samples.filter(|samples| !samples.events.is_empty())
    }

    /// The totals of the window, without the totals of its rows.
    #[must_use]
    pub fn totals(&self) -> Totals<'_> {
        Totals {
            began: self.began,
            boot_time: self.boot_time,
            total: Cow::Borrowed(&self.total),
            uncore: Cow::Borrowed(&self.uncore_totals),
            samples: self.samples.as_ref().map(SampleWindow::totals),
        }
    }

    /// Continues the totals of the previous window.
    pub(crate) fn apply_totals(&mut self, before: &Totals<'_>) {
        self.began = before.began;
        self.boot_time = before.boot_time;
        self.total.continue_from(&before.total);
        self.uncore_totals = totals::uncore(&self.uncore, self.start, &before.uncore);
        if let (Some(samples), Some(before)) = (&mut self.samples, &before.samples) {
            samples.apply_totals(before);
        }
    }
}

/// The identity of an uncore counter.
fn key(reading: &UncoreReading) -> (usize, u32, u16) {
    (reading.at, reading.socket, reading.instance)
}

fn uncore_deltas(earlier: &[UncoreReading], later: &[UncoreReading]) -> Vec<UncoreReading> {
    let before: HashMap<_, _> = earlier
        .iter()
        .map(|reading| (key(reading), reading))
        .collect();
    later
        .iter()
        .map(|now| {
            let before = before.get(&key(now));
            let count = now.count.zip(before.and_then(|before| before.count));
            let skew_before = before.map_or(0, |before| before.skew);
            UncoreReading {
                // The skews of both readings add up.
                skew: now.skew.saturating_add(skew_before),
                count: count.and_then(|(now, before)| now.checked_sub(before)),
                enabled: now
                    .enabled
                    .saturating_sub(before.map_or(0, |before| before.enabled)),
                running: now
                    .running
                    .saturating_sub(before.map_or(0, |before| before.running)),
                ..*now
            }
        })
        .collect()
}

mod cache_lines;
mod group_counts;
mod samples;
mod sources;
#[cfg(test)]
pub(crate) mod tests;
mod totals;
mod usage;

pub(crate) use self::samples::SPE;
#[cfg(test)]
pub(crate) use self::{
    group_counts::tests::Random,
    samples::{sampled_window, spe_reading},
};
pub use self::{
    samples::{
        EventGain, EventWindow, MemLevel, SampleKind, SampleSource, SampleUsage, SampleWindow,
    },
    sources::SourceDeltas,
    totals::{Gained, Sum, Totals, UncoreTotal},
};
