//! Metrics that are counts per time: 0 for an owner without counts.

use super::Plan;
use crate::formula::{Absent, EventCount, Implicit, Input};

/// The input of an owner that never runs: time passes, and all counts are 0.
struct IdleInput;

impl Input for IdleInput {
    fn event(&self, _: &str) -> Result<EventCount, Absent> {
        Ok(EventCount {
            count: 0.0,
            running_ratio: 1.0,
        })
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        Some(match implicit {
            Implicit::CounterTime => 0.0,
            _ => 1.0,
        })
    }
}

impl Plan {
    /// The names of metrics that are 0 without counts. A ratio of counts has no value then.
    pub(crate) fn time_only_metrics(&self) -> impl Iterator<Item = String> + '_ {
        let machine = self.metrics.machine.as_ref();
        let metrics = self.metrics.list.iter().map(|planned| &planned.metric);
        let time_only = metrics.filter(move |metric| {
            let value = machine.and_then(|machine| metric.evaluate(machine, &IdleInput).ok());
            value.is_some_and(|it| it.value == 0.0)
        });
        time_only.map(|metric| metric.name.clone())
    }
}
