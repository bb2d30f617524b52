//! The mean of latencies with its interval. Latencies are skewed: most loads take four cycles, one
//! of a hundred takes 400, and 30 samples see none of those in 74 of 100 cases. So the interval is
//! built of the error of each bucket of the histogram, and of what was not seen at all.
//!
//! The mean is a sum of buckets' latencies times their shares. Each share has its own Poisson
//! limits (Byar's), upwards wider than downwards; their distances add up by squares (MOVER: Zou and
//! Donner, Statistics in Medicine 27, 2008, 1693-1702). A source of data that no sample came from,
//! and latencies above all that were seen, may have as many as Poisson's limit of none (the rule of
//! three), each at its latency on the whole machine.

use super::{
    spe,
    statistics::{Interval, byar, ends, none, student},
};
use crate::{snapshot::SpeCounts, window::Served};

/// Samples of its own that a mean needs for its interval to hold.
pub(super) const ENOUGH: f64 = 30.0;

/// Samples on the machine, since sampling began, by which rare latencies are known: of a tail of
/// 1% a thousand see ten.
const ENOUGH_ON_MACHINE: f64 = 1000.0;

/// Samples of one class of operations by where they were served.
pub(super) type Parts<'a> = [(Served, &'a SpeCounts)];

/// The mean total latency of samples, where `machine` are those of the same kind on the whole
/// machine. None where too few were taken to know its error.
pub(super) fn mean(own: &Parts<'_>, machine: &Parts<'_>) -> Option<Interval> {
    let (all, everyone) = (sum(own), sum(machine));
    let n = all.effective(all.timed());
    if n < ENOUGH || everyone.effective(everyone.timed()) < ENOUGH_ON_MACHINE {
        return None;
    }
    let mean = mean_of(&all);
    let variance = spe::mean_square(&all) - mean * mean;
    let mut squares = Squares::default();
    let per_sample = n / all.timed();
    for (bucket, weight) in all.histogram.iter().enumerate() {
        let k = weight * per_sample;
        if k > 0.0 {
            let more = (byar(k + 1.0, 1.0) - k) / n;
            let fewer = (k - byar(k, -1.0)) / n;
            squares.add(middle(bucket) - mean, more, fewer);
        }
    }
    // Within a bucket latencies differ too, which no share tells.
    let normal = student(n).powi(2) * variance.max(0.0) / (n - 1.0);
    squares.up = squares.up.max(normal);
    // A share cannot be less than none of what is there: the mean is never lower than that makes
    // it.
    squares.down = squares.down.min(normal);
    let unseen = none() / n;
    for (served, counts) in machine {
        let seen = |(own, counts): &(Served, &SpeCounts)| own == served && counts.timed() > 0.0;
        if counts.timed() > 0.0 && !own.iter().any(seen) {
            squares.add(mean_of(counts) - mean, unseen, 0.0);
        }
    }
    squares.add(above(&all, &everyone) - mean, unseen, 0.0);
    let (low, high) = (mean - squares.down.sqrt(), mean + squares.up.sqrt());
    Some(Interval::around(mean, low.max(0.0), high))
}

/// Squares of the distances to both ends.
#[derive(Default)]
struct Squares {
    up: f64,
    down: f64,
}

impl Squares {
    /// Of a share that may be larger by `more` and smaller by `fewer`, of latencies that are so
    /// much above the mean.
    fn add(&mut self, above: f64, more: f64, fewer: f64) {
        let (up, down) = if above > 0.0 {
            (more, fewer)
        } else {
            (fewer, more)
        };
        self.up += (above * up).powi(2);
        self.down += (above * down).powi(2);
    }
}

fn sum(parts: &Parts<'_>) -> SpeCounts {
    let mut sum = SpeCounts::default();
    for (_, counts) in parts {
        sum.add(counts);
    }
    sum
}

/// The mean latency of what is above all that was seen: as on the machine, or, where nothing is
/// there either, of the next bucket.
fn above(own: &SpeCounts, machine: &SpeCounts) -> f64 {
    let buckets = own.histogram.len();
    let last = own.histogram.iter().rposition(|weight| *weight > 0.0);
    let next = last.map_or(0, |last| last + 1);
    let (mut cycles, mut weights) = (0.0, 0.0);
    for bucket in next..buckets {
        cycles += machine.histogram[bucket] * middle(bucket);
        weights += machine.histogram[bucket];
    }
    if weights > 0.0 {
        cycles / weights
    } else {
        middle(next.min(buckets - 1))
    }
}

fn mean_of(counts: &SpeCounts) -> f64 {
    counts.cycles / counts.timed()
}

fn middle(bucket: usize) -> f64 {
    let (low, high) = ends(bucket);
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests;
