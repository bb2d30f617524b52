//! Names of events that are requested more than once. Each series has a unique name, so that no
//! output has two series of the same name.

use super::*;

fn names(report: &Report) -> Vec<&str> {
    let events = report.metrics.iter().filter(|metric| metric.is_event());
    events.map(|event| event.name.as_str()).collect()
}

/// As with `-e {a,b},{a,d}` if no group holds all events, and `-e a,a`.
#[test]
fn an_event_has_one_series_in_each_group() {
    let mut plan = plan(2, 0);
    plan.columns[2].name = "e00".to_owned();
    plan.columns.push(plan.columns[0].clone());
    let rows = [
        (key(7, 0, 0), usage([5, 6], MS, MS)),
        (key(7, 0, 1), usage([7, 8], MS, MS)),
    ];
    let report = report(&plan, rows);
    assert_eq!(names(&report), ["e00", "e01", "e00 group 1", "e11"]);
    let counts = counts(&report, &cgroup(7));
    let raw: Vec<u64> = counts
        .iter()
        .map(|count| count.as_ref().unwrap().raw)
        .collect();
    assert_eq!(raw, [5, 6, 7, 8]);
}

/// As with `pmu/term=1,name=a/` and `pmu/term=2,name=a/` in one group.
#[test]
fn two_events_of_one_name_are_numbered() {
    let mut plan = plan(2, 0);
    for column in &mut plan.columns {
        column.name = "a".to_owned();
    }
    let report = report(&plan, [(key(7, 0, 0), usage([5, 6], MS, MS))]);
    assert_eq!(names(&report), ["a", "a group 0", "a group 1", "a #2"]);
}

/// As with `pmu/cycles/` and `pmu/cycles,name=x/`, which are counted once.
#[test]
fn every_name_of_an_uncore_event_has_its_count() {
    let mut plan = plan(1, 0);
    add_uncore(&mut plan, &[("bytes", None, 64.0), ("x", None, 1.0)]);
    let at = |seconds: u64| {
        let mut snapshot = snapshot([]);
        snapshot.at = Duration::from_secs(seconds);
        snapshot.uncore = vec![UncoreReading {
            count: Some(10 * seconds),
            ..reading(0, 1_000 * seconds, 1_000 * seconds)
        }];
        snapshot
    };
    let window = Window::between(&at(1), &at(2), &plan);
    let view = View::default();
    let joined = view.join(&plan, &window, None);
    let report = Report::new(&plan, &window, &joined, &view);
    for subject in [Subject::Socket(0), Subject::Machine] {
        for (event, expected) in [("bytes", 640.0), ("x", 10.0)] {
            let series = report.find_series(&subject, event).next().unwrap();
            let count = series.counter().unwrap().estimate.value;
            assert_eq!(count, expected, "{subject:?} {event}");
        }
    }
}
