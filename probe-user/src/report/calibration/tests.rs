use super::{
    super::{LineMetric, LineSubject, tests::metric},
    *,
};

fn subject(part: &'static str, label: &str) -> LineSubject {
    LineSubject {
        part,
        label: label.to_owned(),
        labels: [("name", label.to_owned())].into(),
    }
}

fn line(
    (subject, metric): (usize, usize),
    qualifier: &str,
    values: &[f64],
    intervals: &[(f64, f64)],
) -> RunLine {
    RunLine {
        subject,
        metric,
        qualifier: qualifier.to_owned(),
        first: 0,
        values: values.to_vec(),
        intervals: intervals.to_vec(),
        reason: None,
    }
}

fn run(metrics: Vec<LineMetric>, lines: Vec<RunLine>) -> Run {
    Run {
        windows: vec![(0.0, 1.0), (1.0, 3.0), (3.0, 4.0)],
        subjects: vec![subject("row", "web"), subject("place", "socket 0")],
        metrics,
        lines,
        ..Run::default()
    }
}

/// The estimates of loads and stores are summed. Windows without a count or an estimate are left
/// out. Lines by data source are left out too: the lines by operation include them.
#[test]
fn estimates_of_loads_and_stores_are_summed() {
    let metrics = vec![
        metric("memory_accesses", "", true),
        metric("mem_access", "", true),
    ];
    let none = f64::NAN;
    let all = run(
        metrics,
        vec![
            line((0, 1), "", &[100.0, 200.0, none], &[]),
            line(
                (0, 0),
                "load",
                &[60.0, 160.0, 50.0],
                &[(57.0, 63.0), (156.0, 164.0), (45.0, 55.0)],
            ),
            line((0, 0), "load dram", &[60.0, 160.0, 50.0], &[]),
            line((0, 0), "branch", &[60.0, 160.0, 50.0], &[]),
            line(
                (0, 0),
                "store",
                &[none, 84.0],
                &[(none, none), (72.0, 96.0)],
            ),
        ],
    );
    let [calibration] = &Calibration::all(&all)[..] else {
        panic!("one pair");
    };
    let [point] = &calibration.points[..] else {
        panic!("one row");
    };
    assert_eq!(
        (point.windows, point.count, point.estimate),
        (2, 300.0, 304.0)
    );
    // The squares of the half widths 3, 4 and 12 add up to that of 13.
    assert_eq!(point.interval, Some((291.0, 317.0)));
    let json = calibration.json(&all);
    assert_eq!(json["points"][0]["ratio"], 304.0 / 300.0);
    assert_eq!(
        (&json["estimate"], &json["count"]),
        (&"memory_accesses".into(), &"mem_access".into())
    );
}

/// A window without an interval leaves the sum without one, unless nothing ran in it.
#[test]
fn a_window_without_an_interval_leaves_the_sum_without_one() {
    let metrics = vec![
        metric("cycles", "", true),
        metric("sampled_cycles", "", true),
    ];
    let (none, known) = ((f64::NAN, f64::NAN), (90.0, 110.0));
    let with = |intervals: &[(f64, f64)]| {
        let all = run(
            metrics.clone(),
            vec![
                line((0, 0), "", &[105.0, 0.0], &[]),
                line((0, 1), "", &[100.0, 0.0], intervals),
            ],
        );
        Calibration::all(&all)[0].points[0].clone()
    };
    assert_eq!(with(&[known]).interval, Some((90.0, 110.0)));
    assert_eq!(with(&[none]).interval, None);
    assert_eq!(with(&[known]).count, 105.0);
}

/// An access of the first window is a whole cache line of 64 bytes, and one of the second is half a
/// line, so that the estimate there is twice the traffic. The third window has no value.
#[test]
fn accesses_are_compared_with_the_traffic_of_their_socket() {
    let metrics = vec![
        metric("cmem_read_bandwidth", "GB/s", false),
        metric("cmem_read_bandwidth_bytes_per_access", "B/access", false),
    ];
    let lines = vec![
        line((1, 0), "", &[10.0, 40.0, 7.0], &[]),
        line((1, 1), "by llc_read_misses", &[64.0, 32.0, f64::NAN], &[]),
    ];
    let all = run(metrics, lines);
    let [calibration] = &Calibration::all(&all)[..] else {
        panic!("one pair");
    };
    let point = &calibration.points[0];
    assert_eq!(
        (point.windows, point.count, point.estimate),
        (2, 30.0, (10.0 + 160.0) / 3.0)
    );
    assert_eq!((calibration.unit.as_str(), point.interval), ("GB/s", None));
}

#[test]
fn an_estimate_without_its_count_is_left_out() {
    let metrics = vec![
        metric("cycles", "", true),
        metric("sampled_instructions", "", true),
    ];
    let lines = vec![line((0, 0), "", &[1.0], &[]), line((0, 1), "", &[1.0], &[])];
    assert_eq!(Calibration::all(&run(metrics, lines)), []);
}
