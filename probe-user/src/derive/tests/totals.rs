//! Totals since the session began.

use super::*;

/// The reports of all windows over these snapshots.
fn reports(plan: &Plan, snapshots: &[crate::snapshot::Snapshot]) -> Vec<Report> {
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let mut last: Option<(Window, Joined)> = None;
    let mut renewed = Report::default();
    let report = |pair: &[crate::snapshot::Snapshot]| {
        let (earlier, later) = (&pair[0], &pair[1]);
        let window = match &last {
            Some((before, _)) => before.next(earlier, later, plan),
            None => Window::between(earlier, later, plan),
        };
        let joined = view.join(plan, &window, last.as_ref().map(|(_, joined)| joined));
        let report = Report::new(plan, &window, &joined, &view);
        // Nothing of the reused report remains.
        renewed.renew(plan, &window, &joined, &view);
        assert_eq!(format!("{renewed:?}"), format!("{report:?}"));
        last = Some((window, joined));
        report
    };
    snapshots.windows(2).map(report).collect()
}

/// The total of an event of a subject.
fn total_of(report: &Report, subject: &Subject, event: &str) -> Option<CounterValue> {
    let series = report.find_series(subject, event).next()?;
    report.total(series).copied()
}

/// A total is the sum of all windows, whatever their scaling, and ends with its row.
#[test]
fn totals_continue_from_window_to_window() {
    let plan = plan(1, 0);
    let at = |second, rows: &[(u64, [u64; 2], u64, u64)]| {
        let rows = rows.iter().map(|(id, counts, enabled, running)| {
            (key(*id, 0, 0), usage(*counts, *enabled, *running))
        });
        let mut snapshot = snapshot(rows);
        snapshot.at = Duration::from_secs(second);
        snapshot
    };
    let second = 1000 * MS;
    let snapshots = [
        at(1, &[]),
        // Running for half of the time: 200 are estimated.
        at(
            2,
            &[
                (7, [100, 10], second, second / 2),
                (8, [5, 5], second, second),
            ],
        ),
        // 50 more, counted for the whole time.
        at(
            3,
            &[
                (7, [150, 10], 2 * second, 3 * second / 2),
                (8, [5, 5], second, second),
            ],
        ),
        at(4, &[(7, [150, 10], 2 * second, 3 * second / 2)]),
    ];
    let shown: Vec<_> = reports(&plan, &snapshots)
        .iter()
        .map(|report| {
            let total = |subject| total_of(report, &subject, "e00");
            let estimate = |subject| total(subject).map(|total| total.estimate.value);
            let elapsed = report.elapsed().as_secs();
            let machine = estimate(Subject::Machine);
            (elapsed, estimate(cgroup(7)), estimate(cgroup(8)), machine)
        })
        .collect();
    assert_eq!(
        shown,
        [
            (1, Some(200.0), Some(5.0), Some(205.0)),
            // A window without the row loses nothing.
            (2, Some(250.0), Some(5.0), Some(255.0)),
            (3, Some(250.0), None, Some(255.0)),
        ]
    );
}

/// A total has the raw count and the enabled and running time since the first window. A reader that
/// scales the raw count by these times gets the estimate.
#[test]
fn a_total_has_its_counts_its_times_and_its_start() {
    let plan = plan(1, 0);
    let second = 1000 * MS;
    let at = |seconds, rows: &[(u64, u64)]| {
        let rows = rows.iter().map(|(id, windows)| {
            let row = usage([100 * windows, 0], windows * second, windows * second / 2);
            (key(*id, 0, 0), row)
        });
        let mut snapshot = snapshot(rows);
        snapshot.at = Duration::from_secs(seconds);
        // The wall clock was set between the windows.
        snapshot.boot_time = Duration::from_secs(1_000 * seconds);
        snapshot
    };
    let snapshots = [
        at(10, &[]),
        at(11, &[(7, 1)]),
        at(12, &[(7, 2), (8, 1)]),
        // Owner 8 ended and returned.
        at(13, &[(7, 3)]),
        at(14, &[(7, 3), (8, 2)]),
    ];
    let reports = reports(&plan, &snapshots);
    let last = &reports[3];
    assert_eq!(
        (last.began.as_secs(), last.boot_time.as_secs()),
        (10, 10_000)
    );
    let seven = total_of(last, &cgroup(7), "e00").unwrap();
    let time = RunningTime {
        enabled: 3 * second,
        running: 3 * second / 2,
    };
    assert_eq!((seven.start.as_secs(), seven.raw), (10, 300));
    assert_eq!(seven.time, Some(time));
    assert_eq!(
        (seven.estimate.value, seven.estimate.running_ratio),
        (600.0, 0.5)
    );
    // By hand: there is one CPU, so in each window the whole unobserved part may be wrong.
    let error = (3.0_f64 * 100.0 * 100.0).sqrt();
    assert!(
        (seven.estimate.error().unwrap() - error).abs() < 1e-9,
        "{seven:?}"
    );
    let start = |at: usize| total_of(&reports[at], &cgroup(8), "e00").map(|it| it.start.as_secs());
    assert_eq!([0, 1, 2, 3].map(start), [None, Some(11), None, Some(13)]);
    // The window has its own start.
    let seven = cgroup(7);
    let series = reports[2].find_series(&seven, "e00").next().unwrap();
    let window = series.counter().unwrap();
    assert_eq!((window.start.as_secs(), window.raw), (12, 100));
}

/// Counters of one group share their time; each event names its group.
#[test]
fn events_have_the_number_of_their_group() {
    let rows = [(key(7, 0, 0), usage([5, 5], MS, MS))];
    let report = report(&plan(2, 0), rows);
    let group = |event| {
        let series = report.find_series(&Subject::Machine, event).next().unwrap();
        report.attributes(series).group
    };
    let groups = ["e00", "e01", "e10", "e11"].map(group);
    assert_eq!(groups, [Some(0), Some(0), Some(1), Some(1)]);
}

/// A multiplexed uncore event on two sockets. One of them could not be read in the second window.
#[test]
fn uncore_totals_are_the_sums_of_what_could_be_read() {
    let mut plan = plan(1, 0);
    add_uncore(&mut plan, &[("bytes", Some("B"), 64.0)]);
    let at = |seconds: u64, counts: [Option<u64>; 2]| {
        let mut snapshot = snapshot([]);
        snapshot.at = Duration::from_secs(seconds);
        let readings = (0..).zip(counts).map(|(socket, count)| UncoreReading {
            socket,
            count,
            ..reading(0, 1_000 * seconds, 500 * seconds)
        });
        snapshot.uncore = readings.collect();
        snapshot
    };
    let snapshots = [
        at(1, [Some(0), Some(0)]),
        at(2, [Some(10), Some(4)]),
        at(3, [Some(15), None]),
        at(4, [Some(15), None]),
    ];
    let reports = reports(&plan, &snapshots);
    let total_parts = |report: &Report, subject: Subject| {
        let total = total_of(report, &subject, "bytes").unwrap();
        let time = total.time.unwrap();
        (total.raw, total.estimate.value, time.enabled, time.running)
    };
    let last = &reports[2];
    assert_eq!(
        total_parts(last, Subject::Socket(0)),
        (15, 30.0 * 64.0, 3_000, 1_500)
    );
    assert_eq!(
        total_parts(last, Subject::Socket(1)),
        (4, 8.0 * 64.0, 1_000, 500)
    );
    assert_eq!(
        total_parts(last, Subject::Machine),
        (19, 38.0 * 64.0, 4_000, 2_000)
    );
    let series = last.find_series(&Subject::Machine, "bytes").next().unwrap();
    assert_eq!(series.estimate(), None, "a part is not the whole");
    // Groups of uncore events come after those of cores.
    assert_eq!(last.attributes(series).group, Some(1));
}
