//! Rows of a report.

use probe_user::{
    derive::{CounterValue, Estimate, Reason, Report, Subject, SubjectSeries, Value},
    join::{By, Entity, View},
    window::Window,
};
use test_harness::{Counting, TestCgroup};

/// The values of a row, in the order of the plan.
pub(crate) struct Row {
    /// Values of events.
    pub(crate) values: Vec<Result<CounterValue, Reason>>,
    /// Values of metrics.
    pub(crate) metrics: Vec<Result<Estimate, Reason>>,
}

impl Row {
    pub(crate) fn new(report: &Report, group: &SubjectSeries<'_>) -> Self {
        let (mut values, mut metrics) = (Vec::new(), Vec::new());
        for series in group.series {
            match (report.metric(series).is_event(), series.value.clone()) {
                (true, Ok(Value::Counter(counter))) => values.push(Ok(counter)),
                (false, Ok(Value::Gauge(gauge))) => metrics.push(Ok(gauge)),
                (true, Err(reason)) => values.push(Err(reason)),
                (false, Err(reason)) => metrics.push(Err(reason)),
                (_, Ok(other)) => panic!("{other:?}"),
            }
        }
        Self { values, metrics }
    }

    /// The row of the whole machine.
    pub(crate) fn total(report: &Report) -> Self {
        let total = |group: &SubjectSeries<'_>| *group.subject == Subject::Machine;
        Self::new(
            report,
            &report.groups().find(total).expect("it has a total"),
        )
    }
}

/// A report of the window by cgroup.
pub(crate) fn report(counting: &Counting, window: &Window) -> Report {
    let plan = counting.session.plan();
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let joined = view.join(plan, window, None);
    Report::new(plan, window, &joined, &view)
}

/// The rows of a report.
pub(crate) fn rows(report: &Report) -> impl Iterator<Item = (&Entity, Row)> {
    report.groups().filter_map(|group| match group.subject {
        Subject::Entity(entity) => Some((entity, Row::new(report, &group))),
        _ => None,
    })
}

/// The row of a cgroup in a report of the window.
pub(crate) fn row(counting: &Counting, window: &Window, cgroup: &TestCgroup) -> Row {
    let report = report(counting, window);
    let label = Entity::Cgroup(cgroup.path.as_str().into());
    let row = rows(&report).find(|(entity, _)| **entity == label);
    row.unwrap_or_else(|| panic!("{} has no row", cgroup.path))
        .1
}
