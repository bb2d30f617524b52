//! Studies with known values.

use std::time::Duration;

use super::*;

const M: Size = Size(1 << 20);

fn trial(seconds: f64, samples: u64) -> Trial {
    Trial {
        time: Duration::from_secs_f64(seconds),
        counts: RecordCounts {
            samples,
            ..RecordCounts::default()
        },
    }
}

/// A command with 100 million accesses in 10 s ± 0.01. Each point is a period, a buffer size, and
/// the seconds and samples of both of its runs.
fn study(points: &[(u64, Size, f64, u64)]) -> Study {
    Study {
        jitter: 0.0,
        baselines: vec![Baseline {
            threads: None,
            times: vec![9.99, 10.01],
            accesses: vec![99e6, 101e6],
            counted_times: vec![10.1, 10.1],
        }],
        points: points
            .iter()
            .map(|&(period, aux, seconds, samples)| TestedPoint {
                point: Point {
                    period,
                    aux,
                    threads: None,
                },
                trials: vec![trial(seconds, samples); 2],
            })
            .collect(),
    }
}

#[test]
fn accuracy_follows_the_formula_of_the_paper() {
    assert!((accuracy(1e6, 976, 1024.0) - 0.999_424).abs() < 1e-9);
    // A sample too many is as wrong as one too few.
    assert!((accuracy(1000.0, 9, 100.0) - 0.9).abs() < 1e-9);
    assert!((accuracy(1000.0, 11, 100.0) - 0.9).abs() < 1e-9);
    assert!((accuracy(1000.0, 0, 100.0)).abs() < 1e-9);
    assert!(accuracy(1000.0, 30, 100.0) < 0.0);
}

#[test]
fn invalid_samples_are_shown_and_no_part_of_the_accuracy() {
    let mut study = study(&[(8192, M, 10.0, 13_207)]);
    let without = study.accuracy(&study.points[0]);
    study.points[0].trials[0].counts.invalid = 1000;
    study.points[0].trials[1].counts.invalid = 1001;
    let accuracy = study.accuracy(&study.points[0]);
    assert!((without.mean - 0.918).abs() < 1e-3, "{without:?}");
    assert!((accuracy.mean - 1.0).abs() < 1e-3, "{accuracy:?}");
    let table = study.table();
    assert!(table.contains(" 1000.5 "), "{table}");
    assert!(table.contains("no part of the accuracy"), "{table}");
}

/// If jitter adds to each interval, a sample stands for more than the period.
#[test]
fn jitter_is_part_of_the_mean_period() {
    // 100 million operations in intervals of 4,096 + 127.5 on average.
    let mut study = study(&[(4096, M, 10.0, 23_677)]);
    let without = study.accuracy(&study.points[0]);
    study.jitter = 127.5;
    let with = study.accuracy(&study.points[0]);
    assert!((without.mean - 0.97).abs() < 1e-3, "{without:?}");
    assert!((with.mean - 1.0).abs() < 1e-4, "{with:?}");
}

#[test]
fn the_deviation_is_divided_by_n_minus_1() {
    let Mean { mean, deviation } = mean_of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
    assert!((mean - 5.0).abs() < 1e-12);
    // The squared distances from the mean sum up to 32.
    assert!((deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    let single = mean_of(&[3.0]);
    assert!((single.mean, single.deviation) == (3.0, 0.0));
}

#[test]
fn the_study_varies_one_thing_at_a_time() {
    let all = points(&[1, 2, 3], &[Size(10), M], &[1, 8]);
    let settings: Vec<_> = all
        .iter()
        .map(|p| (p.period, p.aux.0, p.threads.unwrap()))
        .collect();
    assert_eq!(
        settings,
        [
            (1, 1 << 20, 8),
            (2, 1 << 20, 8),
            (3, 1 << 20, 8),
            (2, 10, 8),
            (2, 1 << 20, 1)
        ]
    );
    let study = Study::new(all);
    let baselines: Vec<_> = study
        .baselines
        .iter()
        .map(|baseline| baseline.threads)
        .collect();
    assert_eq!(baselines, [Some(8), Some(1)]);
    assert_eq!(points(&[5], &[M], &[]).len(), 1);
}

#[test]
fn the_smallest_good_and_cheap_period_is_recommended() {
    let study = study(&[
        // Collides.
        (1024, M, 10.0, 60_000),
        // Good, but expensive.
        (4096, M, 10.5, 24_300),
        // Good and cheap.
        (8192, M, 10.05, 12_180),
        (8192, Size(4 << 20), 10.05, 12_200),
        (16384, M, 10.0, 6_100),
    ]);
    let (_, text) = study.recommendation();
    assert!(
        text.starts_with(
            "recommended: --period 8192 --aux 1M: accuracy 99.78% ± 0.00, overhead 0.50% ± 0.00"
        ),
        "{text}"
    );
    assert!(!text.contains("beware"), "{text}");
}

#[test]
fn the_cheapest_is_taken_and_reported_if_all_are_expensive() {
    let study = study(&[(4096, M, 12.0, 20_000), (8192, M, 11.0, 10_000)]);
    let (_, text) = study.recommendation();
    assert!(text.starts_with("recommended: --period 8192"), "{text}");
    assert!(text.contains("costs least"), "{text}");
    assert!(text.contains("beware"), "{text}");
}

#[test]
fn the_table_has_a_row_for_each_point() {
    let table = study(&[(4096, M, 10.5, 24_300), (8192, M, 10.05, 12_180)]).table();
    assert!(
        table.contains("mem_access 100000000 ± 1414214 (counting it costs +1.00%)"),
        "{table}"
    );
    assert!(table.contains("99.53% ± 0.00"), "{table}");
    assert!(table.contains("5.00% ± 0.00"), "{table}");
}

#[test]
fn the_json_has_the_numbers_of_the_table() {
    let study = study(&[
        (1024, M, 10.0, 60_000),
        (8192, M, 10.05, 12_180),
        (16384, M, 10.0, 6_100),
    ]);
    let about = BTreeMap::from([("host".to_owned(), "node7".to_owned())]);
    let calibrated = study.calibrated("neoverse-v2".to_owned(), about);
    assert_eq!(calibrated.runs, 2);
    assert_eq!(calibrated.recommended, 1);
    assert!(calibrated.recommendation.contains("--period 8192"));
    let setting = &calibrated.settings[1];
    assert_eq!(setting.accuracy, study.accuracy(&study.points[1]));
    assert_eq!(setting.overhead, study.overhead(&study.points[1]));
    let bits = |value: f64| value.to_bits();
    assert_eq!(bits(setting.samples.mean), bits(12_180.0));
    assert_eq!(bits(calibrated.unsampled[0].mem_access.mean), bits(1e8));
    let text = serde_json::to_string(&calibrated).unwrap();
    assert_eq!(
        serde_json::from_str::<Calibrated>(&text).unwrap(),
        calibrated
    );
}
