//! Known intervals, and properties of all intervals: each contains its value, and the true value as
//! often as stated.

use proptest::prelude::*;

use probe_common::spe::LATENCY_BUCKETS;

use super::*;

#[test]
fn a_count_of_samples_has_the_poisson_interval() {
    // Ten samples of weight 100; exact Poisson limits of 10 are 4.795 and 18.39.
    let estimate = count(1000.0, 10.0 * 100.0 * 100.0);
    assert!((estimate.low - 479.5).abs() < 5.0, "{estimate:?}");
    assert!((estimate.high - 1839.0).abs() < 5.0, "{estimate:?}");
    // The relative error of n samples is about 2 / sqrt(n).
    let many = count(1e6, 1e6);
    assert!((many.high / many.value - 1.00196).abs() < 1e-4, "{many:?}");
    assert_eq!(count(0.0, 0.0).high, 0.0);
    // The exact limit of a count of 0 is 3.689.
    let none = unsampled(100.0);
    assert!((none.high - 368.9).abs() < 5.0, "{none:?}");
}

#[test]
fn a_share_stays_between_0_and_1() {
    let none = share(0.0, 10.0, 10.0).unwrap();
    assert_eq!((none.value, none.low), (0.0, 0.0));
    // Wilson, 0 of 10: up to 27.8%.
    assert!((none.high - 0.2775).abs() < 1e-3, "{none:?}");
    let half = share(50.0, 100.0, 100.0).unwrap();
    assert!((half.low - 0.4038).abs() < 1e-3 && (half.high - 0.5962).abs() < 1e-3);
    assert_eq!(share(0.0, 0.0, 0.0), None);
}

/// By Abramowitz and Stegun 26.7.5, computed independently. For two samples the expansion is low:
/// the exact value is 12.706.
#[test]
fn students_t_follows_the_degrees_of_freedom() {
    let of_n = [
        (2.0, 9.710_584),
        (3.0, 4.171_205),
        (4.0, 3.158_993),
        (5.0, 2.769_373),
        (11.0, 2.227_972),
    ];
    for (n, t) in of_n {
        assert!((student(n) - t).abs() < 1e-5, "{n}");
    }
}

/// By Byar's formula, computed independently.
#[test]
fn the_interval_of_a_count_is_byars() {
    for (n, low, high) in [(1.0, 0.013_072, 5.563_755), (10.0, 4.787_450, 18.391_458)] {
        let estimate = count(n, n);
        assert!((estimate.low - low).abs() < 1e-5, "{estimate:?}");
        assert!((estimate.high - high).abs() < 1e-5, "{estimate:?}");
    }
    assert!((unsampled(2.0).high - 2.0 * 3.668_012).abs() < 1e-5);
}

/// Computed by hand: 10 [8, 13] times 2 [1, 4].
#[test]
fn the_distances_of_a_product_add_in_quadrature() {
    let interval = |value, low, high| ConfidenceInterval { value, low, high };
    let result = product(interval(10.0, 8.0, 13.0), interval(2.0, 1.0, 4.0));
    assert_eq!(result.value, 20.0);
    assert!(
        (result.low - (20.0 - 116_f64.sqrt())).abs() < 1e-9,
        "{result:?}"
    );
    assert!(
        (result.high - (20.0 + 436_f64.sqrt())).abs() < 1e-9,
        "{result:?}"
    );
    // An exact factor.
    let tenfold = product(interval(10.0, 10.0, 10.0), interval(2.0, 1.0, 4.0));
    assert!((tenfold.low - 10.0).abs() < 1e-9 && (tenfold.high - 40.0).abs() < 1e-9);
}

/// Ranks are spread evenly over a bucket, also with weighted samples.
#[test]
fn a_quantile_is_interpolated_in_its_bucket() {
    let mut histogram = [0.0; LATENCY_BUCKETS];
    (histogram[6], histogram[8]) = (4000.0, 4000.0);
    let value = |q| quantile(&histogram, bucket_ends, 400.0, q).unwrap().value;
    assert_eq!(
        [0.025, 0.25, 0.5, 0.75, 0.975].map(value),
        [8.15, 9.5, 11.0, 19.5, 22.65]
    );
}

#[test]
fn buckets_cover_every_latency_without_gaps() {
    let mut next = 0;
    for bucket in 0..LATENCY_BUCKETS {
        let (low, high) = SpeRow::latencies(bucket);
        assert_eq!(low, next);
        assert!(
            f64::from(high + 1) <= 1.5 * f64::from(low) || low < 2,
            "{bucket}"
        );
        for cycles in [low, u32::midpoint(low, high), high] {
            assert_eq!(SpeRow::bucket(u16::try_from(cycles).unwrap()), bucket);
        }
        next = high + 1;
    }
    assert_eq!(next, 1 << 16);
}

#[test]
fn a_quantile_lies_in_its_bucket() {
    let mut histogram = [0.0; LATENCY_BUCKETS];
    histogram[4] = 900.0;
    histogram[14] = 100.0;
    let quantile_of = |q| quantile(&histogram, bucket_ends, 1000.0, q).unwrap();
    let median = quantile_of(0.5);
    assert_eq!((median.low, median.high), (4.0, 5.0));
    assert!((4.0..=5.0).contains(&median.value));
    let p99 = quantile_of(0.99);
    assert_eq!((p99.low, p99.high), (128.0, 191.0));
    // At the edge the interval includes both buckets.
    let p90 = quantile_of(0.9);
    assert_eq!((p90.low, p90.high), (4.0, 191.0));
    assert_eq!(
        quantile(&[0.0; LATENCY_BUCKETS], bucket_ends, 0.0, 0.5),
        None
    );
}

/// With fewer samples a 95% interval reaches beyond the largest or the smallest sample.
#[test]
fn a_quantile_of_too_few_samples_has_no_value() {
    for (q, least) in [(0.5, 6), (0.9, 36), (0.99, 368)] {
        let of_samples = |n: i32| quantile(&[1.0; LATENCY_BUCKETS], bucket_ends, n.into(), q);
        assert_eq!(of_samples(least - 1), None, "{q}");
        assert!(of_samples(least).is_some(), "{q}");
        // For a high quantile: the largest of n samples exceeds it in all but q^n of the cases.
        assert!(f64::powi(q, least) <= 0.025 && f64::powi(q, least - 1) > 0.025);
    }
}

/// Latencies are nearly lognormal. The median error of their percentiles is below 5%, and the
/// largest is below the width of a bucket, which is 50%.
#[test]
fn a_percentile_is_near_the_true_value() {
    let mut errors = Vec::new();
    for median in (5..400_u16).step_by(7) {
        let mut histogram = [0.0; LATENCY_BUCKETS];
        // Every thousandth of the distribution, by Tukey's lambda for the normal quantile.
        let cycles: Vec<u16> = (1..1000_u16)
            .map(|rank| {
                let p = f64::from(rank) / 1000.0;
                let normal = 4.91 * (p.powf(0.14) - (1.0 - p).powf(0.14));
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "12 bits"
                )]
                let cycles = (f64::from(median) * (0.8 * normal).exp())
                    .round()
                    .min(4095.0) as u16;
                cycles
            })
            .collect();
        cycles
            .iter()
            .for_each(|cycles| histogram[SpeRow::bucket(*cycles)] += 1.0);
        for q in [0.5, 0.9, 0.99] {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rank"
            )]
            let true_value = f64::from(cycles[(q * 999.0) as usize]);
            let found = quantile(&histogram, bucket_ends, 999.0, q).unwrap();
            assert!(
                found.low <= true_value && true_value <= found.high,
                "{true_value} {found:?}"
            );
            errors.push((found.value / true_value - 1.0).abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    let (median, largest) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    println!("median error {median:.3}, largest {largest:.3}");
    assert!(median < 0.05 && largest < 0.5, "{median} {largest}");
}

/// A share of 0 has the lower end 0 for any number of samples: rounding had put it at 4.3e-19.
#[test]
fn the_interval_of_a_share_of_0_begins_at_0() {
    for n in 1..10_000 {
        let n = f64::from(n);
        assert_eq!(share(0.0, n, n).unwrap().low, 0.0, "{n}");
        assert_eq!(share(n, n, n).unwrap().high, 1.0, "{n}");
    }
}

#[track_caller]
fn assert_contains_value(estimate: ConfidenceInterval) {
    let ConfidenceInterval { value, low, high } = estimate;
    assert!(
        0.0 <= low && low <= value && value <= high && high.is_finite(),
        "{estimate:?}"
    );
}

/// The weights of samples: the numbers of operations that they represent.
fn weights() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1.0..1e9, 1..50)
}

proptest! {
    #[test]
    fn a_count_is_in_its_interval(weights in weights()) {
        let sum = weights.iter().sum();
        let squares = weights.iter().map(|weight| weight * weight).sum();
        assert_contains_value(count(sum, squares));
        // Also for fractional numbers, or above 2^53.
        assert_contains_value(count(sum * 1e-6, squares));
        assert_contains_value(count(sum * 1e12, squares));
        assert_contains_value(unsampled(sum));
    }

    #[test]
    fn a_count_does_not_depend_on_its_unit(weights in weights(), unit in 1e-3..1e3) {
        let [one, other] = [1.0, unit].map(|unit| {
            let weights = weights.iter().map(|weight| weight * unit);
            count(weights.clone().sum(), weights.map(|weight| weight * weight).sum())
        });
        let both = [(one.value, other.value), (one.low, other.low), (one.high, other.high)];
        for (one, other) in both {
            prop_assert!((one * unit - other).abs() <= 1e-9 * other, "{one} {other}");
        }
    }

    #[test]
    fn a_share_is_in_its_interval(part in 0.0..1.0, whole in 1e-3..1e18, n in 0.1..1e18) {
        for part in [0.0, part, 1.0] {
            let estimate = share(part * whole, whole, n).unwrap();
            assert_contains_value(estimate);
            prop_assert!(estimate.high <= 1.0, "{estimate:?}");
            // More samples narrow the interval.
            let narrower = share(part * whole, whole, 4.0 * n).unwrap();
            prop_assert!(
                narrower.high - narrower.low <= estimate.high - estimate.low,
                "{narrower:?} {estimate:?}"
            );
        }
    }

    #[test]
    fn a_quantile_is_in_its_interval(
        latencies in prop::collection::vec(0_u16.., 1..200),
        weight in 1.0..1e9,
        q in 0.0..=1.0,
    ) {
        let mut sorted = latencies;
        sorted.sort_unstable();
        let mut histogram = [0.0; LATENCY_BUCKETS];
        for latency in &sorted {
            histogram[SpeRow::bucket(*latency)] += weight;
        }
        let n = f64::from(u32::try_from(sorted.len()).unwrap());
        let Some(estimate) = quantile(&histogram, bucket_ends, n, q) else {
            return Ok(());
        };
        assert_contains_value(estimate);
        // The true value of these samples is in it too.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank"
        )]
        let rank = ((sorted.len() as f64 * q) as usize).min(sorted.len() - 1);
        let true_value = f64::from(sorted[rank]);
        prop_assert!(
            (estimate.low..=estimate.high).contains(&true_value),
            "{true_value} {estimate:?}"
        );
    }
}

/// The probability that the interval of a Poisson count contains its mean, over all counts.
#[test]
fn intervals_of_counts_contain_the_mean_in_95_of_100_cases() {
    for mean in [4.0, 10.0, 31.0, 100.0, 317.0] {
        let mut probability = f64::exp(-mean);
        let mut covered = 0.0;
        for n in 0..1000 {
            let samples = f64::from(n);
            let estimate = if n == 0 {
                unsampled(1.0)
            } else {
                count(samples, samples)
            };
            if (estimate.low..=estimate.high).contains(&mean) {
                covered += probability;
            }
            probability *= mean / (samples + 1.0);
        }
        assert!((0.945..0.99).contains(&covered), "{covered} of {mean}");
    }
}

/// The probability for binomial shares: Wilson's interval is right on average over the shares.
#[test]
fn intervals_of_shares_contain_the_share_in_95_of_100_cases() {
    for n in [10, 40, 160] {
        let samples = f64::from(n);
        let mut all = 0.0;
        for percent in 1..100 {
            let true_share = f64::from(percent) / 100.0;
            let mut probability = (1.0 - true_share).powi(n);
            let mut covered = 0.0;
            for k in 0..=n {
                let part = f64::from(k);
                let estimate = share(part, samples, samples).unwrap();
                if (estimate.low..=estimate.high).contains(&true_share) {
                    covered += probability;
                }
                probability *= (samples - part) / (part + 1.0) * true_share / (1.0 - true_share);
            }
            assert!(covered > 0.83, "{covered} of {true_share} in {n}");
            all += covered / 99.0;
        }
        assert!((0.94..0.97).contains(&all), "{all} of {n}");
    }
}
