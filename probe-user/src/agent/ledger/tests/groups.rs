//! Counts and times of groups whose events change from session to session.

use super::*;

/// A report of a container, by event: its name, its group, and its count and time since the session
/// began.
fn report_by_group(events: &[(&str, u32, u64, u64)]) -> Report {
    let mut report = Report::for_agent();
    let subject = report.subject(Subject::Entity(container(1)));
    for (name, group, raw, time) in events {
        let metric = report.add_metric(MetricInfo {
            name: (*name).to_owned(),
            help: String::new(),
            unit: String::new(),
            kind: MetricKind::Counter,
            counting: CounterSource::Event(1.0),
        });
        let attributes = report.add_attributes(Attributes {
            group: Some(*group),
            ..Attributes::default()
        });
        let total = CounterValue {
            start: Duration::ZERO,
            raw: *raw,
            estimate: Estimate::exact(*raw as f64),
            time: Some(RunningTime {
                enabled: *time,
                running: *time,
            }),
        };
        let value = Ok(Value::Counter(total));
        report.push([subject, metric, attributes], value, Some(total));
    }
    report
}

/// By event: its group, raw count, time and estimate.
fn exported(report: &Report) -> Vec<(&str, u32, u64, u64, f64)> {
    let series = report.series.iter().map(|series| {
        let total = report.total(series).unwrap();
        (
            report.metric(series).name.as_str(),
            report.attributes(series).group.unwrap(),
            total.raw,
            total.time.unwrap().enabled,
            total.estimate.value,
        )
    });
    series.collect()
}

fn groups(groups: &[&[&str]]) -> Vec<Vec<String>> {
    let list = |group: &&[&str]| group.iter().map(|it| (*it).to_owned()).collect();
    groups.iter().map(list).collect()
}

/// A counter has no total while its count is unknown (such as 0 faults in slices divided by time).
/// Exports take the time of a group from its first counter that has a total.
#[test]
fn the_time_of_a_group_goes_on_if_one_of_its_counts_was_unknown() {
    let mut ledger = Ledger::default();
    let unfolded = Folded::default();
    let events = || groups(&[&["faults", "clock"]]);
    ledger.begin_session(events(), false);
    ledger.apply_totals(&mut report_by_group(&[("clock", 0, 100, 1_000)]), &unfolded);
    ledger.begin_session(events(), false);
    let mut second = report_by_group(&[("faults", 0, 2, 300), ("clock", 0, 30, 300)]);
    ledger.apply_totals(&mut second, &unfolded);
    let expected = [
        ("faults", 0, 2, 1_300, 2.0),
        ("clock", 0, 130, 1_300, 130.0),
    ];
    assert_eq!(exported(&second), expected);
}

/// The `_enabled_seconds_total` of a group applies to each of its events.
#[test]
fn a_group_whose_events_change_gets_new_counts_and_times() {
    let mut ledger = Ledger::default();
    let unfolded = Folded::default();
    ledger.begin_session(groups(&[&["clock", "faults"]]), false);
    let mut first = report_by_group(&[("clock", 0, 100, 1_000), ("faults", 0, 7, 1_000)]);
    ledger.apply_totals(&mut first, &unfolded);
    let both = [
        ("clock", 0, 100, 1_000, 100.0),
        ("faults", 0, 7, 1_000, 7.0),
    ];
    assert_eq!(exported(&first), both);

    // Other events at the same index of the plan are another group. Estimates continue.
    ledger.begin_session(groups(&[&["clock", "minor"], &["faults"]]), false);
    let mut second = report_by_group(&[
        ("clock", 0, 30, 300),
        ("minor", 0, 5, 300),
        ("faults", 1, 2, 300),
    ]);
    ledger.apply_totals(&mut second, &unfolded);
    let changed = [
        ("clock", 1, 30, 300, 130.0),
        ("minor", 1, 5, 300, 5.0),
        ("faults", 2, 2, 300, 9.0),
    ];
    assert_eq!(exported(&second), changed);

    // The first group again, at another index: it continues.
    ledger.begin_session(groups(&[&["cycles"], &["clock", "faults"]]), false);
    let mut third = report_by_group(&[
        ("cycles", 0, 1, 10),
        ("clock", 1, 10, 10),
        ("faults", 1, 1, 10),
    ]);
    ledger.apply_totals(&mut third, &unfolded);
    let back = [
        ("cycles", 3, 1, 10, 1.0),
        ("clock", 0, 110, 1_010, 140.0),
        ("faults", 0, 8, 1_010, 10.0),
    ];
    assert_eq!(exported(&third), back);
}

#[test]
fn groups_with_the_same_events_have_different_numbers() {
    let mut ledger = Ledger::default();
    for _ in 0..2 {
        ledger.begin_session(groups(&[&["a"], &["a"], &["b"]]), false);
        assert_eq!(ledger.group_numbers, [0, 1, 2]);
    }
}

/// In a session that continues totals, an event that the last session did not count begins at 0.
#[test]
fn an_event_skipped_for_a_session_is_then_counted_from_zero() {
    let mut ledger = Ledger::default();
    let unfolded = Folded::default();
    let with_cycles = [("clock", 0, 10, 10), ("cycles", 1, 100, 10)];
    ledger.begin_session(groups(&[&["clock"], &["cycles"]]), false);
    ledger.apply_totals(&mut report_by_group(&with_cycles), &unfolded);
    ledger.begin_session(groups(&[&["clock"]]), true);
    ledger.apply_totals(&mut report_by_group(&[("clock", 0, 20, 20)]), &unfolded);
    ledger.begin_session(groups(&[&["clock"], &["cycles"]]), true);
    let mut back = report_by_group(&[("clock", 0, 30, 30), ("cycles", 1, 150, 15)]);
    ledger.apply_totals(&mut back, &unfolded);
    let expected = [("clock", 0, 30, 30, 30.0), ("cycles", 1, 250, 25, 250.0)];
    assert_eq!(exported(&back), expected);
}
