//! Metrics that are counts by time, so that whoever counts nothing has 0 of them.

use super::Plan;
use crate::formula::{Absent, Implicit, Input, Sample};

/// Time passes, and nobody runs.
struct Rest;

impl Input for Rest {
    fn event(&self, _: &str) -> Result<Sample, Absent> {
        Ok(Sample {
            count: 0.0,
            live: 1.0,
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
    /// The names of such metrics. A ratio of counts has no value where they are 0.
    pub(crate) fn metrics_by_time(&self) -> impl Iterator<Item = String> + '_ {
        let machine = self.metrics.machine.as_ref();
        let metrics = self.metrics.list.iter().map(|planned| &planned.metric);
        let by_time = metrics.filter(move |metric| {
            let value = machine.and_then(|machine| metric.evaluate(machine, &Rest).ok());
            value.is_some_and(|it| it.value == 0.0)
        });
        by_time.map(|metric| metric.name.clone())
    }
}
