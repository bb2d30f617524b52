//! Helpers for the tests of both detections.

mod cpu;
mod memory;

use super::*;
use crate::derive::Reason;

fn container(name: &str) -> Entity {
    Entity::Container {
        id: name.into(),
        pod: None,
    }
}

fn gauge(value: f64) -> Result<Value, Reason> {
    Ok(Value::Gauge(Estimate::exact(value)))
}

/// The values of a metric, by row.
fn values(report: &Report, metric: &str) -> Vec<(Entity, f64)> {
    let series = report.series.iter();
    let named = series.filter(|series| report.metric(series).name == metric);
    let value = |series: &Series| match &report.subjects[series.subject as usize] {
        Subject::Entity(entity) => (entity.clone(), series.estimate().unwrap().value),
        other => panic!("{other:?}"),
    };
    named.map(value).collect()
}
