//! Known intervals, and properties of all: an interval holds its value, and the truth as often as
//! it says.

use proptest::prelude::*;

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
    // The exact limit of none is 3.689.
    let none = nothing(100.0);
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

#[test]
fn a_mean_knows_its_error() {
    // 1, 2, 3, 4, 5: mean 3, standard deviation 1.5811, t(4) = 2.776.
    let sum = LatencySum {
        cycles: 15,
        squares: 55,
    };
    let estimate = mean(sum, 5).unwrap();
    assert!((estimate.value - 3.0).abs() < 1e-12);
    assert!((estimate.high - 4.963).abs() < 0.01, "{estimate:?}");
    assert_eq!(mean(sum, 1), None);
}

/// By Abramowitz and Stegun 26.7.5, computed apart. Of two it is low: Student's own is 12.706.
#[test]
fn the_mean_of_few_has_the_t_of_its_degrees_of_freedom() {
    let of_n = [
        (2_u32, 9.710_584),
        (3, 4.171_205),
        (4, 3.158_993),
        (5, 2.769_373),
        (11, 2.227_972),
    ];
    for (n, t) in of_n {
        // Of mean 1,000 and standard deviation 1.
        let sum = LatencySum {
            cycles: 1000 * u64::from(n),
            squares: 1_000_000 * u64::from(n) + u64::from(n) - 1,
        };
        let estimate = mean(sum, n.into()).unwrap();
        let half = t / f64::from(n).sqrt();
        for (end, expected) in [
            (estimate.low, 1000.0 - half),
            (estimate.high, 1000.0 + half),
        ] {
            assert!((end - expected).abs() < 1e-5, "{n}: {estimate:?} {half}");
        }
    }
}

/// By Byar's formula, computed apart.
#[test]
fn the_ends_of_a_count_are_byars() {
    for (n, low, high) in [(1.0, 0.013_072, 5.563_755), (10.0, 4.787_450, 18.391_458)] {
        let estimate = count(n, n);
        assert!((estimate.low - low).abs() < 1e-5, "{estimate:?}");
        assert!((estimate.high - high).abs() < 1e-5, "{estimate:?}");
    }
    assert!((nothing(2.0).high - 2.0 * 3.668_012).abs() < 1e-5);
}

/// Ranks are spread evenly over a bucket.
#[test]
fn a_quantile_is_interpolated_in_its_bucket() {
    let mut histogram = [0; LATENCY_BUCKETS];
    (histogram[2], histogram[3]) = (4, 4);
    let value = |q| quantile(&histogram, q).unwrap().value;
    assert_eq!(
        [0.0, 0.25, 0.5, 0.75, 1.0].map(value),
        [4.0, 5.5, 7.0, 11.5, 15.0]
    );
}

#[test]
fn buckets_follow_each_other_up_to_what_a_counter_can_hold() {
    assert_eq!(
        (ends(0), ends(1), ends(2)),
        ((0.0, 1.0), (2.0, 3.0), (4.0, 7.0))
    );
    assert_eq!(ends(13), (8192.0, 16_383.0));
    assert_eq!(ends(14), (16_384.0, 65_535.0));
}

#[test]
fn a_quantile_lies_in_its_bucket() {
    let mut histogram = [0; LATENCY_BUCKETS];
    histogram[2] = 900;
    histogram[7] = 100;
    let median = quantile(&histogram, 0.5).unwrap();
    assert_eq!((median.low, median.high), (4.0, 7.0));
    assert!((4.0..=7.0).contains(&median.value));
    let p99 = quantile(&histogram, 0.99).unwrap();
    assert_eq!((p99.low, p99.high), (128.0, 255.0));
    // At the edge the interval takes both buckets.
    let p90 = quantile(&histogram, 0.9).unwrap();
    assert_eq!((p90.low, p90.high), (4.0, 255.0));
    assert_eq!(quantile(&[0; LATENCY_BUCKETS], 0.5), None);
    histogram[0] = 100_000;
    assert_eq!(quantile(&histogram, 0.5).unwrap().low, 0.0);
}

/// Of no walk among any number of samples the lower end is 0: rounding had put it at 4.3e-19.
#[test]
fn an_interval_of_no_share_begins_at_0() {
    for n in 1..10_000 {
        let n = f64::from(n);
        assert_eq!(share(0.0, n, n).unwrap().low, 0.0, "{n}");
        assert_eq!(share(n, n, n).unwrap().high, 1.0, "{n}");
    }
}

#[track_caller]
fn holds(estimate: Interval) {
    let Interval { value, low, high } = estimate;
    assert!(
        0.0 <= low && low <= value && value <= high && high.is_finite(),
        "{estimate:?}"
    );
}

/// A weighted sample: how many operations it stands for.
fn weights() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1.0..1e9, 1..50)
}

proptest! {
    #[test]
    fn a_count_is_in_its_interval(weights in weights()) {
        let (sum, squares) = (weights.iter().sum(), weights.iter().map(|weight| weight * weight).sum());
        holds(count(sum, squares));
        // Also where their number is not whole: of a part of each operation, or of more than 2^53.
        holds(count(sum * 1e-6, squares));
        holds(count(sum * 1e12, squares));
        holds(nothing(sum));
    }

    #[test]
    fn a_count_does_not_depend_on_its_unit(weights in weights(), unit in 1e-3..1e3) {
        let [one, other] = [1.0, unit].map(|unit| {
            let weights = weights.iter().map(|weight| weight * unit);
            count(weights.clone().sum(), weights.map(|weight| weight * weight).sum())
        });
        for (one, other) in [(one.value, other.value), (one.low, other.low), (one.high, other.high)] {
            prop_assert!((one * unit - other).abs() <= 1e-9 * other, "{one} {other}");
        }
    }

    #[test]
    fn a_share_is_in_its_interval(part in 0.0..1.0, whole in 1e-3..1e18, n in 0.1..1e18) {
        for part in [0.0, part, 1.0] {
            let estimate = share(part * whole, whole, n).unwrap();
            holds(estimate);
            prop_assert!(estimate.high <= 1.0, "{estimate:?}");
            // More samples tell more.
            let more = share(part * whole, whole, 4.0 * n).unwrap();
            prop_assert!(more.high - more.low <= estimate.high - estimate.low, "{more:?} {estimate:?}");
        }
    }

    #[test]
    fn a_mean_is_in_its_interval(latencies in prop::collection::vec(0_u64..65_536, 0..50), times in 1_u64..1 << 20) {
        let sum = LatencySum {
            cycles: times * latencies.iter().sum::<u64>(),
            squares: times * latencies.iter().map(|latency| latency * latency).sum::<u64>(),
        };
        let n = times * u64::try_from(latencies.len()).unwrap();
        match mean(sum, n) {
            Some(estimate) => holds(estimate),
            None => prop_assert!(n < 2),
        }
    }

    #[test]
    fn a_quantile_is_in_its_interval(
        latencies in prop::collection::vec(0_u64..65_536, 1..200),
        times in 1_u64..1 << 40,
        q in 0.0..=1.0,
    ) {
        let mut sorted = latencies;
        sorted.sort_unstable();
        let mut histogram = [0; LATENCY_BUCKETS];
        for latency in &sorted {
            histogram[(latency.max(&1).ilog2() as usize).min(LATENCY_BUCKETS - 1)] += times;
        }
        let estimate = quantile(&histogram, q).unwrap();
        holds(estimate);
        // What is true of these samples is in it too.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
        let rank = ((sorted.len() as f64 * q) as usize).min(sorted.len() - 1);
        let truth = f64::from(u16::try_from(sorted[rank]).unwrap());
        prop_assert!((estimate.low..=estimate.high).contains(&truth), "{truth} {estimate:?}");
    }
}

/// The probability that the interval of a Poisson count holds its mean, summed over all counts.
#[test]
fn intervals_of_counts_hold_the_truth_in_95_of_100_cases() {
    for truth in [4.0, 10.0, 31.0, 100.0, 317.0] {
        let mut probability = f64::exp(-truth);
        let mut held = 0.0;
        for n in 0..1000 {
            let samples = f64::from(n);
            let estimate = if n == 0 {
                nothing(1.0)
            } else {
                count(samples, samples)
            };
            if (estimate.low..=estimate.high).contains(&truth) {
                held += probability;
            }
            probability *= truth / (samples + 1.0);
        }
        assert!((0.945..0.99).contains(&held), "{held} of {truth}");
    }
}

/// The same of binomial shares: Wilson's interval is right on average over the shares.
#[test]
fn intervals_of_shares_hold_the_truth_in_95_of_100_cases() {
    for n in [10, 40, 160] {
        let samples = f64::from(n);
        let mut all = 0.0;
        for percent in 1..100 {
            let truth = f64::from(percent) / 100.0;
            let mut probability = (1.0 - truth).powi(n);
            let mut held = 0.0;
            for k in 0..=n {
                let part = f64::from(k);
                let estimate = share(part, samples, samples).unwrap();
                if (estimate.low..=estimate.high).contains(&truth) {
                    held += probability;
                }
                probability *= (samples - part) / (part + 1.0) * truth / (1.0 - truth);
            }
            assert!(held > 0.83, "{held} of {truth} in {n}");
            all += held / 99.0;
        }
        assert!((0.94..0.97).contains(&all), "{all} of {n}");
    }
}

/// Means of latencies that are spread evenly over a range.
#[test]
fn intervals_of_means_hold_the_truth_in_95_of_100_cases() {
    let mut random = 1_u64;
    let mut latency = || {
        // Knuth's generator (MMIX).
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        100 + (random >> 33) % 1001
    };
    for n in [2, 3, 5, 20, 100] {
        let held = (0..4000)
            .filter(|_| {
                let latencies = (0..n).map(|_| latency());
                let sum = latencies.fold(LatencySum::default(), |sum, latency| LatencySum {
                    cycles: sum.cycles + latency,
                    squares: sum.squares + latency * latency,
                });
                let estimate = mean(sum, n).unwrap();
                (estimate.low..=estimate.high).contains(&600.0)
            })
            .count();
        let held = f64::from(u32::try_from(held).unwrap()) / 4000.0;
        // Of two, Student's t itself is right for normal latencies only, and its expansion is low.
        assert!((0.88..0.975).contains(&held), "{held} of {n}");
    }
}
