use super::*;
use crate::{
    calibration::{MadeOn, PartError},
    derive::{Attributes, Estimate, MetricInfo, Subject, ValueMethod},
    join::{Entity, share::Method},
};

const READS: &str = "cmem_read_bandwidth_apportioned";
const WRITES: &str = "cmem_write_bandwidth_apportioned";

/// A window of two containers with the same shares, each with an error of 1%. Container 1 has a
/// monitoring group, container 2 has none.
fn window(reads: f64, writes: f64, counted: Option<f64>) -> Report {
    let mut report = Report {
        attributes: vec![Attributes::default()],
        ..Report::default()
    };
    let calibrated = report.add_attributes(Attributes {
        socket: Some(0),
        method: ValueMethod::Apportioned(Method::Calibrated(MadeOn::SameType)),
        ..Attributes::default()
    });
    let on_socket = report.add_attributes(Attributes {
        socket: Some(0),
        ..Attributes::default()
    });
    let metrics = [READS, WRITES, RESCTRL].map(|it| MetricInfo::gauge(it, "", "GB/s"));
    let [of_reads, of_writes, resctrl] = metrics.map(|it| report.add_metric(it));
    for id in [1, 2] {
        for (metric, value) in [(of_reads, reads), (of_writes, writes)] {
            // As derived: each series has an index of its own.
            let subject = report.subject(Subject::Entity(Entity::Unnamed(id)));
            let share = Estimate {
                spread: Spread::Calibrated(PartError {
                    counting: 0.01 * value,
                    ..PartError::default()
                }),
                ..Estimate::exact(value)
            };
            report.push([subject, metric, calibrated], Ok(Value::Gauge(share)), None);
        }
        if let (1, Some(counted)) = (id, counted) {
            let subject = report.subject(Subject::Entity(Entity::Unnamed(id)));
            let counted = Value::Gauge(Estimate::exact(counted));
            report.push([subject, resctrl, on_socket], Ok(counted), None);
        }
    }
    report
}

/// The relative errors of the shares of container 2.
fn errors(report: &Report) -> Vec<f64> {
    let subject_of = |report: &Report, index| report.subjects[index as usize].clone();
    let second = Subject::Entity(Entity::Unnamed(2));
    let series = report.series.iter();
    series
        .filter(|series| subject_of(report, series.subject) == second)
        .map(|series| match series.estimate().unwrap() {
            Estimate {
                value,
                spread: Spread::Calibrated(error),
                ..
            } => error.all() / value,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn apply(residuals: &mut Residuals, mut report: Report) -> Vec<f64> {
    residuals.widen(&mut report);
    residuals.learn(&report, &[READS.to_owned(), WRITES.to_owned()]);
    errors(&report)
}

fn assert_all_near(errors: &[f64], expected: f64) {
    assert!(
        errors.iter().all(|it| (it - expected).abs() < 1e-9),
        "{errors:?}"
    );
}

#[test]
fn the_wider_error_holds() {
    let mut residuals = Residuals::default();
    // Resctrl counted 3 of the 4 GB/s of the shares: the distance is 25%.
    assert_all_near(&apply(&mut residuals, window(3.0, 1.0, Some(3.0))), 0.01);
    assert_all_near(&apply(&mut residuals, window(3.0, 1.0, Some(3.0))), 0.25);
    // Windows with smaller distances replace the others.
    let mut widths = Vec::new();
    for _ in 0..=KEPT {
        widths = apply(&mut residuals, window(3.0, 1.0, Some(4.0 * 1.005)));
    }
    assert_all_near(&widths, 0.01);
    assert_eq!(residuals.0.len(), KEPT);
}

#[test]
fn only_whole_comparisons_count() {
    let mut residuals = Residuals::default();
    let mut one_sided = window(3.0, 1.0, Some(9.0));
    one_sided.series.retain(|series| series.metric != 1);
    let mut by_weight = window(3.0, 1.0, Some(9.0));
    for series in &mut by_weight.series {
        if let Ok(Value::Gauge(share)) = &mut series.value {
            share.spread = Spread::CountingOnly(0.1);
        }
    }
    for report in [
        one_sided,
        by_weight,
        window(3.0, 1.0, None),
        window(0.0, 0.0, Some(1.0)),
    ] {
        residuals.learn(&report, &[READS.to_owned(), WRITES.to_owned()]);
        assert_eq!(residuals.0.len(), 0);
    }
}
