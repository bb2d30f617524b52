//! The mean latency with its interval. Latencies are skewed: if one load in a hundred takes 400
//! cycles and all others take 4, then 74 of 100 draws of 30 samples have no long one. So the
//! interval combines the error of each histogram bucket with a bound for unsampled latencies.
//!
//! The mean is the sum of bucket latencies times their shares. Each share has its own Poisson
//! limits (Byar's), wider upwards than downwards. The distances to these limits add in quadrature
//! (MOVER: Zou and Donner, Statistics in Medicine 27, 2008, 1693-1702). Unsampled latencies number
//! at most the Poisson limit of a count of 0 (the rule of three), and each is at most the longest
//! that a sample can hold: samples of other rows do not bound rare accesses of this row.

use super::{
    spe,
    statistics::{ConfidenceInterval, bucket_ends, byar, student, unseen_limit},
};
use crate::snapshot::SampleCounts;

/// The fewest samples for a valid interval of the mean.
const MIN_SAMPLES: f64 = 30.0;

/// The mean total latency of samples, each of at most `max_latency` cycles. None with too few
/// samples for an interval.
pub(super) fn mean(samples: &SampleCounts, max_latency: f64) -> Option<ConfidenceInterval> {
    let timed = samples.timed();
    let n = samples.effective(timed);
    if n < MIN_SAMPLES {
        return None;
    }
    let mean = samples.cycles / timed;
    let variance = spe::mean_square(samples) - mean * mean;
    let mut squares = Squares::default();
    let per_sample = n / timed;
    for (bucket, weight) in samples.histogram.iter().enumerate() {
        let count = weight * per_sample;
        if count > 0.0 {
            let increase = (byar(count + 1.0, 1.0) - count) / n;
            let decrease = (count - byar(count, -1.0)) / n;
            squares.add(farthest_latency(bucket, mean) - mean, increase, decrease);
        }
    }
    // If latencies are nearly equal, their variance gives a smaller error than the bucket's width.
    let by_variance = student(n).powi(2) * variance.max(0.0) / (n - 1.0);
    squares.down = squares.down.min(by_variance);
    let unseen = unseen_limit() / n;
    squares.add(max_latency - mean, unseen, 0.0);
    squares.add(-mean, unseen, 0.0);
    let (low, high) = (mean - squares.down.sqrt(), mean + squares.up.sqrt());
    Some(ConfidenceInterval::around(
        mean,
        low.max(0.0),
        high.min(max_latency),
    ))
}

/// Squared distances to both ends of the interval.
#[derive(Default)]
struct Squares {
    up: f64,
    down: f64,
}

impl Squares {
    /// Adds the error of a bucket's share, which may be larger by `increase` or smaller by
    /// `decrease`. Its latencies exceed the mean by `above`.
    fn add(&mut self, above: f64, increase: f64, decrease: f64) {
        let (up, down) = if above > 0.0 {
            (increase, decrease)
        } else {
            (decrease, increase)
        };
        self.up += (above * up).powi(2);
        self.down += (above * down).powi(2);
    }
}

/// The latency of a bucket that is farthest from the mean: how latencies spread within a bucket is
/// unknown.
fn farthest_latency(bucket: usize, mean: f64) -> f64 {
    let (low, high) = bucket_ends(bucket);
    if f64::midpoint(low, high) > mean {
        high
    } else {
        low
    }
}

#[cfg(test)]
mod tests;
