//! What a comparison looks like: golden tables of several widths.

use super::*;
use crate::report::{LineMetric, LineSubject, Run, RunLine, Side, compare, tests::metric};

/// The values of 16 windows around a mean, by a fixed pattern.
fn values(mean: f64) -> Vec<f64> {
    let pattern = [0.1, -0.1, -0.05, 0.05, 0.02, -0.02, -0.08, 0.08];
    let twice = pattern.iter().chain(&pattern);
    twice.map(|part| mean * (1.0 + part)).collect()
}

/// A run with rows of these names, each with the mean of each metric; None without a value.
fn run(file: &str, rows: &[(&str, [Option<f64>; 4])]) -> Run {
    let mut run = Run {
        file: file.to_owned(),
        windows: (0..16)
            .map(|at| (f64::from(at), f64::from(at) + 1.0))
            .collect(),
        metrics: vec![
            metric("cpus_used", "CPU", false),
            metric("page_faults_per_second", "1/s", false),
            metric("cpu_wait_behind", "ns", true),
            metric("cpu_wait_ratio", "1", false),
        ],
        ..Run::default()
    };
    for (at, (label, means)) in rows.iter().enumerate() {
        run.subjects.push(LineSubject {
            part: "row",
            label: (*label).to_owned(),
            labels: [("kind", "container"), ("name", *label)]
                .map(|(key, value)| (key, value.to_owned()))
                .into(),
        });
        for (metric, mean) in means.iter().enumerate() {
            let Some(mean) = mean else { continue };
            let qualifier = if metric == 2 {
                "behind 1ad29009768c"
            } else {
                ""
            };
            let mut line = RunLine::new(at, metric, qualifier.to_owned(), 0);
            line.values = values(*mean);
            run.lines.push(line);
        }
    }
    run
}

fn comparison() -> Comparison {
    let a = run(
        "before.jsonl.gz",
        &[
            (
                "07247f6ab623",
                [Some(0.018), Some(110.0), Some(2.4e6), Some(0.7)],
            ),
            (
                "checkout-x2k4q/istio-proxy",
                [Some(0.5), Some(50_600.0), None, Some(0.1)],
            ),
            ("db-0/postgres", [Some(0.0), Some(0.0), None, Some(0.0)]),
            ("gone", [Some(0.1), None, None, None]),
        ],
    );
    let mut b = run(
        "after.jsonl.gz",
        &[
            (
                "07247f6ab623",
                [Some(0.036), Some(111.0), Some(7.1e6), Some(0.7)],
            ),
            (
                "checkout-x2k4q/istio-proxy",
                [Some(0.5), Some(98_000.0), None, Some(0.02)],
            ),
            ("db-0/postgres", [Some(0.25), Some(0.0), None, Some(0.0)]),
        ],
    );
    // Too few windows of one metric for a verdict.
    for line in b
        .lines
        .iter_mut()
        .filter(|line| line.subject == 2 && line.metric == 3)
    {
        line.values.truncate(5);
    }
    compare([&a, &b], &[Side::default(), Side::default()]).unwrap()
}

#[test]
fn a_table_fits_the_width_of_the_screen() {
    for (width, all) in [(80, false), (120, false), (120, true)] {
        let shown = ShownDifferences {
            width: Some(width),
            all,
        };
        let text = table(&comparison(), shown);
        assert!(
            text.lines().all(|line| crate::emit::width(line) <= width),
            "{text}"
        );
        let name = format!("{width}{}", if all { "-all" } else { "" });
        insta::assert_snapshot!(name, text);
    }
}

/// `diff` shows what `stat` shows by default. Every value stays in JSON.
#[test]
fn counts_replaced_by_rates_are_shown_on_request() {
    let with_means = |file, ipc, cycles| {
        let mut run = run(file, &[("web", [Some(ipc), Some(cycles), None, None])]);
        run.metrics[0].name = "ipc".to_owned();
        run.metrics[1] = LineMetric {
            replaced_by_rates: true,
            ..metric("cycles", "", true)
        };
        // Reversed: otherwise `cycles` would be left out as a counter whose rate is `ipc`.
        run.lines[1].values.reverse();
        run
    };
    let (a, b) = (
        with_means("a.jsonl.gz", 1.0, 1e9),
        with_means("b.jsonl.gz", 2.0, 2e9),
    );
    let comparison = compare([&a, &b], &Default::default()).unwrap();
    let shown = |all| table(&comparison, ShownDifferences { width: None, all });
    assert!(shown(true).contains("cycles"), "{}", shown(true));
    insta::assert_snapshot!(shown(false));
    let values = json(&comparison);
    assert_eq!(values["values"].as_array().unwrap().len(), 2);
}

#[test]
fn without_a_difference_it_says_so() {
    let with_mean = |file, mean| run(file, &[("web", [Some(mean), Some(10.0), None, None])]);
    let (a, b) = (with_mean("a.jsonl.gz", 1.0), with_mean("b.jsonl.gz", 1.05));
    let comparison = compare([&a, &b], &Default::default()).unwrap();
    insta::assert_snapshot!(table(&comparison, ShownDifferences::default()));
}

/// A series that one side lacks is named, though both sides have its row and its metric.
#[test]
fn a_series_of_one_side_is_named() {
    let both = [Some(1.0), Some(10.0), Some(2.4e6), None];
    let a = run("a.jsonl.gz", &[("web", both), ("db", both)]);
    let mut b = run(
        "b.jsonl.gz",
        &[
            ("web", [Some(1.0), None, Some(2.4e6), Some(0.5)]),
            ("db", [None, Some(10.0), Some(2.4e6), None]),
        ],
    );
    for line in b.lines.iter_mut().filter(|line| !line.qualifier.is_empty()) {
        line.qualifier = "behind api".to_owned();
    }
    let comparison = compare([&a, &b], &Default::default()).unwrap();
    insta::assert_snapshot!(table(&comparison, ShownDifferences::default()));
    let alone = &json(&comparison)["a"]["series_alone"];
    let first = json!({ "label": "web", "metric": "page_faults_per_second", "of": "" });
    assert_eq!((alone.as_array().unwrap().len(), &alone[0]), (4, &first));
}

/// A counter is no series of one side if the other side shows it as its rate.
#[test]
fn a_counter_left_out_for_its_rate_is_on_both_sides() {
    let with_values = |values: [f64; 16]| {
        let mut run = run("a.jsonl.gz", &[("web", [Some(1.0), Some(1.0), None, None])]);
        run.metrics[0] = metric("task-clock", "ns", true);
        run.metrics[1] = metric("cpus_used", "CPU", false);
        run.lines[0].values = values.map(|value| 1e9 * value).into();
        run.lines[1].values = values.into();
        run
    };
    let constant = with_values([1.0; 16]);
    let mut changing = [1.0; 16];
    changing[3] = 2.0;
    let changing = with_values(changing);
    let comparison = compare([&constant, &changing], &Default::default()).unwrap();
    for side in comparison.sides {
        assert_eq!((side.metrics_alone, side.series_alone), (vec![], vec![]));
    }
}
