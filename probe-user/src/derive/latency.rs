//! The mean of latencies with its interval. Latencies are skewed: most loads take four cycles, one
//! of a hundred takes 400, and 30 samples see none of those in 74 of 100 cases. So the interval is
//! built of the error of each bucket of the histogram, and of what was not sampled at all.
//!
//! The mean is a sum of buckets' latencies times their shares. Each share has its own Poisson
//! limits (Byar's), upwards wider than downwards; their distances add up by squares (MOVER: Zou and
//! Donner, Statistics in Medicine 27, 2008, 1693-1702). Latencies that were not sampled may be as
//! many as Poisson's limit of none (the rule of three), and anything that a sample can hold: other
//! rows' samples do not say how long this one's rare accesses take.

use super::{
    spe,
    statistics::{Interval, byar, ends, none, student},
};
use crate::snapshot::SpeCounts;

/// Samples that a mean needs for its interval to hold.
const ENOUGH: f64 = 30.0;

/// The mean total latency of samples, of which none can be longer than `max_latency` cycles. None
/// where too few were taken to know its error.
pub(super) fn mean(samples: &SpeCounts, max_latency: f64) -> Option<Interval> {
    let timed = samples.timed();
    let n = samples.effective(timed);
    if n < ENOUGH {
        return None;
    }
    let mean = samples.cycles / timed;
    let variance = spe::mean_square(samples) - mean * mean;
    let mut squares = Squares::default();
    let per_sample = n / timed;
    for (bucket, weight) in samples.histogram.iter().enumerate() {
        let k = weight * per_sample;
        if k > 0.0 {
            let more = (byar(k + 1.0, 1.0) - k) / n;
            let fewer = (k - byar(k, -1.0)) / n;
            squares.add(farthest(bucket, mean) - mean, more, fewer);
        }
    }
    // Where all took about as long, the spread of the samples says more than the width of a bucket.
    let normal = student(n).powi(2) * variance.max(0.0) / (n - 1.0);
    squares.down = squares.down.min(normal);
    let unseen = none() / n;
    squares.add(max_latency - mean, unseen, 0.0);
    squares.add(-mean, unseen, 0.0);
    let (low, high) = (mean - squares.down.sqrt(), mean + squares.up.sqrt());
    Some(Interval::around(mean, low.max(0.0), high.min(max_latency)))
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

/// The latency of a bucket that is farthest from the mean: shares do not say how latencies are
/// spread within it.
fn farthest(bucket: usize, mean: f64) -> f64 {
    let (low, high) = ends(bucket);
    if f64::midpoint(low, high) > mean {
        high
    } else {
        low
    }
}

#[cfg(test)]
mod tests;
