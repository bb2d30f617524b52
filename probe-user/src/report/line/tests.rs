use super::*;
use crate::{derive::Spread, formula::NoValue, report::tests::metric};

fn gauge(value: f64, spread: Spread) -> Value {
    Value::Gauge(Estimate {
        spread,
        ..Estimate::exact(value)
    })
}

/// An owner that lives for four windows of a million takes the memory of four windows, and has no
/// value in any other.
#[test]
fn a_line_takes_memory_for_the_windows_of_its_owner() {
    let mut line = RunLine::new(0, 0, String::new(), 999_990);
    line.push(999_990, Ok(&gauge(1.0, Spread::None)));
    line.push(999_992, Ok(&gauge(3.0, Spread::Sampled(2.0, 5.0))));
    let reason = Reason::NoValue(NoValue::DidNotRun);
    line.push(999_993, Err(&reason));
    assert_eq!((line.values.len(), line.windows()), (4, 999_990..999_994));
    let values = [0, 999_989, 999_990, 999_991, 999_992, 999_993, 999_994].map(|at| line.value(at));
    assert_eq!(
        values.map(f64::is_nan),
        [true, true, false, true, false, true, true]
    );
    assert_eq!((values[2], values[4]), (1.0, 3.0));
    assert!(line.interval(999_990).0.is_nan());
    assert_eq!(line.interval(999_992), (2.0, 5.0));
    assert!(line.interval(999_993).0.is_nan());
    assert_eq!(line.reason, Some(reason.to_string()));
    let metric = metric("events", "", true);
    let windows: Vec<(f64, f64)> = (0..1_000_000)
        .map(|at| (f64::from(at), f64::from(at) + 0.5))
        .collect();
    let summary = line.summary(&metric, &windows).unwrap();
    assert_eq!(
        (summary.windows, summary.mean, summary.total),
        (2, 4.0, Some(4.0))
    );
}

/// Windows are filled before the first value, between values and after the last one. No value moves
/// to another window.
#[test]
fn only_windows_without_a_value_are_filled() {
    let mut line = RunLine::new(0, 0, String::new(), 3);
    line.push(3, Ok(&gauge(3.0, Spread::Sampled(2.0, 5.0))));
    line.push(5, Ok(&gauge(7.0, Spread::None)));
    line.fill([1, 3, 4, 7].into_iter());
    assert_eq!(line.windows(), 1..8);
    assert_eq!(
        [1, 3, 4, 5, 7].map(|at| line.value(at)),
        [0.0, 3.0, 0.0, 7.0, 0.0]
    );
    assert!([0, 2, 6, 8].iter().all(|at| line.value(*at).is_nan()));
    assert_eq!(line.interval(3), (2.0, 5.0));
    assert!([1, 4, 7].iter().all(|at| line.interval(*at).0.is_nan()));
}

/// Clocks count nanoseconds, and show how many CPUs or threads they counted.
#[test]
fn clocks_are_in_cpus_and_threads() {
    let windows = [(0.0, 2.0), (2.0, 4.0)];
    let mut line = RunLine::new(0, 0, String::new(), 0);
    line.values = vec![3e9, 1e9];
    for (name, unit, shown, mean) in [
        ("task-clock", "ns", "CPU", 1.0),
        ("cpu-wait", "ns", "thread", 1.0),
        ("cpu_wait_behind", "ns", "thread", 1.0),
        ("duration_time", "ns", "s/s", 1.0),
        ("cycles", "", "1/s", 1e9),
        ("l3_bytes", "B", "B/s", 1e9),
    ] {
        let metric = metric(name, unit, true);
        let summary = line.summary(&metric, &windows).unwrap();
        assert_eq!(metric.shown_unit(), shown);
        assert_eq!((summary.mean, summary.total), (mean, Some(4e9)), "{name}");
    }
}

/// A rate over the last 20 ms of a run is no peak, unless the row has no other window.
#[test]
fn a_partial_window_at_the_end_is_no_peak() {
    let windows = [(0.0, 1.0), (1.0, 2.0), (2.0, 2.02)];
    let metric = metric("page-faults", "", true);
    let mut line = RunLine::new(0, 0, String::new(), 0);
    line.values = vec![10.0, 30.0, 20.0];
    let summary = line.summary(&metric, &windows).unwrap();
    assert_eq!((summary.windows, summary.total), (3, Some(60.0)));
    assert_eq!((summary.min, summary.max), (10.0, 30.0));
    let drawn: Vec<f64> = line.drawn(&metric, &windows).map(|(_, it)| it).collect();
    assert_eq!(drawn[..2], [10.0, 30.0]);
    assert!(drawn[2].is_nan());
    let mut late = RunLine::new(0, 0, String::new(), 2);
    late.values = vec![20.0];
    let summary = late.summary(&metric, &windows).unwrap();
    assert!((summary.max - 1000.0).abs() < 1e-6, "{summary:?}");
    // A full window at the end counts.
    let windows = [(0.0, 1.0), (1.0, 2.0), (2.0, 2.9)];
    assert!(line.summary(&metric, &windows).unwrap().max > 20.0);
    assert!(line.drawn(&metric, &windows).all(|(_, it)| it.is_finite()));
}

/// A share that is not validated has a counting error but no interval: the larger part of its error
/// may not be included.
#[test]
fn only_a_validated_error_makes_an_interval() {
    let mut line = RunLine::new(0, 0, String::new(), 0);
    let spreads = [
        Spread::CountingOnly(0.5),
        Spread::Error(0.5),
        Spread::Error(0.0),
        Spread::Sampled(7.0, 10.0),
        Spread::None,
    ];
    for (at, spread) in spreads.into_iter().enumerate() {
        line.push(at, Ok(&gauge(8.0, spread)));
    }
    let known: Vec<Option<(f64, f64)>> = (0..spreads.len())
        .map(|at| Some(line.interval(at)).filter(|(low, _)| !low.is_nan()))
        .collect();
    // 1.96 standard errors of 0.5.
    let by_error = (8.0 - 0.979_982, 8.0 + 0.979_982);
    assert_eq!(known, [None, Some(by_error), None, Some((7.0, 10.0)), None]);
}
