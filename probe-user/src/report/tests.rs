use std::time::Duration;

use super::*;
use crate::derive::{Attributes, MetricInfo};

/// A metric with this name and unit.
pub(super) fn metric(name: &str, unit: &str, is_counter: bool) -> LineMetric {
    LineMetric {
        name: name.to_owned(),
        help: String::new(),
        unit: unit.to_owned(),
        is_counter,
        behind_rates: false,
    }
}

/// An event that is counted in two groups has different values there.
#[test]
fn an_event_of_two_groups_has_two_lines() {
    let mut run = Run::default();
    let mut index = RunIndex::default();
    for window in 0..2 {
        let mut report = Report {
            attributes: vec![Attributes::default()],
            start: Duration::from_secs(window),
            end: Duration::from_secs(window + 1),
            ..Report::default()
        };
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
