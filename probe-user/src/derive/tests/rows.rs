//! Rows and their order, sockets, and the machine.

use std::collections::BTreeMap;

use probe_common::spe::Class;

use super::*;
use crate::{
    snapshot::{SampleCounts, UncoreReading},
    window::{MemLevel, Owner, SampleKind, Sum as _, sampled_window},
};

/// A plan with an uncore event in units of half a MiB, a hidden event that only metrics need, and
/// the clock.
fn with_uncore() -> Plan {
    let mut plan = plan(1, 0);
    let uncore = |at| CountSource::Uncore { at };
    for (name, unit, scale, place, shown) in [
        ("bytes", Some("MiB"), 0.5, uncore(0), true),
        ("hidden", None, 1.0, uncore(1), false),
        ("duration_time", None, 1.0, CountSource::Duration, true),
    ] {
        plan.columns.push(EventColumn {
            name: name.to_owned(),
            unit: unit.map(str::to_owned),
            scale,
            place,
            clock: false,
            shown,
        });
    }
    plan
}

/// The report of the second of two windows. A reading has an event, socket, instance, count and
/// percent of the time that the counter ran.
fn socket_report(readings: &[(usize, u32, u16, Option<u64>, u64)]) -> Report {
    let at = |seconds, part: u64| {
        let mut snapshot = snapshot([(key(7, 0, 0), usage([5 * part, 0], 9 * part, 9 * part))]);
        snapshot.at = Duration::from_secs(seconds);
        let readings = readings.iter();
        let reading =
            |(at, socket, instance, count, running): &(usize, u32, u16, Option<u64>, u64)| {
                UncoreReading {
                    at: *at,
                    socket: *socket,
                    instance: *instance,
                    count: count.map(|count| count * part),
                    skew: 0,
                    enabled: 100 * part,
                    running: running * part,
                }
            };
        snapshot.uncore = readings.map(reading).collect();
        snapshot
    };
    let (plan, view) = (with_uncore(), View::default());
    let [first, second, third] = [at(10, 0), at(11, 1), at(13, 2)];
    let before = Window::between(&first, &second, &plan);
    let window = before.next(&second, &third, &plan);
    let before = view.join(&plan, &before, None);
    let joined = view.join(&plan, &window, Some(&before));
    Report::new(&plan, &window, &joined, &view)
}

#[test]
fn instances_are_summed_by_socket_and_for_the_machine() {
    let report = socket_report(&[
        (0, 0, 0, Some(40), 100),
        (0, 0, 1, Some(8), 50),
        (1, 0, 0, Some(1), 100),
        (0, 1, 0, Some(6), 100),
    ]);
    let count = |subject: Subject| {
        let series = report.find_series(&subject, "bytes").next().unwrap();
        let CounterValue { raw, estimate, .. } = *series.counter().unwrap();
        let total = report.total(series).map(|total| total.estimate.value);
        (
            raw,
            estimate.value,
            estimate.running_ratio,
            estimate.error(),
            total,
        )
    };
    // A count of 8 in half of the time is estimated as 16, with an error of 8.
    assert_eq!(
        count(Subject::Socket(0)),
        (48, 28.0, 0.5, Some(4.0), Some(56.0))
    );
    assert_eq!(
        count(Subject::Socket(1)),
        (6, 3.0, 1.0, Some(0.0), Some(6.0))
    );
    assert_eq!(
        count(Subject::Machine),
        (54, 31.0, 0.5, Some(4.0), Some(62.0))
    );
    // In both windows together the counters ran for 300 of 400 ns. The errors of the windows are
    // independent.
    let total = |subject: Subject| {
        let series = report.find_series(&subject, "bytes").next().unwrap();
        let estimate = report.total(series).unwrap().estimate;
        (
            estimate.running_ratio,
            (estimate.error().unwrap() * 1e6).round(),
        )
    };
    let error = (4.0 * 2.0_f64.sqrt() * 1e6).round();
    assert_eq!(total(Subject::Socket(0)), (0.75, error));
    assert_eq!(total(Subject::Socket(1)), (1.0, 0.0));
    assert_eq!(total(Subject::Machine), (0.75, error));
    let bytes = report.metrics.iter().find(|metric| metric.name == "bytes");
    assert_eq!(bytes.unwrap().unit, "MiB");
    assert!(report.metrics.iter().all(|metric| metric.name != "hidden"));
    // Each socket is one subject for all its counts.
    let sockets = report
        .groups()
        .filter(|group| group.section == ReportSection::Sockets);
    assert_eq!(sockets.count(), 2);
    let time = report
        .find_series(&Subject::Machine, "duration_time")
        .next()
        .unwrap();
    assert_eq!(time.counter().unwrap().raw, 2_000_000_000);
    assert_eq!(time.counter().unwrap().estimate.error(), Some(0.0));
    assert_eq!(report.total(time).unwrap().estimate.value, 3e9);
    let unit = |name: &str| {
        let mut metrics = report.metrics.iter();
        metrics
            .find(|metric| metric.name == name)
            .unwrap()
            .unit
            .clone()
    };
    assert_eq!([unit("duration_time"), unit("e00")], ["ns", ""]);
}

#[test]
fn without_a_count_a_socket_and_the_machine_have_a_reason() {
    let report = socket_report(&[(0, 0, 0, None, 100), (0, 1, 0, Some(6), 100)]);
    let value_of = |subject: Subject| {
        report
            .find_series(&subject, "bytes")
            .next()
            .unwrap()
            .value
            .clone()
    };
    let missing = || Err(Reason::NoValue(NoValue::Missing(vec!["bytes".to_owned()])));
    assert_eq!(value_of(Subject::Socket(0)), missing());
    assert!(value_of(Subject::Socket(1)).is_ok());
    assert_eq!(value_of(Subject::Machine), missing());
    let report = socket_report(&[(0, 0, 0, Some(0), 0)]);
    let value = &report
        .find_series(&Subject::Machine, "bytes")
        .next()
        .unwrap()
        .value;
    let never = NoValue::NeverRan("bytes".to_owned());
    assert_eq!(*value, Err(Reason::NoValue(never)));
    // The event was never read.
    let report = socket_report(&[]);
    let value = report
        .find_series(&Subject::Machine, "bytes")
        .next()
        .unwrap()
        .value
        .clone();
    assert_eq!(value, missing());
}

/// The scale applies to the value, the error and the total.
#[test]
fn a_scale_applies_to_all_values_of_an_event() {
    let mut plan = plan(1, 0);
    plan.columns[0].scale = 0.5;
    let report = report(&plan, [(key(7, 0, 0), usage([100, 7], 10 * MS, 5 * MS))]);
    let seven = cgroup(7);
    let series = report.find_series(&seven, "e00").next().unwrap();
    let counters = [series.counter(), report.total(series)].map(Option::unwrap);
    for CounterValue { raw, estimate, .. } in counters {
        assert_eq!((*raw, estimate.value), (100, 100.0));
        assert!(
            (estimate.error().unwrap() - 50.0).abs() < 1e-9,
            "{estimate:?}"
        );
    }
}

/// Rows of one kind are ordered by the first event, largest first.
#[test]
fn rows_are_ordered_by_the_first_event() {
    let row = |id, count| (key(id, 0, 0), usage([count, 9], MS, MS));
    let rows = [
        row(7, 5),
        row(8, 9),
        row(9, 7),
        row(0, 99),
        (key(6, 0, 0), UsageRow::ZERO),
    ];
    let report = report(&plan(1, 0), rows);
    let expected = [8, 9, 7, 6].map(cgroup).into_iter();
    let idle = std::iter::once(Subject::Entity(Entity::Idle));
    assert_eq!(entities(&report), expected.chain(idle).collect::<Vec<_>>());
}

/// Entities that were sampled and never counted have rows if their total is nonzero. Within their
/// kind these are ordered by accesses.
#[test]
fn an_owner_with_samples_only_has_a_row() {
    let plan = plan(1, 0);
    let mut window = Window::between(
        &snapshot([]),
        &snapshot([(key(7, 0, 0), usage([5, 5], MS, MS))]),
        &plan,
    );
    let mut samples = sampled_window(BTreeMap::new());
    for (id, count) in [(7, 1_u32), (8, 2), (9, 3), (10, 0)] {
        let counts = SampleCounts {
            samples: count.into(),
            operations: f64::from(count),
            variance: f64::from(count),
            ..SampleCounts::default()
        };
        let owner = Owner {
            cgroup: CgroupId(id),
            tgid: 0,
        };
        let kind = SampleKind::spe(Class::Load, MemLevel::Unknown);
        samples.usage.insert(owner, [(kind, counts)].into());
    }
    let mut total = SampleUsage::new();
    samples
        .usage
        .values()
        .for_each(|usage| total.add_all(usage));
    samples.total = Gained::first(total, Duration::ZERO);
    window.samples = Some(samples);
    let view = View {
        accesses: Some(Hottest::default()),
        ..View::default()
    };
    let joined = view.join(&plan, &window, None);
    let report = Report::new(&plan, &window, &joined, &view);
    assert_eq!(entities(&report), [7, 9, 8].map(cgroup));
    let operations = |id| {
        let subject = cgroup(id);
        let series = report
            .find_series(&subject, "memory_accesses")
            .next()
            .unwrap();
        series.counter().unwrap().raw
    };
    assert_eq!([7, 8, 9].map(operations), [1, 2, 3]);
    let machine = report
        .find_series(&Subject::Machine, "memory_accesses")
        .next()
        .unwrap();
    assert_eq!(machine.counter().unwrap().raw, 6);
    // No pages were requested.
    assert_eq!(report.tables, []);
    // Each event of a row without counts has a reason.
    let nine = cgroup(9);
    let of_9 = report.find_series(&nine, "e00").next().unwrap();
    assert_eq!(of_9.value, Err(Reason::NoValue(NoValue::DidNotRun)));
}

/// Findings about the machine, and of kinds that few rows have, are not limited.
#[test]
fn at_most_three_rows_have_a_finding_of_a_kind() {
    let mut report = Report::default();
    let rows = (0..5).map(|row| Subject::Entity(Entity::Cgroup(format!("/{row}").into())));
    for subject in rows.chain([Subject::Machine]) {
        report.subject(subject);
    }
    let kinds = [
        FindingKind::Throttling,
        FindingKind::MemoryPeak,
        FindingKind::DividedSlices,
    ];
    for (kind, subject) in kinds
        .into_iter()
        .flat_map(|kind| (0..6).map(move |at| (kind, at)))
    {
        report.findings.push(ReportFinding {
            kind,
            about: FindingSubject::Subject(subject),
            text: String::new(),
            named: None,
        });
    }
    report.limit_findings();
    let remaining = kinds.map(|kind| {
        let of_kind = report.findings.iter().filter(|it| it.kind == kind);
        of_kind.map(|it| it.about).collect::<Vec<_>>()
    });
    let all: Vec<_> = (0..6).map(FindingSubject::Subject).collect();
    let first = [&all[..3], &all[5..]].concat();
    assert_eq!(remaining, [first.clone(), first, all]);
}
