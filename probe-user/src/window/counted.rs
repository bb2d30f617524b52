//! The counts of a group for an owner, estimated for all of the time for which the owner ran.
//!
//! The group is on the PMU for only a part of that time, on some CPUs longer than on others. Counts
//! of the rest are estimated for each CPU before anything is added up, by the owner's own rates and
//! never by those of others (docs/accuracy.md has the error that is stated for that):
//!
//! 1. by its rate on that CPU, where the group was live for a tenth of its time there, and for 1
//!    ms;
//! 2. else by its rate on all CPUs of that kind of core, where the group was live for 1 ms on them
//!    together;
//! 3. what is left then, if it is at most half of the owner's time, by all other counts of the
//!    owner.
//!
//! The remaining time stays unknown, and is added up like the counts.

use std::collections::BTreeSet;

use probe_common::{GROUP_COUNTERS, UsageRow};
use serde::{Deserialize, Serialize};

/// In less time than this a rate is not reliable: the kernel's own turns last 1 to 4 ms.
const ENOUGH_NANOS: u64 = 1_000_000;

/// A row must be live for this part (one tenth) of its time to be scaled by its own rate.
const ENOUGH_PART: u64 = 10;

/// Counts are within this part of the truth: 1%.
const PROMISED: f64 = 0.01;

type Vector = [f64; GROUP_COUNTERS];
type Matrix = [Vector; GROUP_COUNTERS];

/// What one group of counters says of one owner or several, on one CPU or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// As counted, in the group's order.
    pub counts: [u64; GROUP_COUNTERS],
    /// Nanoseconds for which the owners ran where the group could have been live.
    pub enabled: u64,
    /// Nanoseconds of those for which it was live.
    pub running: u64,
    /// Nanoseconds of slices whose counts were divided by time, between these owners and others.
    pub(super) estimated: u64,
    /// Nanoseconds of which nothing is known.
    unknown: u64,
    /// What was not counted, where anything is estimated.
    unseen: Option<Box<Unseen>>,
}

/// The counts of the time for which the group was not live, estimated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Unseen {
    counts: Vector,
    covariance: Matrix,
}

/// For how long a counter could have counted, and for how long it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveTime {
    /// Nanoseconds for which the owners ran with the event enabled, on all CPUs or PMUs together.
    pub enabled: u64,
    /// Nanoseconds of those for which it was on the PMU.
    pub running: u64,
}

/// A row of an owner and group: what was counted on one CPU.
#[derive(Debug)]
pub(super) struct CpuRow {
    pub(super) cpu: u32,
    /// CPUs of one kind of core count alike.
    pub(super) kind: Option<usize>,
    pub(super) row: UsageRow,
}

/// The rows of one owner and group, each for all of its time: into `all`, which is reused.
pub(super) fn estimate(rows: &[CpuRow], all: &mut Vec<Counted>) {
    all.clear();
    all.extend(rows.iter().map(|it| Counted::seen(&it.row)));
    let unknown = |all: &[Counted]| -> u64 { all.iter().map(|it| it.unknown).sum() };
    if unknown(all) == 0 {
        return;
    }
    for (counted, it) in all.iter_mut().zip(rows) {
        if counted.stands_for_itself() {
            counted.fill(&Rate::of(&[&it.row]), counted.unknown);
        }
    }
    let poor = all.iter().zip(rows).filter(|(it, _)| it.unknown > 0);
    let kinds: BTreeSet<Option<usize>> = poor.map(|(_, it)| it.kind).collect();
    for kind in kinds {
        let of_kind = rows.iter().filter(|it| it.kind == kind);
        let of_kind: Vec<&UsageRow> = of_kind.map(|it| &it.row).collect();
        if of_kind.iter().map(|row| row.running).sum::<u64>() < ENOUGH_NANOS {
            continue;
        }
        let rate = Rate::of(&of_kind);
        let here = |(_, it): &(&mut Counted, &CpuRow)| it.kind == kind;
        let mut here: Vec<_> = all.iter_mut().zip(rows).filter(here).collect();
        let together = here.iter().map(|(it, _)| it.unknown).sum();
        for (counted, _) in &mut here {
            counted.fill(&rate, together);
        }
    }
    let left = unknown(all);
    let time: u64 = all.iter().map(|it| it.enabled).sum();
    if left > 0 && left <= time - left {
        let rate = Rate::of_known(all, time - left);
        for counted in all {
            counted.fill(&rate, left);
        }
    }
}

impl LiveTime {
    /// Adds those of another CPU or owner.
    pub(crate) fn add(&mut self, other: Self) {
        self.enabled = self.enabled.saturating_add(other.enabled);
        self.running = self.running.saturating_add(other.running);
    }

    /// The part of the time for which it counted; 1 where there was none.
    #[must_use]
    pub fn live(self) -> f64 {
        match self.enabled {
            0 => 1.0,
            enabled => float(self.running) / float(enabled),
        }
    }
}

impl Counted {
    /// The counts of a row; the time in which the group was not live is unknown yet.
    fn seen(row: &UsageRow) -> Self {
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

    /// Of an owner with this row only.
    #[cfg(test)]
    pub(crate) fn of(row: &UsageRow) -> Self {
        let (cpu, kind, row) = (0, None, *row);
        let mut all = Vec::new();
        estimate(&[CpuRow { cpu, kind, row }], &mut all);
        all.remove(0)
    }

    fn stands_for_itself(&self) -> bool {
        self.running >= ENOUGH_NANOS && self.running >= self.enabled / ENOUGH_PART
    }

    /// Estimates the counts of the unknown time. `together` is all the time that is estimated by
    /// the same rate, and so shares its error.
    fn fill(&mut self, rate: &Rate, together: u64) {
        if self.unknown == 0 {
            return;
        }
        let (own, together) = (float(self.unknown), float(together));
        let between = own * (own + together * rate.concentration);
        let few = own * together * rate.concentration;
        let unseen = self.unseen.get_or_insert_default();
        for (a, per_ns) in rate.per_ns.iter().enumerate() {
            unseen.counts[a] += per_ns * own;
            for (b, other) in rate.per_ns.iter().enumerate() {
                unseen.covariance[a][b] += rate.spread[a][b] * between + per_ns * other * few;
            }
        }
        self.unknown = 0;
    }

    /// Adds those of another CPU or owner. A sum beyond 2^64 (garbage of a counter) stays there:
    /// one that began anew would look right.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(count);
        }
        self.enabled = self.enabled.saturating_add(other.enabled);
        self.running = self.running.saturating_add(other.running);
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.unknown = self.unknown.saturating_add(other.unknown);
        if let Some(more) = &other.unseen {
            let sums = self.unseen.get_or_insert_default();
            for (sum, more) in sums.counts.iter_mut().zip(more.counts) {
                *sum += more;
            }
            let all = sums.covariance.iter_mut().flatten();
            for (sum, more) in all.zip(more.covariance.iter().flatten()) {
                *sum += more;
            }
        }
    }

    /// The count of a counter with the estimate for the rest of the time. None where nobody ran,
    /// and where more than half of the time is unknown.
    #[must_use]
    pub fn estimate(&self, at: usize) -> Option<f64> {
        let known = self.enabled.saturating_sub(self.unknown);
        (self.enabled > 0 && self.unknown <= known).then(|| self.known(at))
    }

    /// What was counted and what is estimated, of the time of which anything is known.
    fn known(&self, at: usize) -> f64 {
        let unseen = self.unseen.as_ref();
        float(self.counts[at]) + unseen.map_or(0.0, |unseen| unseen.counts[at])
    }

    /// The part of the time for which the group was live.
    #[must_use]
    pub fn live(&self) -> f64 {
        float(self.running) / float(self.enabled.max(1))
    }

    /// The part of the time whose counts were divided by time, where that is more than the error that
    /// is promised.
    pub(crate) fn divided(&self) -> Option<f64> {
        let part = float(self.estimated) / float(self.enabled.max(1));
        (part > PROMISED).then_some(part)
    }

    /// Whether all of its time was counted, so that nothing is estimated.
    pub(crate) fn is_exact(&self) -> bool {
        self.unseen.is_none() && self.unknown == 0
    }

    /// The covariance of the estimates of two counters of the group. To that of the estimated
    /// counts it adds those of the unknown time, at the rate of the rest.
    #[must_use]
    pub fn covariance(&self, a: usize, b: usize) -> f64 {
        let unseen = self.unseen.as_ref();
        let estimated = unseen.map_or(0.0, |unseen| unseen.covariance[a][b]);
        let (Some(one), Some(other)) = (self.estimate(a), self.estimate(b)) else {
            return estimated;
        };
        let known = self.enabled.saturating_sub(self.unknown);
        let unknown = float(self.unknown) / float(known.max(1));
        estimated + one * other * unknown * unknown
    }
}

/// The counts of an owner per nanosecond, from some of its rows, and how much they may differ at
/// other times.
struct Rate {
    per_ns: Vector,
    /// The covariance between the rows' own rates.
    spread: Matrix,
    /// The sum of the squares of the rows' parts of the time: 1 for one row, 1/n for n equal ones.
    /// With few rows the rate may also be off by all of itself, in this proportion.
    concentration: f64,
}

impl Rate {
    fn of(rows: &[&UsageRow]) -> Self {
        let live: u64 = rows.iter().map(|row| row.running).sum();
        let live = float(live.max(1));
        let mut per_ns = Vector::default();
        for row in rows {
            for (sum, count) in per_ns.iter_mut().zip(row.counts) {
                *sum += float(count) / live;
            }
        }
        let mut spread = Matrix::default();
        let mut concentration = 0.0;
        for row in rows.iter().filter(|row| row.running > 0) {
            let part = float(row.running) / live;
            concentration += part * part;
            let off: Vector =
                std::array::from_fn(|at| float(row.counts[at]) / float(row.running) - per_ns[at]);
            for (sums, a) in spread.iter_mut().zip(off) {
                for (sum, b) in sums.iter_mut().zip(off) {
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

    /// The rate of all counts of `time`, estimated or counted: it gives the order of magnitude of
    /// the rest.
    fn of_known(all: &[Counted], time: u64) -> Self {
        let mut per_ns = Vector::default();
        for counted in all {
            for (at, sum) in per_ns.iter_mut().enumerate() {
                *sum += counted.known(at) / float(time);
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
