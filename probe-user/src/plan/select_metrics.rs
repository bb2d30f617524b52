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

    /// The source of a core metric's counts. Its events must always run or be in one group, so that
    /// a ratio is exact. If some always run and others are multiplexed, the latter must be in one
    /// group.
    fn counted_sources(&self, metric: &Metric) -> Result<MetricSource, String> {
        if self.cores.len() > 1 {
            return Err(format!(
                "on a machine with several kinds of core a recording has only the metrics that it \
                 was made with: record it with -M {}",
                metric.name
            ));
        }
        let always = |place: &CountSource| match place {
            CountSource::Core { group, .. } => *group < self.fixed(),
            CountSource::Sampled(_) => true,
            CountSource::Uncore { .. } | CountSource::Duration => false,
        };
        let in_group = |wanted: usize| {
            move |place: &CountSource| match place {
                CountSource::Core { group, .. } => *group == wanted,
                CountSource::Sampled(_) | CountSource::Uncore { .. } | CountSource::Duration => {
                    false
                }
            }
        };
        let events: EventPlaces<'_> = { metric.events().into_iter() }
            .map(|event| (event, self.places(metric, event)))
            .collect();
        let multiplexed = || self.fixed()..self.groups.len();
        let sources = first_places(&events, &[&always])
            .or_else(|| multiplexed().find_map(|at| first_places(&events, &[&in_group(at)])))
            .or_else(|| {
                let mut groups = multiplexed();
                groups.find_map(|at| first_places(&events, &[&in_group(at), &always]))
            });
        if let Some(events) = sources {
            return Ok(MetricSource {
                events,
                units: 1,
                ..MetricSource::default()
            });
        }
        let is_per_owner = |place: &CountSource| {
            matches!(place, CountSource::Core { .. } | CountSource::Sampled(_))
        };
        let mut uncounted =
            { events.iter() }.filter(|(_, places)| !places.iter().any(is_per_owner));
        let event = uncounted.next().or(events.first());
        let event = event.map_or("", |(event, _)| *event);
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

/// Events, each with all of its count sources.
type EventPlaces<'a> = Vec<(&'a str, Vec<CountSource>)>;

/// For each event, the first source that the first possible of `conditions` accepts; None if an
/// event has no such source.
fn first_places(
    events: &EventPlaces<'_>,
    conditions: &[&dyn Fn(&CountSource) -> bool],
) -> Option<Vec<(String, CountSource)>> {
    let place = |(event, places): &(&str, Vec<CountSource>)| {
        let mut conditions = conditions.iter();
        let place = conditions.find_map(|accepts| places.iter().find(|place| accepts(place)))?;
        Some(((*event).to_owned(), *place))
    };
    events.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalogue::{Chip, SampledQuantity},
        plan::EventColumn,
    };

    /// Where the events of a metric are found in a plan with a group that always runs and two
    /// multiplexed ones; `columns` are the plan's events.
    fn selected(metric: &str, columns: &[(&str, CountSource)]) -> Result<Vec<CountSource>, String> {
        let column = |(name, place): &(&str, CountSource)| EventColumn {
            name: (*name).to_owned(),
            unit: None,
            scale: 1.0,
            place: *place,
            clock: false,
            shown: true,
        };
        let is_core = |place: &CountSource| matches!(place, CountSource::Core { .. });
        let (groups, rotated) = match columns.iter().any(|(_, place)| is_core(place)) {
            true => (vec![Vec::new(); 3], 2),
            false => (Vec::new(), 0),
        };
        let mut plan = Plan {
            columns: columns.iter().map(column).collect(),
            groups,
            rotated,
            ..Plan::default()
        };
        let machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
        let catalogue = Catalogue::builtin().unwrap();
        plan.select_metrics(&catalogue, &machine, metric).unwrap();
        let sources = plan.metrics.list[0].sources.clone()?;
        let events = sources.iter().flat_map(|source| &source.events);
        Ok(events.map(|(_, place)| *place).collect())
    }

    fn core(group: usize) -> CountSource {
        CountSource::Core { group, at: 0 }
    }

    /// A ratio is exact if both counts are of the same time.
    #[test]
    fn counts_of_one_group_come_before_those_that_always_run() {
        let columns = [
            ("branch-misses", core(0)),
            ("branch-misses", core(2)),
            ("branches", core(2)),
        ];
        assert_eq!(
            selected("branch_miss_ratio", &columns),
            Ok(vec![core(2); 2])
        );
        let always = [("branch-misses", core(0)), ("branches", core(0))];
        assert_eq!(selected("branch_miss_ratio", &always), Ok(vec![core(0); 2]));
    }

    #[test]
    fn the_reason_names_the_event_that_is_not_counted() {
        let why = selected("branch_miss_ratio", &[("branch-misses", core(1))]).unwrap_err();
        assert!(
            why.starts_with("the recording does not count branches per owner"),
            "{why}"
        );
        let apart = [("branch-misses", core(1)), ("branches", core(2))];
        let why = selected("branch_miss_ratio", &apart).unwrap_err();
        assert!(
            why.contains("together with the metric's other events"),
            "{why}"
        );
    }

    /// Samples need no counter group.
    #[test]
    fn a_sampled_metric_needs_no_group() {
        let columns = [("SPE_LOADS", CountSource::Sampled(SampledQuantity::Loads))];
        let loads = CountSource::Sampled(SampledQuantity::Loads);
        assert_eq!(selected("spe_load_rate", &columns), Ok(vec![loads]));
    }
}
