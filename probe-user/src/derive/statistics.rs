//! Estimates from samples, with the interval that holds the true value in 95 of 100 cases.
//!
//! Formulas: Byar's approximation for Poisson counts (Breslow and Day, Statistical Methods in
//! Cancer Research II, 1987, p. 69); Wilson's score interval for shares (JASA 22, 1927, 209-212);
//! Student's t by its Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5) for means.

use probe_common::spe::{LATENCY_BUCKETS, LatencySum};

/// The 97.5% quantile of the normal distribution.
const Z: f64 = 1.959_964;

/// A value with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// An interval around a value. The ends are computed in another way than the value, so rounding
    /// may put an end on the wrong side of it: this corrects that.
    pub(super) fn around(value: f64, low: f64, high: f64) -> Self {
        Self {
            value,
            low: low.min(value),
            high: high.max(value),
        }
    }
}

/// The number of operations that weighted samples stand for. `variance` is the sum of the squares
/// of the weights.
#[must_use]
pub fn count(operations: f64, variance: f64) -> Interval {
    if operations <= 0.0 || variance <= 0.0 {
        return nothing(0.0);
    }
    // As many equal samples would have the same relative error.
    let n = operations * operations / variance;
    let weight = variance / operations;
    Interval::around(
        operations,
        byar(n, -1.0) * weight,
        byar(n + 1.0, 1.0) * weight,
    )
}

/// The number of operations where none was sampled, if each sample would stand for `weight`.
#[must_use]
pub fn nothing(weight: f64) -> Interval {
    Interval {
        value: 0.0,
        low: 0.0,
        high: byar(1.0, 1.0) * weight,
    }
}

fn byar(m: f64, sign: f64) -> f64 {
    m * (1.0 - 1.0 / (9.0 * m) + sign * Z / (3.0 * m.sqrt()))
        .max(0.0)
        .powi(3)
}

/// The share `part / whole` of `n` independent samples; None of zero.
#[must_use]
pub fn share(part: f64, whole: f64, n: f64) -> Option<Interval> {
    if whole <= 0.0 || n <= 0.0 {
        return None;
    }
    let p = (part / whole).clamp(0.0, 1.0);
    let z2 = Z * Z / n;
    let middle = (p + z2 / 2.0) / (1.0 + z2);
    let half = (p * (1.0 - p) / n + z2 / (4.0 * n)).max(0.0).sqrt() * Z / (1.0 + z2);
    let (low, high) = ((middle - half).max(0.0), (middle + half).min(1.0));
    Some(Interval::around(p, low, high))
}

/// The mean of `n` latencies; None for fewer than two, whose error is unknown.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sums of a window, below 2^53")]
pub fn mean(sum: LatencySum, n: u64) -> Option<Interval> {
    if n < 2 {
        return None;
    }
    let count = n as f64;
    let mean = sum.cycles as f64 / count;
    let spread = (sum.squares as f64 - mean * sum.cycles as f64).max(0.0) / (count - 1.0);
    let free = count - 1.0;
    let t = Z
        + (Z.powi(3) + Z) / (4.0 * free)
        + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * free.powi(2))
        + (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z)
            / (384.0 * free.powi(3));
    let half = t * (spread / count).sqrt();
    Some(Interval::around(mean, (mean - half).max(0.0), mean + half))
}

/// A quantile of a latency histogram; None of an empty one.
///
/// The value is interpolated within its bucket. The interval is that of the buckets which hold the
/// ranks of a 95% interval: the histogram has no finer values.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "samples of a window, below 2^53"
)]
pub fn quantile(histogram: &[u64; LATENCY_BUCKETS], q: f64) -> Option<Interval> {
    let n: u64 = histogram.iter().sum();
    if n == 0 {
        return None;
    }
    let n = n as f64;
    let half = Z * (n * q * (1.0 - q)).sqrt();
    let (value, ..) = at_rank(histogram, n * q);
    let (_, low, _) = at_rank(histogram, (n * q - half).max(0.0));
    let (.., high) = at_rank(histogram, (n * q + half).min(n));
    Some(Interval::around(value, low, high))
}

/// The latency of a rank, and the ends of its bucket.
#[expect(
    clippy::cast_precision_loss,
    reason = "samples of a window, below 2^53"
)]
fn at_rank(histogram: &[u64; LATENCY_BUCKETS], rank: f64) -> (f64, f64, f64) {
    let mut before = 0.0;
    let mut last = (0.0, 0.0, 0.0);
    for (bucket, &count) in histogram.iter().enumerate() {
        if count == 0 {
            continue;
        }
        let (low, high) = ends(bucket);
        let count = count as f64;
        let inside = ((rank - before) / count).clamp(0.0, 1.0);
        last = (low + inside * (high - low), low, high);
        if rank <= before + count {
            return last;
        }
        before += count;
    }
    last
}

/// The lowest and highest latency of a bucket. The counters saturate at 16 bits at most.
pub(super) fn ends(bucket: usize) -> (f64, f64) {
    let low = if bucket == 0 { 0 } else { 1_u32 << bucket };
    let high = if bucket == LATENCY_BUCKETS - 1 {
        u32::from(u16::MAX)
    } else {
        (2 << bucket) - 1
    };
    (f64::from(low), f64::from(high))
}

#[cfg(test)]
mod tests;
