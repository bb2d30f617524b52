//! What a group of counters says of an owner, for all of the time for which the owner ran.
//!
//! The group is on the PMU for a part of that time only, on some CPUs longer than on others. What
//! the owner did in the rest is estimated for each CPU before anything is added up, by the owner's
//! own rates and never by those of others (docs/accuracy.md says how large an error is stated for
//! that):
//!
//! 1. by its rate on that CPU, where the group was live for a tenth of its time there, and for 1
//!    ms;
//! 2. else by its rate on all CPUs of that kind of core, where the group was live for 1 ms on them
//!    together;
//! 3. what is left then, if it is at most half of the owner's time, by all that is known of the
//!    owner.
//!
//! Time of which nothing is known stays unknown, and is added up like the counts.

use std::collections::BTreeSet;

use probe_common::{GROUP_COUNTERS, UsageRow};

/// Shorter than this, what was seen says little of the rest: the kernel's own turns last 1 to 4 ms.
const ENOUGH_NANOS: u64 = 1_000_000;

/// The tenth of a row's time for which it must have been live to stand for itself.
const ENOUGH_PART: u64 = 10;

type Vector = [f64; GROUP_COUNTERS];
type Matrix = [Vector; GROUP_COUNTERS];

/// What one group of counters says of one owner or several, on one CPU or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// As counted, in the group's order.
    pub counts: [u64; GROUP_COUNTERS],
    /// Nanoseconds for which the owners ran where the group could have been live.
    pub enabled: u64,
    /// Nanoseconds of those for which it was.
    pub running: u64,
    /// What was not counted, estimated: the counts of the time for which the group was not live.
    unseen: Vector,
    /// Nanoseconds of which nothing is known.
    unknown: u64,
    /// The covariance of `unseen`; none where nothing was estimated.
    covariance: Option<Box<Matrix>>,
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

impl Counted {
    /// What was counted; the time in which the group was not live is unknown yet.
    fn seen(row: &UsageRow) -> Self {
        let enabled = row.enabled.max(row.running);
        Self {
            counts: row.counts,
            enabled,
            running: row.running,
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

    /// Estimates what was not counted in the unknown time; `together` is all the time that is
    /// estimated by this same rate, whose error all of that shares.
    fn fill(&mut self, rate: &Rate, together: u64) {
        if self.unknown == 0 {
            return;
        }
        let (own, together) = (float(self.unknown), float(together));
        let between = own * (own + together * rate.concentration);
        let few = own * together * rate.concentration;
        let sums = self.covariance.get_or_insert_default();
        for (a, per_ns) in rate.per_ns.iter().enumerate() {
            self.unseen[a] += per_ns * own;
            for (b, other) in rate.per_ns.iter().enumerate() {
                sums[a][b] += rate.spread[a][b] * between + per_ns * other * few;
            }
        }
        self.unknown = 0;
    }

    /// Adds those of another CPU or owner. Counts wrap at 2^64 like the counters themselves.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.wrapping_add(count);
        }
        self.enabled = self.enabled.wrapping_add(other.enabled);
        self.running = self.running.wrapping_add(other.running);
        self.unknown = self.unknown.wrapping_add(other.unknown);
        for (sum, unseen) in self.unseen.iter_mut().zip(other.unseen) {
            *sum += unseen;
        }
        if let Some(more) = &other.covariance {
            let sums = self.covariance.get_or_insert_default();
            for (sum, more) in sums.iter_mut().flatten().zip(more.iter().flatten()) {
                *sum += more;
            }
        }
    }

    /// Of a counter: what was counted and what is estimated for the rest of the time. None where
    /// nobody ran, and where more than half of the time is unknown.
    #[must_use]
    pub fn estimate(&self, at: usize) -> Option<f64> {
        let known = self.enabled.saturating_sub(self.unknown);
        (self.enabled > 0 && self.unknown <= known)
            .then(|| float(self.counts[at]) + self.unseen[at])
    }

    /// The part of the time for which the group was live.
    #[must_use]
    pub fn live(&self) -> f64 {
        float(self.running) / float(self.enabled.max(1))
    }

    /// Whether all of its time was counted, so that nothing is estimated.
    pub(crate) fn is_exact(&self) -> bool {
        self.covariance.is_none() && self.unknown == 0
    }

    /// The covariance of the estimates of two counters of the group. Beside that of what was
    /// estimated it has what was done in the unknown time, if that was as much as in the rest.
    #[must_use]
    pub fn covariance(&self, a: usize, b: usize) -> f64 {
        let estimated = self.covariance.as_ref().map_or(0.0, |sums| sums[a][b]);
        let (Some(one), Some(other)) = (self.estimate(a), self.estimate(b)) else {
            return estimated;
        };
        let known = self.enabled.saturating_sub(self.unknown);
        let unknown = float(self.unknown) / float(known.max(1));
        estimated + one * other * unknown * unknown
    }
}

/// What an owner does in a nanosecond, by some of its rows, and how far it may be from that at
/// other times.
struct Rate {
    per_ns: Vector,
    /// The covariance between the rows' own rates.
    spread: Matrix,
    /// The sum of the squares of the rows' parts in the time: 1 of one row, 1/n of n equal ones. A
    /// row's rate is off by all of itself as far as there are few of them, besides by their spread.
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

    /// By all that is known in `time`, estimated or counted: of the rest it says its order of
    /// magnitude.
    fn of_known(all: &[Counted], time: u64) -> Self {
        let mut per_ns = Vector::default();
        for counted in all {
            for (at, sum) in per_ns.iter_mut().enumerate() {
                *sum += (float(counted.counts[at]) + counted.unseen[at]) / float(time);
            }
        }
        Self {
            per_ns,
            spread: Matrix::default(),
            concentration: 1.0,
        }
    }
}

/// A count or time to reckon with.
#[expect(
    clippy::cast_precision_loss,
    reason = "an estimate of more than 2^53 counts or ns has no better precision"
)]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
