//! Other metrics of what was counted: a replay may compute others than the recording shows.

use super::{CountSource, MetricSource, Plan, PlannedMetric};
use crate::catalogue::{Catalogue, Hardware, Metric, SelectError};

impl Plan {
    /// Takes these metrics in place of those that were planned, as far as the plan's counters hold
    /// all that they need; the others have the reason why they have no value.
    ///
    /// # Errors
    ///
    /// A name that the machine of the plan has no metric of.
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

    fn replanned(&self, metric: &Metric) -> PlannedMetric {
        let mut planned = self.metrics.list.iter();
        let planned = planned.find(|planned| {
            planned.metric.name == metric.name && planned.metric.family.name == metric.family.name
        });
        planned.cloned().unwrap_or_else(|| PlannedMetric {
            metric: metric.clone(),
            sources: self.counted_sources(metric).map(|source| vec![source]),
            io: Vec::new(),
        })
    }

    /// Where the counts of a metric of cores come from: a ratio is that of one time, so all are of
    /// one group, or always live.
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
                let mut places = places.iter();
                let found = places.find(|place| match place {
                    CountSource::Core { group: of, .. } => *of == group || *of < self.fixed(),
                    CountSource::Sampled(_) => true,
                    CountSource::Uncore { .. } | CountSource::Duration => false,
                });
                found
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

    /// The places of an event of a metric's family, by the names that it has.
    fn places(&self, metric: &Metric, event: &str) -> Vec<CountSource> {
        let spec = metric.pmu.events.get(event);
        let is_it = |name: &str| {
            let also = spec
                .is_some_and(|spec| spec.perf == name || spec.also.iter().any(|also| also == name));
            name == event || also
        };
        let columns = self.columns.iter();
        let columns = columns.filter(|column| is_it(&column.name));
        let columns = columns.map(|column| column.place);
        let of_family = self.metrics.list.iter();
        let of_family =
            of_family.filter(|planned| planned.metric.family.name == metric.family.name);
        let sources = of_family.flat_map(|planned| planned.sources.iter().flatten());
        let events = sources.flat_map(|source| &source.events);
        let events = events.filter(|(name, _)| name == event);
        columns.chain(events.map(|(_, place)| *place)).collect()
    }
}
