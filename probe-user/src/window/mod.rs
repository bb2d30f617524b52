//! Window: what happened between two [`Snapshot`]s, estimated for each CPU and then summed over
//! CPUs.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use probe_common::CgroupId;

pub(crate) use self::counted::float;
use self::usage::Gains;
pub use self::{
    counted::{Counted, LiveTime},
    lines::Lines,
};
use crate::{
    devices::DeviceDeltas,
    machine::{
        memory::MemoryReading,
        resctrl::{self, Monitored},
    },
    plan::Plan,
    snapshot::{Health, Names, Snapshot, UncoreReading},
};

/// The owner of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The cgroup, or a value that stands for another owner.
    pub cgroup: CgroupId,
    /// Process id; 0 unless counting by process.
    pub tgid: u32,
}

/// The counts of an owner: one entry per counter group, None for a group without a row.
pub type Usage = Vec<Option<Counted>>;

/// What happened between two snapshots.
#[derive(Clone, Debug)]
pub struct Window {
    /// `CLOCK_MONOTONIC` at the session's first snapshot.
    pub began: Duration,
    /// Unix time at which that clock was 0, as it was at the session's first snapshot: that of
    /// later ones may have been set.
    pub boot_time: Duration,
    /// `CLOCK_MONOTONIC` at the earlier snapshot.
    pub start: Duration,
    /// Time between the snapshots.
    pub length: Duration,
    /// Gains by owner. Totals of rows are kept by the join, since a row outlives its owners, such
    /// as a pod its containers.
    pub usage: BTreeMap<Owner, Usage>,
    /// The whole machine: the sum of all owners.
    pub total: Gained<Usage>,
    /// The same by the socket of the CPU, where uncore events are counted.
    pub on_socket: BTreeMap<(u32, Owner), Usage>,
    /// Gains of the uncore counters; None where one could not be read, or went back.
    pub uncore: Vec<UncoreReading>,
    /// Totals of the uncore counters since the session began, by event and socket.
    pub uncore_totals: Vec<UncoreTotal>,
    /// The use of devices, where metrics are about them.
    pub devices: Option<DeviceDeltas>,
    /// What resctrl counted, where memory traffic is shared out.
    pub monitored: Vec<Monitored>,
    /// What cgroups or processes held at both ends of the window, in a session that looks.
    pub memory: Option<[MemoryReading; 2]>,
    /// What was sampled, in a session that samples.
    pub samples: Option<SpeWindow>,
    /// What sampled events say, in a session that samples any.
    pub sampled: Option<SampledWindow>,
    /// Names as of the later snapshot.
    pub names: Arc<Names>,
    /// The programs' account of themselves as of the later snapshot, since the session began.
    pub health: Health,
}

impl Window {
    /// The first window of a session with this plan: the difference of two snapshots.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot, plan: &Plan) -> Self {
        let Gains { usage, on_socket } = Gains::between(earlier, later, plan);
        let mut total: Usage = vec![None; plan.groups.len()];
        for of_owner in usage.values() {
            total.add_all(of_owner);
        }
        // What was divided stays in the machine.
        total.iter_mut().flatten().for_each(|it| it.estimated = 0);
        let uncore = uncore(&earlier.uncore, &later.uncore);
        let sampled = SampledWindow::between(earlier, later);
        let sampled = sampled.map(|sampled| match plan.clock() {
            Some(clock) => sampled.with_clock(&usage, clock),
            None => sampled,
        });
        Self {
            began: earlier.at,
            boot_time: earlier.boot_time,
            start: earlier.at,
            length: later.at.saturating_sub(earlier.at),
            usage,
            total: Gained::first(total, earlier.at),
            on_socket,
            uncore_totals: totals::uncore(&uncore, earlier.at, &[]),
            uncore,
            devices: earlier
                .devices
                .as_ref()
                .zip(later.devices.as_ref())
                .map(|(earlier, later)| DeviceDeltas::between(earlier, later)),
            monitored: resctrl::deltas(&earlier.monitored, &later.monitored),
            memory: (earlier.memory.clone().zip(later.memory.clone()))
                .map(|(earlier, later)| [earlier, later]),
            samples: SpeWindow::between(earlier, later)
                .or_else(|| accesses::of_events(sampled.as_ref()?, earlier, later)),
            sampled,
            names: Arc::clone(&later.names),
            health: later.health.clone(),
        }
    }

    /// The window after this one, whose totals go on.
    #[must_use]
    pub fn next(&self, earlier: &Snapshot, later: &Snapshot, plan: &Plan) -> Self {
        let mut next = Self::between(earlier, later, plan);
        next.go_on(&self.totals());
        next
    }

    /// Its totals, apart from those of its rows.
    #[must_use]
    pub fn totals(&self) -> Totals<'_> {
        let samples = self.samples.as_ref();
        Totals {
            began: self.began,
            boot_time: self.boot_time,
            total: Cow::Borrowed(&self.total),
            uncore: Cow::Borrowed(&self.uncore_totals),
            samples: samples.map(|samples| Cow::Borrowed(&samples.total)),
            sampled: self.sampled.as_ref().map(|it| Cow::Borrowed(&it.total)),
        }
    }

    /// Continues the totals of the window before this first one.
    pub(crate) fn go_on(&mut self, before: &Totals<'_>) {
        self.began = before.began;
        self.boot_time = before.boot_time;
        self.total.go_on(&before.total);
        self.uncore_totals = totals::uncore(&self.uncore, self.start, &before.uncore);
        if let Some((samples, before)) = self.samples.as_mut().zip(before.samples.as_ref()) {
            samples.total.go_on(before);
        }
        if let Some((sampled, before)) = self.sampled.as_mut().zip(before.sampled.as_ref()) {
            sampled.total.go_on(before);
        }
    }
}

/// What tells one uncore counter from another.
fn key(reading: &UncoreReading) -> (usize, u32, u16) {
    (reading.at, reading.socket, reading.instance)
}

fn uncore(earlier: &[UncoreReading], later: &[UncoreReading]) -> Vec<UncoreReading> {
    let before: HashMap<_, _> = earlier
        .iter()
        .map(|reading| (key(reading), reading))
        .collect();
    later
        .iter()
        .map(|now| {
            let before = before.get(&key(now));
            let count = now.count.zip(before.and_then(|before| before.count));
            let skew = before.map_or(0, |before| before.skew);
            UncoreReading {
                // Of both ends.
                skew: now.skew.saturating_add(skew),
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

mod accesses;
mod counted;
mod lines;
mod sampled;
mod spe;
#[cfg(test)]
pub(crate) mod tests;
mod totals;
mod usage;

#[cfg(test)]
pub(crate) use self::{counted::tests::Random, spe::tests::sampled as sampled_window};
pub use self::{
    sampled::{EventGain, SampledUsage, SampledWindow},
    spe::{Sampler, Served, SpeUsage, SpeWindow},
    totals::{Gained, Sum, Totals, UncoreTotal},
};
