//! The arithmetic of estimates, against rows with known true counts.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn estimate(rows: &[CpuRow]) -> Vec<GroupCounts> {
    let mut all = Vec::new();
    super::estimate(rows, &mut all);
    all
}

/// A row on a core of kind `kind`, whose first two counters count `rates` per ns of `running`.
fn row(kind: usize, rates: [u64; 2], enabled: u64, running: u64) -> CpuRow {
    let mut row = UsageRow {
        enabled,
        running,
        ..UsageRow::ZERO
    };
    row.counts[..2].copy_from_slice(&rates.map(|rate| rate * running));
    CpuRow {
        cpu: 0,
        kind: Some(kind),
        row,
    }
}

fn sum(rows: &[CpuRow]) -> GroupCounts {
    let mut sum = GroupCounts::default();
    for counted in estimate(rows) {
        sum.add(&counted);
    }
    sum
}

fn error(counted: &GroupCounts, at: usize) -> f64 {
    counted.covariance(at, at).sqrt()
}

#[track_caller]
fn near(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() <= 1e-9 * expected.abs(),
        "{value}, not {expected}"
    );
}

#[test]
fn a_group_that_always_ran_is_exact() {
    // Also a row that ran for only 9 ns.
    let counted = sum(&[row(0, [3, 1], 7 * MS, 7 * MS), row(0, [5, 2], 9, 9)]);
    assert_eq!(counted.estimate(0), Some(21e6 + 45.0));
    assert_eq!((error(&counted, 0), counted.running_ratio()), (0.0, 1.0));
}

#[test]
fn a_row_is_scaled_by_its_own_times() {
    // Running for half of its time on a fast CPU, for all of it on a slow one.
    let counted = sum(&[
        row(0, [40, 10], 10 * MS, 5 * MS),
        row(0, [2, 1], 10 * MS, 10 * MS),
    ]);
    near(counted.estimate(0).unwrap(), 420e6);
    // The estimated part has a relative error of 1.
    near(error(&counted, 0), 200e6);
    assert_eq!(counted.running_ratio(), 0.75);
}

#[test]
fn a_row_that_hardly_ran_takes_the_rate_of_its_kind_of_core() {
    // One row ran for less than 1 ms, one for less than a tenth of its time.
    for (running, enabled) in [(MS - 1, 4 * MS), (2 * MS, 21 * MS)] {
        let rows = [
            row(0, [2, 1], 30 * MS, 30 * MS),
            row(0, [4, 1], 30 * MS, 30 * MS),
            row(1, [9, 9], 30 * MS, 30 * MS),
            row(0, [0, 0], enabled, running),
        ];
        let counted = &estimate(&rows)[3];
        // The row's own running time, in which it counted nothing, lowers the rate a little.
        let rate = 180e6 / float(60 * MS + running);
        near(
            counted.estimate(0).unwrap(),
            rate * float(enabled - running),
        );
        // A row that never ran takes the rate of the row that did.
        let rows = [row(0, [0, 0], enabled, 0), row(0, [2, 1], 30 * MS, 30 * MS)];
        near(
            estimate(&rows)[0].estimate(0).unwrap(),
            2.0 * float(enabled),
        );
    }
}

/// 1 ms of running time is enough, even if it is a small part of the enabled time.
#[test]
fn a_millisecond_gives_the_rate_of_a_kind_of_core() {
    let counted = |running| sum(&[row(0, [2, 1], 20 * MS, running)]);
    near(counted(MS).estimate(0).unwrap(), 40e6);
    assert_eq!(counted(MS - 1).estimate(0), None);
}

/// With many groups, each runs for less than a tenth of the time: the only rate is that of all rows
/// of the owner.
#[test]
fn rows_that_all_hardly_ran_share_one_rate() {
    let rows = [
        row(0, [2, 1], 1000 * MS, 40 * MS),
        row(0, [4, 1], 1000 * MS, 40 * MS),
    ];
    near(sum(&rows).estimate(0).unwrap(), 80e6 + 160e6 + 3.0 * 1920e6);
}

#[test]
fn another_kind_of_core_gives_the_order_of_magnitude() {
    let rows = [row(0, [8, 1], 30 * MS, 30 * MS), row(1, [0, 0], 10 * MS, 0)];
    let counted = sum(&rows);
    near(counted.estimate(0).unwrap(), 320e6);
    near(error(&counted, 0), 80e6);
}

#[test]
fn there_is_no_estimate_if_more_than_half_of_the_time_is_unknown() {
    let value = |unknown| sum(&[row(0, [8, 1], 30 * MS, 30 * MS), row(1, [0, 0], unknown, 0)]);
    assert!(value(30 * MS).estimate(0).is_some());
    assert_eq!(value(30 * MS + 1).estimate(0), None);
    // A single row that ran for less than 1 ms is scaled by its own rate, if it ran for half of its
    // time.
    near(sum(&[row(0, [8, 1], 8, 4)]).estimate(0).unwrap(), 64.0);
    assert_eq!(sum(&[row(0, [8, 1], 9, 4)]).estimate(0), None);
    assert_eq!(sum(&[row(0, [8, 1], 0, 0)]).estimate(0), None);
}

/// An owner's time is never estimated by others' rates: its unknown time is in the error of the
/// sum.
#[test]
fn the_unknown_time_of_one_owner_is_in_the_error_of_the_sum() {
    let mut all = sum(&[row(0, [8, 1], 90 * MS, 90 * MS)]);
    all.add(&sum(&[row(0, [0, 0], 10 * MS, 0)]));
    near(all.estimate(0).unwrap(), 720e6);
    near(error(&all, 0), 80e6);
    assert_eq!(all.running_ratio(), 0.9);
}

#[test]
fn more_rows_give_a_smaller_error() {
    // Of a row that never ran, with the rate of `rows` others.
    let relative_error = |rows: usize, rates: [u64; 2]| {
        let running = (0..rows).map(|at| row(0, [rates[at % 2], 1], 10 * MS, 10 * MS));
        let mut rows: Vec<CpuRow> = running.collect();
        rows.push(row(0, [0, 0], 10 * MS, 0));
        let counted = estimate(&rows).pop().unwrap();
        error(&counted, 0) / counted.estimate(0).unwrap()
    };
    // 1 for one row; divided by the root of n for n equal rows.
    near(relative_error(1, [5, 5]), 1.0);
    near(relative_error(4, [5, 5]), 0.5);
    near(relative_error(16, [5, 5]), 0.25);
    // The spread of the rows' rates adds to it: here a fifth, however many rows there are.
    near(
        relative_error(16, [4, 6]),
        (0.0625_f64 + 0.04 * 17.0 / 16.0).sqrt(),
    );
}

fn rows() -> impl Strategy<Value = Vec<CpuRow>> {
    let row = (0_usize..2, [0_u64..1000, 0..1000], 0..300 * MS, 0.0..=1.0).prop_map(
        |(kind, [a, b], enabled, running_ratio)| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of `enabled`"
            )]
            let running = (float(enabled) * running_ratio) as u64;
            // The second counter counts a part of the first.
            row(kind, [a.max(b), b], enabled, running)
        },
    );
    prop::collection::vec(row, 1..12)
}

proptest! {
    /// A constant rate is estimated exactly from any part of the time.
    #[test]
    fn a_constant_rate_is_estimated_exactly(rate in 1_u64..1000, mut all in rows()) {
        for it in &mut all {
            *it = row(it.kind.unwrap(), [rate, rate / 2], it.row.enabled, it.row.running);
        }
        let sum = sum(&all);
        if let Some(estimate) = sum.estimate(0) {
            let expected = float(rate) * float(sum.enabled);
            prop_assert!((estimate - expected).abs() <= 1e-9 * expected, "{estimate} {expected}");
        }
    }

    /// An estimate includes the raw count, a sum is the sum of its parts, and a part stays below
    /// its whole.
    #[test]
    fn a_sum_is_the_sum_of_its_parts(all in rows()) {
        let sum = sum(&all);
        let parts = estimate(&all);
        let known: f64 = parts.iter().map(|part| part.known_count(0)).sum();
        if let (Some(whole), Some(part)) = (sum.estimate(0), sum.estimate(1)) {
            prop_assert!((known - whole).abs() <= 1e-9 * whole);
            prop_assert!(whole >= float(sum.counts[0]));
            prop_assert!(part <= whole * (1.0 + 1e-9));
        }
        prop_assert_eq!(sum.enabled, all.iter().map(|it| it.row.enabled).sum::<u64>());
        prop_assert!(sum.unknown <= sum.enabled - sum.running);
    }

    /// The covariance is positive semidefinite: no combination of counts has a negative variance.
    #[test]
    fn no_variance_is_negative(all in rows(), weights in [-1.0..1.0, -1.0..1.0]) {
        let sum = sum(&all);
        let [x, y] = weights;
        let (a, b) = (sum.covariance(0, 0), sum.covariance(1, 1));
        let variance = x * x * a + 2.0 * x * y * sum.covariance(0, 1) + y * y * b;
        prop_assert!(variance >= -1e-9 * (a + b), "{variance}");
        prop_assert!(sum.covariance(0, 1) == sum.covariance(1, 0));
    }

    /// The ratio of two counts of one row does not depend on its running time.
    #[test]
    fn the_ratio_of_two_counts_of_one_row_has_no_error(
        rates in [1_u64..1000, 1..1000],
        enabled in 2 * MS..300 * MS,
        part in 2_u64..9,
    ) {
        let sum = sum(&[row(0, rates, enabled, (enabled / part).max(MS))]);
        let [a, b] = [0, 1].map(|at| error(&sum, at) / sum.estimate(at).unwrap());
        prop_assert!((a - b).abs() < 1e-9, "{a} {b}");
        let correlated = sum.covariance(0, 1) / sum.estimate(0).unwrap() / sum.estimate(1).unwrap();
        prop_assert!((correlated - a * b).abs() < 1e-9);
    }
}

/// A generator of the same numbers in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Uniform between 0 and 1 (`SplitMix64`).
    pub(crate) fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        float((z ^ (z >> 31)) >> 11) / float(1 << 53)
    }

    /// Normal, mean 0 and standard deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let length = (-2.0 * (1.0 - self.even()).ln()).sqrt();
        length * (std::f64::consts::TAU * self.even()).cos()
    }

    /// Log-normal with mean 1,000; `spread` is the standard deviation relative to the mean.
    pub(crate) fn rate(&mut self, spread: f64) -> f64 {
        let sigma = (1.0 + spread * spread).ln();
        1000.0 * (sigma.sqrt() * self.normal() - sigma / 2.0).exp()
    }
}

/// How often the estimate lies within 1.96 stated errors of the true count, for an owner with
/// `measured` rows that always ran and `missing` rows that never ran. Rates differ between CPUs by
/// `spread`.
fn coverage(measured: usize, missing: usize, spread: f64) -> f64 {
    const RUNS: u16 = 1000;
    let mut random = Random(1);
    let mut covered = 0_u16;
    for _ in 0..RUNS {
        let mut expected = 0.0;
        let mut rows = Vec::new();
        for at in 0..measured + missing {
            let rate = random.rate(spread);
            let enabled = 10.0 + 90.0 * random.even();
            expected += rate * enabled;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole numbers of a test"
            )]
            let [rate, enabled] = [rate, enabled].map(|it| (it * 1000.0) as u64);
            let running = if at < measured { enabled } else { 0 };
            rows.push(row(0, [rate, 0], enabled * 1000, running * 1000));
        }
        let sum = sum(&rows);
        let (Some(value), error) = (sum.estimate(0), error(&sum, 0)) else {
            continue;
        };
        covered += u16::from((value - expected * 1e9).abs() <= 1.96 * error + 1e-3 * value);
    }
    f64::from(covered) / f64::from(RUNS)
}

/// The figures of docs/how-it-works/accuracy.md.
#[test]
fn the_true_count_lies_within_the_stated_error() {
    println!("| rows running | rows not running | spread 0.1 | 0.3 | 0.5 | 1 |");
    for measured in [1, 2, 4, 16] {
        for missing in [1, 4] {
            let covered = [0.1, 0.3, 0.5, 1.0].map(|spread| coverage(measured, missing, spread));
            let percent = covered.map(|covered| format!("{:.1} %", covered * 100.0));
            println!("| {measured} | {missing} | {} |", percent.join(" | "));
            assert!(
                covered[..3].iter().all(|covered| *covered > 0.93),
                "{covered:?}"
            );
            assert!(covered[3] > 0.8, "{covered:?}");
        }
    }
}
