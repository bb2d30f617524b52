//! Window: what happened between two [`Snapshot`]s, summed over CPUs.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use probe_common::{CgroupId, UsageRow};

use crate::pull::{Health, Names, Snapshot, UncoreReading};

/// Whom counts belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The cgroup, or what stands for one.
    pub cgroup: CgroupId,
    /// Process id; 0 unless counting by process.
    pub tgid: u32,
}

/// Counts of one owner: one row per counter group, None for a group that it had no row of.
pub type Usage = Vec<Option<UsageRow>>;

/// What happened between two snapshots.
#[derive(Clone, Debug)]
pub struct Window {
    /// `CLOCK_MONOTONIC` at the earlier snapshot.
    pub start: Duration,
    /// Time between the snapshots.
    pub length: Duration,
    /// Gains by owner.
    pub usage: BTreeMap<Owner, Usage>,
    /// Gains of the uncore counters; None where one could not be read, or went back.
    pub uncore: Vec<UncoreReading>,
    /// Names as of the later snapshot.
    pub names: Arc<Names>,
    /// The programs' account of themselves as of the later snapshot, since the session began.
    pub health: Health,
}

impl Window {
    /// The difference of two snapshots of one session.
    #[must_use]
    pub fn between(earlier: &Snapshot, later: &Snapshot, groups: usize) -> Self {
        let mut usage: BTreeMap<Owner, Usage> = BTreeMap::new();
        for (key, now) in &later.rows {
            let gain = gain(earlier.rows.get(key), now);
            let owner = Owner {
                cgroup: key.cgroup,
                tgid: key.tgid,
            };
            let rows = usage.entry(owner).or_insert_with(|| vec![None; groups]);
            if let Some(row) = rows.get_mut(usize::from(key.group)) {
                add(row.get_or_insert(UsageRow::ZERO), &gain);
            }
        }
        Self {
            start: earlier.at,
            length: later.at.saturating_sub(earlier.at),
            usage,
            uncore: uncore(&earlier.uncore, &later.uncore),
            names: Arc::clone(&later.names),
            health: later.health.clone(),
        }
    }
}

/// Rows only grow. One that is smaller was freed and made anew in between: all of it is gain.
fn gain(earlier: Option<&UsageRow>, now: &UsageRow) -> UsageRow {
    let Some(before) = earlier else { return *now };
    let subtract = || {
        let mut gain = UsageRow::ZERO;
        for ((gain, now), before) in gain.counts.iter_mut().zip(now.counts).zip(before.counts) {
            *gain = now.checked_sub(before)?;
        }
        gain.enabled = now.enabled.checked_sub(before.enabled)?;
        gain.running = now.running.checked_sub(before.running)?;
        Some(gain)
    };
    subtract().unwrap_or(*now)
}

/// Sums wrap at 2^64 like the counters themselves.
pub(crate) fn add(sum: &mut UsageRow, row: &UsageRow) {
    for (sum, count) in sum.counts.iter_mut().zip(row.counts) {
        *sum = sum.wrapping_add(count);
    }
    sum.enabled = sum.enabled.wrapping_add(row.enabled);
    sum.running = sum.running.wrapping_add(row.running);
}

fn uncore(earlier: &[UncoreReading], later: &[UncoreReading]) -> Vec<UncoreReading> {
    let before: HashMap<_, _> = earlier
        .iter()
        .map(|reading| ((reading.at, reading.socket), reading))
        .collect();
    later
        .iter()
        .map(|now| {
            let before = before.get(&(now.at, now.socket));
            let count = now.count.zip(before.and_then(|before| before.count));
            UncoreReading {
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

mod spe;
#[cfg(test)]
mod tests;

pub(crate) use self::spe::add as add_samples;
pub use self::spe::{Served, SpeUsage, SpeWindow};
