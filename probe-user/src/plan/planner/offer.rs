//! Optional metrics: not requested, and shown if the user's events include all that they need.

use super::{
    EventSet, MetricSource, Plan, PlannedMetric, PmuClass, Purpose, ResolvedRequest,
    event_set::{kind_of, requested_event},
};
use crate::{
    catalogue::Metric, event::Exclude, formula::Implicit, machine::Pmus, plan::RequestedEvent,
};

/// A metric that needs only events of the user, all with the same filters.
pub(super) struct Offer {
    metric: Metric,
    /// For each kind of core, its events by their names in the formula. They need one group, so
    /// that a ratio is exact.
    core: Vec<Vec<(String, RequestedEvent)>>,
    /// The events of other PMUs by name, and the user's columns that count them.
    others: Vec<(String, usize)>,
}

impl Offer {
    /// The optional metrics that the user's events suffice for, except requested ones.
    pub(super) fn all(request: &ResolvedRequest<'_>, pmus: &Pmus) -> Vec<Self> {
        let is_requested = |metric: &Metric| {
            let mut metrics = request.metrics.iter();
            metrics.any(|other| other.name == metric.name)
        };
        let offered = request
            .offered
            .iter()
            .filter(|metric| !is_requested(metric));
        offered
            .filter_map(|metric| Self::for_metric(metric, request, pmus))
            .collect()
    }

    fn for_metric(metric: &Metric, request: &ResolvedRequest<'_>, pmus: &Pmus) -> Option<Self> {
        let groups = metric
            .groups(pmus, &request.settings)
            .ok()?
            .into_iter()
            .map(|group| {
                let needed = EventSet::parsed(&group, pmus).ok()?;
                let names = group.events.into_iter().map(|(name, _)| name);
                Some(names.zip(needed).collect())
            });
        let groups: Vec<Vec<(String, RequestedEvent)>> = groups.collect::<Option<_>>()?;
        let counted = request.events.iter().flat_map(|group| &group.events);
        // The user's columns come first, one for each event.
        let counted: Vec<(usize, RequestedEvent)> = counted
            .enumerate()
            .filter_map(|(column, event)| Some((column, requested_event(event)?)))
            .collect();
        // The counters' running time includes excluded levels, so it suits only counts of all
        // levels.
        let needs_all_levels = metric.formula.implicits().contains(&Implicit::CounterTime);
        let with_exclude = |exclude| {
            if needs_all_levels && exclude != Exclude::default() {
                return None;
            }
            let mut offer = Self {
                metric: filtered(metric, exclude)?,
                core: Vec::new(),
                others: Vec::new(),
            };
            for group in &groups {
                let mut core = Vec::new();
                for (name, needed) in group {
                    let counts_it = |(_, event): &&(usize, RequestedEvent)| {
                        event.counter == needed.counter && event.exclude == exclude
                    };
                    let (column, event) = counted.iter().find(counts_it)?;
                    let other = (name.clone(), *column);
                    match kind_of(event, pmus) {
                        PmuClass::Core(_) => core.push((name.clone(), event.clone())),
                        // Software events are the same for all kinds of core.
                        _ if offer.others.contains(&other) => {}
                        PmuClass::AlwaysRunning(_) | PmuClass::Uncore(_) => {
                            offer.others.push(other);
                        }
                    }
                }
                if !core.is_empty() {
                    offer.core.push(core);
                }
            }
            Some(offer)
        };
        // Counts of all levels come first.
        let excludes = counted.iter().map(|(_, event)| event.exclude);
        [Exclude::default()]
            .into_iter()
            .chain(excludes)
            .find_map(with_exclude)
    }
}

/// The metric for counts that exclude these levels. The name of a metric of user mode or of the
/// kernel alone says so. `None` for other exclusions.
fn filtered(metric: &Metric, exclude: Exclude) -> Option<Metric> {
    let Exclude { user, kernel, hv } = exclude;
    let (suffix, level) = match (user, kernel, hv) {
        (false, false, _) => return Some(metric.clone()),
        (false, true, true) => ("user", "user mode"),
        (true, false, true) => ("kernel", "the kernel"),
        _ => return None,
    };
    Some(Metric {
        name: format!("{}_{suffix}", metric.name),
        title: format!("{}, of {level} alone", metric.title),
        ..metric.clone()
    })
}

impl Plan {
    /// Lists the optional metrics after the requested ones. Returns their event sets.
    pub(super) fn offer(&mut self, offers: &[Offer]) -> Vec<EventSet> {
        let mut event_sets = Vec::new();
        for offer in offers {
            let at = self.metrics.list.len();
            for core in &offer.core {
                let (names, wanted) = core.iter().cloned().unzip();
                event_sets.push(EventSet {
                    wanted,
                    purpose: Purpose::Offered { at, names },
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

    /// Adds to the optional metrics, which are last in the list, the sources of their events of
    /// other PMUs than the core's. To be called when all events are placed.
    pub(super) fn join_offers(&mut self, offers: &[Offer]) {
        let first = self.metrics.list.len() - offers.len();
        for (offer, planned) in offers.iter().zip(&mut self.metrics.list[first..]) {
            let Ok(sources) = &mut planned.sources else {
                continue;
            };
            for (name, column) in &offer.others {
                let place = self.columns[*column].place;
                sources[0].events.push((name.clone(), place));
            }
        }
    }
}
