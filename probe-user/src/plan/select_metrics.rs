//! Selects metrics for a replay, which may differ from those of the recording.

use super::{CountSource, MetricSource, Plan, PlannedMetric};
use crate::catalogue::{Catalogue, Hardware, Metric, SelectError};

impl Plan {
    /// Replaces the planned metrics by these. A metric that needs more than the plan's counters
    /// gets the reason why it has no value.
    ///
    /// # Errors
    ///
    /// If a name is no metric on the plan's machine.
    pub fn select_metrics(
        &mut self,
        catalogue: &Catalogue,
        machine: &Hardware,
        list: &str,
    ) -> Result<(), SelectError> {
        let wanted = catalogue.select(list, machine)?;
        let list: Vec<PlannedMetric> = wanted
            .into_iter()
            .map(|metric| self.replanned(metric))
            .collect();
        self.metrics.list = list;
        Ok(())
    }

    /// Whether a metric has a value.
    pub(crate) fn computes(&self, metric: &str) -> bool {
        let mut metrics = self.metrics.list.iter();
        metrics.any(|planned| planned.metric.name == metric && planned.sources.is_ok())
    }

    /// The metric as planned in the recording or, if it was not, by the counters of the plan.
    fn replanned(&self, metric: &Metric) -> PlannedMetric {
        let mut list = self.metrics.list.iter();
        let planned = list.find(|planned| {
            planned.metric.name == metric.name && planned.metric.family.name == metric.family.name
        });
        planned.cloned().unwrap_or_else(|| PlannedMetric {
            metric: metric.clone(),
            sources: self.counted_sources(metric).map(|source| vec![source]),
            io: Vec::new(),
        })
    }

    /// The source of a core metric's counts. Its events must be in one group or always run, so that
    /// a ratio is exact.
    fn counted_sources(&self, metric: &Metric) -> Result<MetricSource, String> {
        if self.cores.len() > 1 {
            return Err(format!(
                "on a machine with several kinds of core a recording has only the metrics that it \
                 was made with: record it with -M {}",
                metric.name
            ));
        }
        let mut missing = None;
        for group in 0..self.groups.len() {
            let place = |event: &str| {
                let places = self.places(metric, event);
                let source = places.iter().find(|place| match place {
                    CountSource::Core { group: other, .. } => {
                        *other == group || *other < self.fixed()
                    }
                    CountSource::Sampled(_) => true,
                    CountSource::Uncore { .. } | CountSource::Duration => false,
                });
                source
                    .map(|place| (event.to_owned(), *place))
                    .ok_or_else(|| event.to_owned())
            };
            let events: Result<Vec<_>, String> = metric.events().into_iter().map(place).collect();
            match events {
                Ok(events) => {
                    return Ok(MetricSource {
                        events,
                        units: 1,
                        ..MetricSource::default()
                    });
                }
                Err(event) => missing = missing.or(Some(event)),
            }
        }
        let event = missing.unwrap_or_else(|| metric.events().join(", "));
        Err(format!(
            "the recording does not count {event} per owner, together with the metric's other \
             events: record it with -M {}",
            metric.name
        ))
    }

    /// The count sources of an event, by all of its names, from the columns and from metrics of its
    /// family.
    fn places(&self, metric: &Metric, event: &str) -> Vec<CountSource> {
        let spec = metric.pmu.events.get(event);
        let is_this_event = |name: &str| {
            let is_alias = spec
                .is_some_and(|spec| spec.perf == name || spec.also.iter().any(|also| also == name));
            name == event || is_alias
        };
        let columns = self
            .columns
            .iter()
            .filter(|column| is_this_event(&column.name))
            .map(|column| column.place);
        let events = self
            .metrics
            .list
            .iter()
            .filter(|planned| planned.metric.family.name == metric.family.name)
            .flat_map(|planned| planned.sources.iter().flatten())
            .flat_map(|source| &source.events)
            .filter(|(name, _)| name == event)
            .map(|(_, place)| *place);
        columns.chain(events).collect()
    }
}
