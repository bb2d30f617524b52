use std::time::Duration;

use probe_common::spe::Class;

use super::*;
use crate::{
    derive::{Attributes, CounterValue, MetricInfo, ReportTable, TableCell, ValueMethod},
    join::{
        Entity,
        share::{Method, NoShare},
    },
};

/// A metric with this name and unit.
pub(super) fn metric(name: &str, unit: &str, is_counter: bool) -> LineMetric {
    LineMetric {
        name: name.to_owned(),
        help: String::new(),
        unit: unit.to_owned(),
        is_counter,
        replaced_by_rates: false,
    }
}

/// An empty report of the second from `start` on.
fn report(start: u64) -> Report {
    Report {
        attributes: vec![Attributes::default()],
        start: Duration::from_secs(start),
        end: Duration::from_secs(start + 1),
        ..Report::default()
    }
}

fn container(letter: &str) -> Subject {
    Subject::Entity(Entity::Container {
        id: letter.repeat(64).into(),
        pod: None,
    })
}

/// A counter with this name and unit.
fn counter(name: &str, unit: &str) -> MetricInfo {
    MetricInfo {
        kind: MetricKind::Counter,
        ..MetricInfo::gauge(name, "", unit)
    }
}

/// The first window of a line, and its values from that window on; None: no value.
fn values(line: &RunLine) -> (usize, Vec<Option<f64>>) {
    let known = |value: &f64| Some(*value).filter(|it| !it.is_nan());
    (line.first, line.values.iter().map(known).collect())
}

/// An event that is counted in two groups has a value in each, and so a line for each.
#[test]
fn an_event_of_two_groups_has_two_lines() {
    let mut run = Run::default();
    let mut index = RunIndex::default();
    for window in 0..2 {
        let mut report = report(window);
        let subject = report.subject(Subject::Machine);
        let metric = report.add_metric(MetricInfo::gauge("cycles", "", ""));
        for group in [3, 7] {
            let attributes = report.add_attributes(Attributes {
                group: Some(group),
                ..Attributes::default()
            });
            let value = Value::Gauge(Estimate::exact(f64::from(group)));
            report.push([subject, metric, attributes], Ok(value), None);
        }
        run.add_window(&mut index, &report);
    }
    let lines: Vec<_> = { run.lines.iter() }
        .map(|line| (line.qualifier.as_str(), &line.values[..]))
        .collect();
    assert_eq!(lines, [("", &[3.0; 2][..]), ("group 7", &[7.0; 2])]);
}

/// The share of a container that sleeps is 0, also before its first access. There is no value where
/// its share is unknown, where nothing was divided, and where there is no container.
#[test]
fn an_idle_row_has_a_share_of_0() {
    enum Row {
        Absent,
        Idle,
        Share(f64),
        Unknown,
        NotDivided,
    }
    let rows = [
        Row::Absent,
        Row::Idle,
        Row::Share(20.0),
        Row::Idle,
        Row::Unknown,
        Row::NotDivided,
        Row::Absent,
        Row::Share(10.0),
        Row::Idle,
        Row::Absent,
    ];
    let (mut run, mut index) = (Run::default(), RunIndex::default());
    for (window, row) in (0..).zip(rows) {
        let mut report = report(window);
        if !matches!(row, Row::Absent) {
            report.subject(container("a"));
        }
        let metric = report.add_metric(MetricInfo::gauge("read_apportioned", "", "GB/s"));
        let methods = [
            ValueMethod::Apportioned(Method::Spe),
            ValueMethod::default(),
        ];
        let [known, unknown] = methods.map(|method| {
            report.add_attributes(Attributes {
                socket: Some(0),
                method,
                ..Attributes::default()
            })
        });
        let share = |value| Ok(Value::Gauge(Estimate::exact(value)));
        let no_share = |reason| Err(Reason::NoShare(reason));
        let mut add = |owner, attributes, value| {
            let subject = report.subject(owner);
            report.push([subject, metric, attributes], value, None);
        };
        match row {
            Row::Share(value) => add(container("a"), known, share(value)),
            Row::Unknown => add(container("a"), unknown, no_share(NoShare::OwnerUnseen)),
            Row::NotDivided => add(Subject::Unknown, unknown, no_share(NoShare::NotMeasured)),
            Row::Absent | Row::Idle => {}
        }
        if !matches!(row, Row::NotDivided) {
            add(Subject::Unattributed, known, share(1.0));
        }
        run.add_window(&mut index, &report);
    }
    run.fill_idle_windows(&index);
    let subject = index.subjects[&(ReportSection::Shares, container("a"))];
    let mut lines = run.lines.iter();
    let by_method =
        |line: &&RunLine| line.subject == subject && line.qualifier == "socket 0 by spe";
    let (zero, unknown) = (Some(0.0), None);
    assert_eq!(
        values(lines.find(by_method).unwrap()),
        (
            1,
            vec![
                zero,
                Some(20.0),
                zero,
                unknown,
                unknown,
                unknown,
                Some(10.0),
                zero
            ]
        )
    );
}

/// A pair is a waiting owner and the owner it waits behind. Until its first wait its value is 0 s
/// in each window where the row exists and waits are counted.
#[test]
fn a_pair_without_a_wait_waits_for_0_s() {
    // Whether there is a container, and how long it waits; None if waits are not counted.
    let windows = [
        (false, Some(0)),
        (true, Some(0)),
        (true, None),
        (true, Some(5)),
        (true, None),
        (true, Some(0)),
        (false, Some(0)),
    ];
    let (mut run, mut index) = (Run::default(), RunIndex::default());
    for (window, (is_present, nanos)) in (0..).zip(windows) {
        let mut report = report(window);
        if is_present {
            report.subject(container("a"));
        }
        report.add_metric(counter("cpu_wait_behind", "ns"));
        let row = |nanos| {
            vec![
                TableCell::Owner(container("a")),
                TableCell::Owner(container("b")),
                TableCell::Count(nanos),
            ]
        };
        report.tables.extend(nanos.map(|nanos| ReportTable {
            name: "waits",
            columns: vec!["owner", "behind", "cpu_wait_ns"],
            rows: (nanos > 0).then(|| row(nanos)).into_iter().collect(),
            small_rows: Default::default(),
            counts: Vec::new(),
        }));
        run.add_window(&mut index, &report);
    }
    run.fill_idle_windows(&index);
    let lines: Vec<_> = run.lines.iter().map(values).collect();
    let (zero, unknown) = (Some(0.0), None);
    assert_eq!(lines, [(1, vec![zero, unknown, Some(5.0), unknown, zero])]);
}

/// Until its first sample, a row has 0 in each window where the row exists and accesses are
/// sampled.
#[test]
fn accesses_are_0_before_their_first_sample() {
    // Whether there is a container, whether accesses are sampled, and their number.
    let windows = [
        (false, true, None),
        (true, true, None),
        (true, false, None),
        (true, true, Some(7.0)),
        (true, true, Some(0.0)),
    ];
    let (mut run, mut index) = (Run::default(), RunIndex::default());
    for (window, (is_present, is_sampled, accesses)) in (0..).zip(windows) {
        let mut report = report(window);
        if is_sampled {
            report.add_metric(counter("memory_accesses", ""));
        }
        if is_present {
            let subject = report.subject(container("a"));
            let attributes = report.add_attributes(Attributes {
                operation: Some(Class::Load),
                ..Attributes::default()
            });
            if let Some(accesses) = accesses {
                let value = Value::Counter(CounterValue {
                    start: report.start,
                    raw: 0,
                    estimate: Estimate::exact(accesses),
                    time: None,
                });
                report.push([subject, 0, attributes], Ok(value), None);
            }
        }
        run.add_window(&mut index, &report);
    }
    run.fill_idle_windows(&index);
    let lines: Vec<_> = run.lines.iter().map(values).collect();
    let zero = Some(0.0);
    assert_eq!(lines, [(1, vec![zero, None, Some(7.0), zero])]);
}

/// A row that ends keeps its distribution. A row that goes on has the distribution of the last
/// window.
#[test]
fn a_row_that_ends_keeps_its_distribution() {
    let (mut run, mut index) = (Run::default(), RunIndex::default());
    let windows = [
        vec![("a", [1, 0]), ("b", [2, 1])],
        vec![("a", [1, 0]), ("b", [2, 3])],
        vec![("b", [4, 3])],
    ];
    for (window, rows) in (0..).zip(windows) {
        let mut report = report(window);
        let metric = report.add_metric(MetricInfo {
            kind: MetricKind::Histogram,
            ..MetricInfo::gauge("cpu_wait_duration", "", "s")
        });
        for (letter, counts) in rows {
            let subject = report.subject(container(letter));
            let value = Value::Histogram(Box::new(Histogram {
                start: Duration::ZERO,
                bounds: vec![1.0],
                counts: counts.to_vec(),
                sum: 0.0,
                powers: None,
            }));
            report.push([subject, metric, 0], Ok(value), None);
        }
        run.add_window(&mut index, &report);
    }
    let subject = |letter| index.subjects[&(ReportSection::Rows, container(letter))];
    let found: Vec<_> = { run.histograms.iter() }
        .map(|it| (it.subject, it.counts.as_slice()))
        .collect();
    let expected: [(usize, &[u64]); 2] = [(subject("a"), &[1, 0]), (subject("b"), &[4, 3])];
    assert_eq!(found, expected);
    assert_eq!(run.histograms[0].bounds, [1.0]);
    assert_eq!(run.metrics.len(), 1);
}
