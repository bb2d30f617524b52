//! The values of metrics agree with the examples of the documents.
//!
//! Some documents contradict themselves. The tests of these assert pmuscope's value, and that the
//! printed one differs from it.

mod ddio;
mod grace;
mod others;
mod tegra410;

use std::time::Duration;

use super::{
    super::{Chip, Hardware, MetricCounts},
    CATALOGUE, metric, pmus,
};
use crate::formula::NoValue;

/// The value of a metric for counters that ran all the time, `nanos`.
fn value(
    chip: Chip,
    family: &str,
    name: &str,
    nanos: f64,
    counts: &[(&str, u64)],
) -> Result<f64, NoValue> {
    let mut all = MetricCounts::for_cpus(Duration::ZERO);
    all.set_time(nanos);
    for (event, count) in counts {
        all.add(event, *count, 1, 1);
    }
    let value = metric(family, name).evaluate(&Hardware::of_chip(chip), &all);
    value.map(|value| value.value)
}

/// Asserts that a value is the printed number, within half a unit of its last digit.
#[track_caller]
fn near(value: f64, printed: f64, half_a_unit: f64) {
    assert!(
        (value - printed).abs() <= half_a_unit,
        "{value} and not {printed}"
    );
}
