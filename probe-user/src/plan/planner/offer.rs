//! Offered: metrics that nobody asked for, shown where the user's events hold all that they need.

use super::{
    EventSet, Kind, MetricSource, Plan, PlannedMetric, Request, Whose,
    event_set::{kind_of, wanted},
};
use crate::{
    catalogue::Metric, event::Exclude, formula::Implicit, machine::Pmus, plan::RequestedEvent,
};

/// A metric whose events are all among the user's, all with the same filters.
pub(super) struct Offer<'a> {
    metric: &'a Metric,
    /// Those of a core PMU, by the names of the formula: a ratio of them is that of one time. Of
    /// each kind of core, where they differ.
    core: Vec<Vec<(String, RequestedEvent)>>,
    /// The others, and the user's columns that count them.
    beside: Vec<(String, usize)>,
}

impl<'a> Offer<'a> {
    /// What the user's events hold, besides the metrics that are asked for.
    pub(super) fn all(request: &Request<'a>, pmus: &Pmus) -> Vec<Self> {
        let asked = |metric: &Metric| {
            let mut metrics = request.metrics.iter();
            metrics.any(|other| other.name == metric.name)
        };
        let offered = request.offered.iter().filter(|metric| !asked(metric));
        offered
            .filter_map(|metric| Self::of(metric, request, pmus))
            .collect()
    }

    fn of(metric: &'a Metric, request: &Request<'a>, pmus: &Pmus) -> Option<Self> {
        let groups = metric.groups(pmus, &request.settings).ok()?;
        let groups = groups.into_iter().map(|group| {
            let needed = EventSet::parsed(&group, pmus).ok()?;
            let names = group.events.into_iter().map(|(name, _)| name);
            Some(names.zip(needed).collect())
        });
        let groups: Vec<Vec<(String, RequestedEvent)>> = groups.collect::<Option<_>>()?;
        let counted = request.events.iter().flat_map(|group| &group.events);
        // The user's columns come first, one for each event.
        let counted: Vec<(usize, RequestedEvent)> = counted
            .enumerate()
            .filter_map(|(column, event)| Some((column, wanted(event)?)))
            .collect();
        // The time of counters is that of all that ran.
        let of_all = metric.formula.implicits().contains(&Implicit::CounterTime);
        let with = |exclude| {
            if of_all && exclude != Exclude::default() {
                return None;
            }
            let mut offer = Self {
                metric,
                core: Vec::new(),
                beside: Vec::new(),
            };
            for group in &groups {
                let mut core = Vec::new();
                for (name, needed) in group {
                    let same = |(_, own): &&(usize, RequestedEvent)| {
                        own.counter == needed.counter && own.exclude == exclude
                    };
                    let (column, own) = counted.iter().find(same)?;
                    let beside = (name.clone(), *column);
                    match kind_of(own, pmus) {
                        Kind::Core(_) => core.push((name.clone(), own.clone())),
                        // One for all kinds of core.
                        _ if offer.beside.contains(&beside) => {}
                        Kind::Beside(_) | Kind::Uncore(_) => offer.beside.push(beside),
                    }
                }
                if !core.is_empty() {
                    offer.core.push(core);
                }
            }
            Some(offer)
        };
        counted.iter().find_map(|(_, own)| with(own.exclude))
    }
}

impl Plan {
    /// Lists the offered metrics behind those that are asked for. Returns what should be counted
    /// together.
    pub(super) fn offer(&mut self, offers: &[Offer<'_>]) -> Vec<EventSet> {
        let mut event_sets = Vec::new();
        for offer in offers {
            let at = self.metrics.list.len();
            for core in &offer.core {
                let (names, wanted) = core.iter().cloned().unzip();
                event_sets.push(EventSet {
                    wanted,
                    whose: Whose::Offered { at, names },
                });
            }
            let source = MetricSource {
                units: 1,
                ..MetricSource::default()
            };
            self.metrics.list.push(PlannedMetric {
                metric: offer.metric.clone(),
                sources: Ok(vec![source]),
                io: Vec::new(),
            });
        }
        event_sets
    }

    /// Gives the offered metrics, the last ones, the places of their other events, once all have
    /// places.
    pub(super) fn join_offers(&mut self, offers: &[Offer<'_>]) {
        let first = self.metrics.list.len() - offers.len();
        for (offer, planned) in offers.iter().zip(&mut self.metrics.list[first..]) {
            let Ok(sources) = &mut planned.sources else {
                continue;
            };
            for (name, column) in &offer.beside {
                let place = self.columns[*column].place;
                sources[0].events.push((name.clone(), place));
            }
        }
    }
}
