//! Estimates from samples, with 95% confidence intervals.
//!
//! Formulas: Byar's approximation for Poisson counts (Breslow and Day, Statistical Methods in
//! Cancer Research II, 1987, p. 69); Wilson's score interval for shares (JASA 22, 1927, 209-212);
//! Student's t by its Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5). Means of latencies
//! are in `latency`.

use probe_common::spe::SpeRow;

/// The 97.5% quantile of the normal distribution.
pub(super) const Z: f64 = 1.959_964;

/// A value with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl ConfidenceInterval {
    /// An interval around a value. The ends are computed separately from the value, so rounding may
    /// put an end on the wrong side: this corrects it.
    pub(super) fn around(value: f64, low: f64, high: f64) -> Self {
        Self {
            value,
            low: low.min(value),
            high: high.max(value),
        }
    }
}

/// The number of operations that weighted samples represent. `operations` is the sum of the
/// weights, `variance` the sum of their squares.
#[must_use]
pub fn count(operations: f64, variance: f64) -> ConfidenceInterval {
    if operations <= 0.0 || variance <= 0.0 {
        return unsampled(0.0);
    }
    // Effective sample size: equal samples with the same relative error.
    let n = operations * operations / variance;
    let weight = variance / operations;
    ConfidenceInterval::around(
        operations,
        byar(n, -1.0) * weight,
        byar(n + 1.0, 1.0) * weight,
    )
}

/// The number of operations without any sample, if a sample would represent `weight`.
#[must_use]
pub fn unsampled(weight: f64) -> ConfidenceInterval {
    ConfidenceInterval {
        value: 0.0,
        low: 0.0,
        high: unseen_limit() * weight,
    }
}

/// The product of two estimates with independent errors.
pub(super) fn product(a: ConfidenceInterval, b: ConfidenceInterval) -> ConfidenceInterval {
    let distance = |end: fn(&ConfidenceInterval) -> f64| {
        let (a_distance, b_distance) = (end(&a) - a.value, end(&b) - b.value);
        ((a_distance * b.value).powi(2) + (b_distance * a.value).powi(2)).sqrt()
    };
    let value = a.value * b.value;
    let low = value - distance(|it| it.low);
    ConfidenceInterval::around(value, low.max(0.0), value + distance(|it| it.high))
}

/// The upper limit of a Poisson count of 0.
pub(super) fn unseen_limit() -> f64 {
    byar(1.0, 1.0)
}

/// Limits of a Poisson count `n` by Byar: `byar(n, -1.0)` is the lower limit, `byar(n + 1.0, 1.0)`
/// the upper limit.
pub(super) fn byar(m: f64, sign: f64) -> f64 {
    m * (1.0 - 1.0 / (9.0 * m) + sign * Z / (3.0 * m.sqrt()))
        .max(0.0)
        .powi(3)
}

/// The share `part / whole` of `n` independent samples; None without samples.
#[must_use]
pub fn share(part: f64, whole: f64, n: f64) -> Option<ConfidenceInterval> {
    if whole <= 0.0 || n <= 0.0 {
        return None;
    }
    let p = (part / whole).clamp(0.0, 1.0);
    let z2 = Z * Z / n;
    let middle = (p + z2 / 2.0) / (1.0 + z2);
    let half = (p * (1.0 - p) / n + z2 / (4.0 * n)).max(0.0).sqrt() * Z / (1.0 + z2);
    let (low, high) = ((middle - half).max(0.0), (middle + half).min(1.0));
    Some(ConfidenceInterval::around(p, low, high))
}

/// The 97.5% quantile of Student's t for the mean of `n` values.
pub(super) fn student(n: f64) -> f64 {
    student_quantile(Z, n - 1.0)
}

/// The quantile of Student's t with `free` degrees of freedom, for the normal quantile `z`. With at
/// least 4 degrees of freedom, the error at the 99.5% quantile is below 2%.
fn student_quantile(z: f64, free: f64) -> f64 {
    z + (z.powi(3) + z) / (4.0 * free)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * free.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z)
            / (384.0 * free.powi(3))
}

/// The quantile `q` of `n` samples, from the histogram of their weights, whose buckets have these
/// `ends`. None with too few samples for an interval: the true quantile may be below all samples in
/// at most 2.5% of draws, and above all samples in at most 2.5%. That takes 6 samples for the
/// median, 36 for the 90th percentile and 368 for the 99th.
///
/// The value is interpolated within its bucket. The interval spans the buckets that hold the ranks
/// of a 95% interval, since the histogram has no finer values.
#[must_use]
pub fn quantile(
    histogram: &[f64],
    ends: fn(usize) -> (f64, f64),
    n: f64,
    q: f64,
) -> Option<ConfidenceInterval> {
    let may_be_outside = |q: f64| q.powf(n) > 0.025;
    if n < 1.0 || may_be_outside(q) || may_be_outside(1.0 - q) {
        return None;
    }
    let weight: f64 = histogram.iter().sum::<f64>() / n;
    let half = Z * (n * q * (1.0 - q)).sqrt();
    let rank = |rank: f64| at_rank(histogram, ends, rank.clamp(0.0, n) * weight);
    let (value, ..) = rank(n * q);
    // Ranks are whole numbers.
    let (_, low, _) = rank((n * q - half).floor());
    let (.., high) = rank((n * q + half).ceil() + 1.0);
    Some(ConfidenceInterval::around(value, low, high))
}

/// The value of a rank, with the ends of its bucket.
fn at_rank(histogram: &[f64], ends: fn(usize) -> (f64, f64), rank: f64) -> (f64, f64, f64) {
    let mut before = 0.0;
    let mut last = (0.0, 0.0, 0.0);
    for (bucket, &count) in histogram.iter().enumerate() {
        if count <= 0.0 {
            continue;
        }
        let (low, high) = ends(bucket);
        let inside = ((rank - before) / count).clamp(0.0, 1.0);
        last = (low + inside * (high - low), low, high);
        if rank <= before + count {
            return last;
        }
        before += count;
    }
    last
}

/// The lowest and highest latency of a bucket. Latency counters saturate at 16 bits at most.
pub(super) fn bucket_ends(bucket: usize) -> (f64, f64) {
    let (low, high) = SpeRow::latencies(bucket);
    (low.into(), high.into())
}

#[cfg(test)]
mod tests;
