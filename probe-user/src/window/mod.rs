//! Window: what happened between two [`Snapshot`]s, estimated for each CPU and then summed over
//! CPUs.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, UsageRow};

pub use self::counted::Counted;
use self::counted::CpuRow;

use crate::{
    devices::DeviceDeltas,
    machine::resctrl::{self, Monitored},
    plan::Plan,
    snapshot::{Health, Names, Snapshot, UncoreReading},
};

/// Whom counts belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The cgroup, or what stands for one.
    pub cgroup: CgroupId,
    /// Process id; 0 unless counting by process.
    pub tgid: u32,
}

/// What an owner used: one entry per counter group, None for a group that it had no row of.
pub type Usage = Vec<Option<Counted>>;

/// Gains of one owner on one CPU: one row per counter group.
type CpuRows = Vec<Option<UsageRow>>;

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
    /// What these counted since the session began, by event and socket.
    pub uncore_totals: Vec<UncoreTotal>,
    /// The use of devices, where metrics are about them.
    pub devices: Option<DeviceDeltas>,
    /// What resctrl counted, where memory traffic is shared out.
    pub monitored: Vec<Monitored>,
    /// What was sampled, in a session that samples.
    pub samples: Option<SpeWindow>,
    /// Names as of the later snapshot.
    pub names: Arc<Names>,
    /// The programs' account of themselves as of the later snapshot, since the session began.
    pub health: Health,
}

impl Window {
    /// The first window of a session with this plan: the difference of two snapshots.
    ///
    /// A row of a rotated group holds as enabled time that of its own turns. Here each gets that of
    /// all groups which take turns on the same CPU: the time for which it could have been live.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot, plan: &Plan) -> Self {
        let mut owners: BTreeMap<Owner, BTreeMap<u32, CpuRows>> = BTreeMap::new();
        let freed = later.freed.iter().map(|(key, row)| (key, row));
        for (key, now) in later.rows.iter().chain(freed) {
            let delta = delta(earlier.rows.get(key), now);
            let owner = Owner {
                cgroup: key.cgroup,
                tgid: key.tgid,
            };
            let rows = owners.entry(owner).or_default().entry(key.cpu.into());
            let rows = rows.or_insert_with(|| vec![None; plan.groups.len()]);
            charge(rows, plan, key.cpu.into(), key.group.into(), &delta);
        }
        let mut usage: BTreeMap<Owner, Usage> = BTreeMap::new();
        let mut on_socket: BTreeMap<(u32, Owner), Usage> = BTreeMap::new();
        for (owner, cpus) in &owners {
            for group in 0..plan.groups.len() {
                let rows = cpu_rows(cpus, group, plan);
                for (row, counted) in rows.iter().zip(counted::estimate(&rows)) {
                    add_counted(usage.entry(*owner), plan, group, &counted);
                    if let Some(topology) = &later.topology {
                        // Where the machine does not tell, it is one socket.
                        let socket = topology.socket(row.cpu).unwrap_or(0);
                        add_counted(on_socket.entry((socket, *owner)), plan, group, &counted);
                    }
                }
            }
        }
        let mut total: Usage = vec![None; plan.groups.len()];
        for of_owner in usage.values() {
            total.add_all(of_owner);
        }
        let uncore = uncore(&earlier.uncore, &later.uncore);
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
            samples: SpeWindow::between(earlier, later),
            names: Arc::clone(&later.names),
            health: later.health.clone(),
        }
    }

    /// The window after this one, whose totals go on.
    #[must_use]
    pub fn next(&self, earlier: &Snapshot, later: &Snapshot, plan: &Plan) -> Self {
        let mut next = Self::between(earlier, later, plan);
        next.began = self.began;
        next.boot_time = self.boot_time;
        next.total.go_on(&self.total);
        next.uncore_totals = totals::uncore(&next.uncore, next.start, &self.uncore_totals);
        if let Some((next, before)) = next.samples.as_mut().zip(self.samples.as_ref()) {
            next.total.go_on(&before.total);
        }
        next
    }
}

/// Adds the gain of a row to those of its owner on that CPU.
fn charge(rows: &mut CpuRows, plan: &Plan, cpu: u32, group: usize, delta: &UsageRow) {
    let mut own = *delta;
    if (plan.fixed()..rows.len()).contains(&group) {
        for other in plan.turns(cpu) {
            rows[other].get_or_insert(UsageRow::ZERO).enabled += delta.enabled;
        }
        own.enabled = 0;
    }
    if let Some(row) = rows.get_mut(group) {
        add(row.get_or_insert(UsageRow::ZERO), &own);
    }
}

/// The rows of one owner and group.
fn cpu_rows(cpus: &BTreeMap<u32, CpuRows>, group: usize, plan: &Plan) -> Vec<CpuRow> {
    let rows = cpus.iter().filter_map(|(cpu, rows)| {
        Some(CpuRow {
            cpu: *cpu,
            kind: plan.kind_of_core(*cpu),
            row: rows[group]?,
        })
    });
    rows.collect()
}

/// Adds what was counted on one CPU to an owner's.
fn add_counted<K: Ord>(of: Entry<'_, K, Usage>, plan: &Plan, group: usize, counted: &Counted) {
    let usage = of.or_insert_with(|| vec![None; plan.groups.len()]);
    usage[group].get_or_insert_default().add(counted);
}

/// Of a row that was made anew in between all is gain. Rows only grow; nothing is made of one that
/// does not.
fn delta(earlier: Option<&UsageRow>, now: &UsageRow) -> UsageRow {
    let same = earlier.filter(|earlier| earlier.made == now.made);
    let before = same.unwrap_or(&UsageRow::ZERO);
    UsageRow {
        counts: std::array::from_fn(|at| now.counts[at].saturating_sub(before.counts[at])),
        enabled: now.enabled.saturating_sub(before.enabled),
        running: now.running.saturating_sub(before.running),
        made: 0,
    }
}

/// Sums wrap at 2^64 like the counters themselves.
fn add(sum: &mut UsageRow, row: &UsageRow) {
    for (sum, count) in sum.counts.iter_mut().zip(row.counts) {
        *sum = sum.wrapping_add(count);
    }
    sum.enabled = sum.enabled.wrapping_add(row.enabled);
    sum.running = sum.running.wrapping_add(row.running);
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

mod counted;
mod spe;
#[cfg(test)]
pub(crate) mod tests;
mod totals;

#[cfg(test)]
pub(crate) use self::spe::tests::sampled as sampled_window;
pub use self::{
    spe::{Served, SpeUsage, SpeWindow},
    totals::{Gained, Sum, UncoreTotal},
};
