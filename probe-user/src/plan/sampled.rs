//! Metrics that are estimated from SPE samples: no counter is opened for them.

use super::{
    CountSource, Plan,
    planner::{MetricSource, ResolvedRequest},
};
use crate::{catalogue::Metric, machine::Pmus};

impl Plan {
    /// Whether a session must sample to have values for all metrics.
    #[must_use]
    pub fn samples(&self) -> bool {
        let sources = self
            .metrics
            .list
            .iter()
            .flat_map(|planned| &planned.sources);
        let mut events = sources.flatten().flat_map(|source| &source.events);
        events.any(|(_, place)| matches!(place, CountSource::Sampled(_)))
    }
}

/// The sources of a sampled metric, or why it has no value here; `None` if its events are counted.
pub(super) fn sources(
    metric: &Metric,
    request: &ResolvedRequest<'_>,
    pmus: &Pmus,
) -> Option<Result<Vec<MetricSource>, String>> {
    let place = |event: &str| {
        let sampled = metric.pmu.events.get(event)?.sampled?;
        Some((event.to_owned(), CountSource::Sampled(sampled)))
    };
    let events: Vec<_> = metric
        .events()
        .into_iter()
        .map(place)
        .collect::<Option<_>>()?;
    let source = MetricSource {
        events,
        units: 1,
        ..MetricSource::default()
    };
    let available = metric
        .valid_on(&request.machine)
        .map_err(|reason| reason.to_string())
        .and_then(|()| {
            let groups = metric.groups(pmus, &request.settings);
            groups.map_err(|reason| reason.to_string())
        });
    Some(available.map(|_| vec![source]))
}
