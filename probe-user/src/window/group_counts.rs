//! The counts of a group for an owner ([`GroupCounts`]), estimated for all of the owner's running
//! time.
//!
//! The group is on the PMU for only a part of that time, on some CPUs longer than on others. The
//! counts of the remaining time are estimated for each CPU before anything is added up, by the
//! owner's own rates and never by other owners' rates (docs/how-it-works/accuracy.md has the stated
//! error):
//!
//! 1. by its rate on that CPU, if the group was running for a tenth of its time on it, and for 1
//!    ms;
//! 2. else by its rate on all CPUs of that kind of core, if the group was running for 1 ms on them
//!    together;
//! 3. else by its rate on all CPUs, if the time that is still to be estimated is at most half of
//!    the owner's time.
//!
//! Time without an estimate stays unknown, and is added up like the counts.

use std::collections::BTreeSet;

use probe_common::{GROUP_COUNTERS, UsageRow};
use serde::{Deserialize, Serialize};

/// Minimum running time for a reliable rate: the kernel's own multiplexing interval is 1 to 4 ms.
const MIN_RUNNING_NANOS: u64 = 1_000_000;

/// A row must be running for at least 1/`MIN_RUNNING_PART` of its time to be scaled by its own
/// rate.
const MIN_RUNNING_PART: u64 = 10;

/// The promised relative error of counts: 1%.
const PROMISED_ERROR: f64 = 0.01;

type Vector = [f64; GROUP_COUNTERS];
type Matrix = [Vector; GROUP_COUNTERS];

/// The counts of a group of counters, of one owner or several, on one CPU or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupCounts {
    /// Raw counts, in the group's order.
    pub counts: [u64; GROUP_COUNTERS],
    /// Nanoseconds for which the owners ran with the group enabled.
    pub enabled: u64,
    /// Nanoseconds of `enabled` for which the group was on the PMU.
    pub running: u64,
    /// Nanoseconds of slices that were split by time between these owners and others.
    pub(super) estimated: u64,
    /// Nanoseconds for which the counts are unknown.
    unknown: u64,
    /// Estimated counts; None if nothing was estimated.
    unseen: Option<Box<Unseen>>,
}

/// The estimated counts of the time for which the group was not running.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Unseen {
    counts: Vector,
    covariance: Matrix,
}

/// Enabled and running time of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningTime {
    /// Nanoseconds for which the owners ran with the event enabled, on all CPUs or PMUs together.
    pub enabled: u64,
    /// Nanoseconds of `enabled` for which it was on the PMU.
    pub running: u64,
}

/// The counts of an owner and group on one CPU.
#[derive(Debug)]
pub(super) struct CpuRow {
    pub(super) cpu: u32,
    /// Kind of core: CPUs of the same kind have comparable counts.
    pub(super) kind: Option<usize>,
    pub(super) row: UsageRow,
}

/// Estimates the rows of one owner and group, each for all of its time. `all` is the result; its
/// memory is reused.
pub(super) fn estimate(rows: &[CpuRow], all: &mut Vec<GroupCounts>) {
    all.clear();
    all.extend(rows.iter().map(|it| GroupCounts::from_row(&it.row)));
    let unknown_time = |all: &[GroupCounts]| -> u64 { all.iter().map(|it| it.unknown).sum() };
    if unknown_time(all) == 0 {
        return;
    }
    for (counted, it) in all.iter_mut().zip(rows) {
        if counted.has_own_rate() {
            counted.fill(&OwnerRate::from_rows(&[&it.row]), counted.unknown);
        }
    }
    let incomplete = all.iter().zip(rows).filter(|(it, _)| it.unknown > 0);
    let kinds: BTreeSet<Option<usize>> = incomplete.map(|(_, it)| it.kind).collect();
    for kind in kinds {
        let kind_rows = rows.iter().filter(|it| it.kind == kind);
        let kind_rows: Vec<&UsageRow> = kind_rows.map(|it| &it.row).collect();
        if kind_rows.iter().map(|row| row.running).sum::<u64>() < MIN_RUNNING_NANOS {
            continue;
        }
        let rate = OwnerRate::from_rows(&kind_rows);
        let is_of_kind = |(_, it): &(&mut GroupCounts, &CpuRow)| it.kind == kind;
        let mut kind_counts: Vec<_> = all.iter_mut().zip(rows).filter(is_of_kind).collect();
        let kind_unknown = kind_counts.iter().map(|(it, _)| it.unknown).sum();
        for (counted, _) in &mut kind_counts {
            counted.fill(&rate, kind_unknown);
        }
    }
    let remaining = unknown_time(all);
    let time: u64 = all.iter().map(|it| it.enabled).sum();
    if remaining > 0 && remaining <= time - remaining {
        let rate = OwnerRate::from_known(all, time - remaining);
        for counted in all {
            counted.fill(&rate, remaining);
        }
    }
}

impl RunningTime {
    /// Adds the times of another CPU or owner.
    pub(crate) fn add(&mut self, other: Self) {
        self.enabled = self.enabled.saturating_add(other.enabled);
        self.running = self.running.saturating_add(other.running);
    }

    /// The ratio of running to enabled time; 1 if it was never enabled.
    #[must_use]
    pub fn running_ratio(self) -> f64 {
        match self.enabled {
            0 => 1.0,
            enabled => float(self.running) / float(enabled),
        }
    }
}

impl GroupCounts {
    /// The counts of a row. Counts of the time in which the group was not running are not estimated
    /// yet.
    fn from_row(row: &UsageRow) -> Self {
        let enabled = row.enabled.max(row.running);
        Self {
            counts: row.counts,
            enabled,
            running: row.running,
            estimated: row.estimated,
            unknown: enabled - row.running,
            ..Self::default()
        }
    }

    /// The estimate of an owner with this single row.
    #[cfg(test)]
    pub(crate) fn of(row: &UsageRow) -> Self {
        let (cpu, kind, row) = (0, None, *row);
        let mut all = Vec::new();
        estimate(&[CpuRow { cpu, kind, row }], &mut all);
        all.remove(0)
    }

    fn has_own_rate(&self) -> bool {
        self.running >= MIN_RUNNING_NANOS && self.running >= self.enabled / MIN_RUNNING_PART
    }

    /// Estimates the counts of the unknown time. `all_unknown` is the sum of all times estimated by
    /// the same rate, which share its error.
    fn fill(&mut self, rate: &OwnerRate, all_unknown: u64) {
        if self.unknown == 0 {
            return;
        }
        let (own, all_unknown) = (float(self.unknown), float(all_unknown));
        let spread_factor = own * (own + all_unknown * rate.concentration);
        let few_rows_factor = own * all_unknown * rate.concentration;
        let unseen = self.unseen.get_or_insert_default();
        for (a, per_ns) in rate.per_ns.iter().enumerate() {
            unseen.counts[a] += per_ns * own;
            for (b, other) in rate.per_ns.iter().enumerate() {
                unseen.covariance[a][b] +=
                    rate.spread[a][b] * spread_factor + per_ns * other * few_rows_factor;
            }
        }
        self.unknown = 0;
    }

    /// Adds the counts of another CPU or owner. Sums saturate: a wrapped sum of a counter's garbage
    /// would look plausible.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(count);
        }
        self.enabled = self.enabled.saturating_add(other.enabled);
        self.running = self.running.saturating_add(other.running);
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.unknown = self.unknown.saturating_add(other.unknown);
        if let Some(added) = &other.unseen {
            let sums = self.unseen.get_or_insert_default();
            for (sum, added) in sums.counts.iter_mut().zip(added.counts) {
                *sum += added;
            }
            let covariances = sums.covariance.iter_mut().flatten();
            for (sum, added) in covariances.zip(added.covariance.iter().flatten()) {
                *sum += added;
            }
        }
    }

    /// The count of the counter at this index, including the estimated part. None if no owner ran,
    /// or if more than half of the time is unknown.
    #[must_use]
    pub fn estimate(&self, at: usize) -> Option<f64> {
        let known_time = self.enabled.saturating_sub(self.unknown);
        (self.enabled > 0 && self.unknown <= known_time).then(|| self.known_count(at))
    }

    /// The raw and the estimated count, without the unknown time.
    fn known_count(&self, at: usize) -> f64 {
        let unseen = self.unseen.as_ref();
        float(self.counts[at]) + unseen.map_or(0.0, |unseen| unseen.counts[at])
    }

    /// The ratio of running to enabled time of the group.
    #[must_use]
    pub fn running_ratio(&self) -> f64 {
        float(self.running) / float(self.enabled.max(1))
    }

    /// The part of the time in slices that were split between owners; None if it is within the
    /// promised error.
    pub(crate) fn divided(&self) -> Option<f64> {
        let part = float(self.estimated) / float(self.enabled.max(1));
        (part > PROMISED_ERROR).then_some(part)
    }

    /// Whether the group was running all the time, so that nothing is estimated.
    pub(crate) fn is_exact(&self) -> bool {
        self.unseen.is_none() && self.unknown == 0
    }

    /// The covariance of the estimates of two counters of the group: the covariance of the
    /// estimated counts, plus the covariance of the unknown time at the rate of the known time.
    #[must_use]
    pub fn covariance(&self, a: usize, b: usize) -> f64 {
        let unseen = self.unseen.as_ref();
        let estimated = unseen.map_or(0.0, |unseen| unseen.covariance[a][b]);
        let (Some(count_a), Some(count_b)) = (self.estimate(a), self.estimate(b)) else {
            return estimated;
        };
        let known_time = self.enabled.saturating_sub(self.unknown);
        let unknown_ratio = float(self.unknown) / float(known_time.max(1));
        estimated + count_a * count_b * unknown_ratio * unknown_ratio
    }
}

/// The counts of an owner per nanosecond, from some of its rows, and their variation.
struct OwnerRate {
    per_ns: Vector,
    /// The covariance between the rows' own rates.
    spread: Matrix,
    /// The sum of the squares of the rows' parts of the time: 1 for one row, 1/n for n equal rows.
    /// It is the relative variance that the rate has because it comes from few rows.
    concentration: f64,
}

impl OwnerRate {
    fn from_rows(rows: &[&UsageRow]) -> Self {
        let nanos: u64 = rows.iter().map(|row| row.running).sum();
        let running = float(nanos.max(1));
        let mut per_ns = Vector::default();
        for row in rows {
            for (sum, count) in per_ns.iter_mut().zip(row.counts) {
                *sum += float(count) / running;
            }
        }
        let mut spread = Matrix::default();
        let mut concentration = 0.0;
        for row in rows.iter().filter(|row| row.running > 0) {
            let part = float(row.running) / running;
            concentration += part * part;
            let deviation: Vector =
                std::array::from_fn(|at| float(row.counts[at]) / float(row.running) - per_ns[at]);
            for (sums, a) in spread.iter_mut().zip(deviation) {
                for (sum, b) in sums.iter_mut().zip(deviation) {
                    *sum += part * (a * b);
                }
            }
        }
        Self {
            per_ns,
            spread,
            concentration,
        }
    }

    /// The rate of all raw and estimated counts, which took `time`. It gives only the order of
    /// magnitude of the unknown counts.
    fn from_known(all: &[GroupCounts], time: u64) -> Self {
        let mut per_ns = Vector::default();
        for counted in all {
            for (at, sum) in per_ns.iter_mut().enumerate() {
                *sum += counted.known_count(at) / float(time);
            }
        }
        Self {
            per_ns,
            spread: Matrix::default(),
            concentration: 1.0,
        }
    }
}

/// A count or time as a floating-point number.
#[expect(
    clippy::cast_precision_loss,
    reason = "an estimate of more than 2^53 counts or ns has no better precision"
)]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(super) mod tests;
