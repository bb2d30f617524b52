//! Packs the events of `-e` and those that metrics need into groups that the PMUs can run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    CountSource, EventColumn, Plan, Planned, RequestedEvent,
    capacity::{Capacity, Refusal},
    sampled,
    serialized::SerializedMetrics,
};
use crate::{
    catalogue::{self, Hardware, Metric, MetricSettings},
    event::{self, Event, EventError, EventGroup, Source},
    machine::Pmus,
    plan::PlanError,
};

mod event_set;
mod offer;
mod slots;
pub(super) use event_set::requested_event;
use event_set::{EventSet, PmuClass, Purpose};
use offer::Offer;
use slots::Slots;

/// What is to be counted and computed.
pub struct ResolvedRequest<'a> {
    /// The events of `-e`.
    pub events: &'a [EventGroup],
    /// The metrics of `-M`.
    pub metrics: &'a [&'a Metric],
    /// Optional metrics: shown if `events` has all events that they need.
    pub offered: &'a [&'a Metric],
    /// The hardware to count on.
    pub machine: Hardware,
    /// CPUs that are counted.
    pub cpus: usize,
    /// Filters such as `root_port`.
    pub settings: MetricSettings,
}

/// The metrics of a plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(into = "SerializedMetrics", try_from = "SerializedMetrics")]
pub struct PlannedMetrics {
    /// In the order of the request.
    pub list: Vec<PlannedMetric>,
    /// The hardware that they are evaluated for; `None` in a plan by [`Plan::new`].
    pub machine: Option<Hardware>,
    /// CPUs that are counted.
    pub cpus: usize,
}

/// A metric, and where its counts come from.
#[derive(Clone, Debug)]
pub struct PlannedMetric {
    /// The metric to compute.
    pub metric: Metric,
    /// One for each place with its own value (a single one for core metrics), or why the metric
    /// cannot be counted.
    pub sources: Result<Vec<MetricSource>, String>,
    /// The counters of the devices' part of its counts, on every unit of their PMU.
    pub io: Vec<CountSource>,
}

/// The counts of one value of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricSource {
    /// The place that the value is for.
    pub place: catalogue::MetricPlace,
    /// The source of each event, with its name in the formula. Counts with the same name are
    /// summed.
    pub events: Vec<(String, CountSource)>,
    /// The number of hardware units that are summed.
    pub units: usize,
}

impl Plan {
    /// Plans a request; groups that cannot all run at once are multiplexed.
    ///
    /// # Errors
    ///
    /// If a group of the user has too many events, needs counters of sampled events, or has an
    /// event that the hypervisor hides; or if two filters exclude each other.
    pub fn packed(
        request: &ResolvedRequest<'_>,
        pmus: &Pmus,
        capacity: &Capacity,
    ) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        let mut event_sets: BTreeMap<PmuClass, Vec<EventSet>> = BTreeMap::new();
        let mut add = |event_set: EventSet| {
            let kind = event_set.kind(pmus);
            event_sets.entry(kind).or_default().push(event_set);
        };
        for group in request.events {
            plan.columns_of(group).into_iter().for_each(&mut add);
        }
        for (at, metric) in request.metrics.iter().enumerate() {
            let sources = sampled::sources(metric, request, pmus).unwrap_or_else(|| {
                let event_sets = EventSet::for_metric(metric, at, request, pmus)?;
                event_sets.into_iter().for_each(&mut add);
                Ok(Vec::new())
            });
            plan.metrics.list.push(PlannedMetric {
                metric: (*metric).clone(),
                sources,
                io: Vec::new(),
            });
            EventSet::for_io(metric, at, pmus)
                .into_iter()
                .for_each(&mut add);
        }
        EventSet::for_weights(request, pmus)
            .into_iter()
            .for_each(&mut add);
        let offers = Offer::all(request, pmus);
        plan.offer(&offers).into_iter().for_each(&mut add);
        check_filters(event_sets.values().flatten(), request, pmus)?;
        let several_kinds = pmus.cores().nth(1).is_some();
        let pinned = slots::pin(&mut event_sets, capacity, &plan).unwrap_or_else(|why| {
            plan.weights_in_turns = Some(why);
            Vec::new()
        });
        // Groups that always run come before multiplexed ones, by the order of `PmuClass`.
        for (kind, event_sets) in &event_sets {
            let slots = Slots::new(capacity).without(&pinned, kind);
            plan.place_event_sets(kind, event_sets, several_kinds, slots)?;
        }
        plan.join_offers(&offers);
        plan.metrics.machine = Some(request.machine);
        plan.metrics.cpus = request.cpus;
        plan.cores = pmus.cores().filter_map(|pmu| pmu.cpus.clone()).collect();
        plan.checked()
    }

    /// Adds the columns of a group of the user, and returns the event sets to count for them.
    fn columns_of(&mut self, group: &EventGroup) -> Vec<EventSet> {
        let mut event_sets: Vec<EventSet> = Vec::new();
        for event in &group.events {
            let column = self.columns.len();
            // Replaced when its event set is placed.
            self.columns
                .push(EventColumn::new(event, CountSource::Duration));
            let Some(wanted) = requested_event(event) else {
                continue;
            };
            match (event_sets.last_mut(), group.explicit) {
                (Some(event_set), true) => {
                    event_set.wanted.push(wanted);
                    if let Purpose::Columns(columns) = &mut event_set.purpose {
                        columns.push(column);
                    }
                }
                _ => event_sets.push(EventSet {
                    wanted: vec![wanted],
                    purpose: Purpose::Columns(vec![column]),
                }),
            }
        }
        event_sets
    }

    /// Packs the event sets of a kind of PMU into groups, and sets where each is counted.
    fn place_event_sets(
        &mut self,
        kind: &PmuClass,
        event_sets: &[EventSet],
        several_kinds: bool,
        slots: Slots<'_>,
    ) -> Result<(), PlanError> {
        let (event_sets, left_out) = choose_event_sets(event_sets, slots);
        let mut packed = slots.packed(&event_sets);
        for (event_set, index) in event_sets.iter().zip(&mut packed.group_of) {
            // A group of the user that does not fit is opened as it is, and the kernel says what is
            // wrong with it. A group that would take the counters of sampled events is refused
            // here, and so is a hidden event, which would count 0.
            if index.is_none() && matches!(event_set.purpose, Purpose::Columns(_)) {
                let events = || event_set.name(self);
                match slots.can_schedule(&event_set.wanted) {
                    Err(why @ Refusal::SampledConflict { .. }) => {
                        return Err(PlanError::SampledConflict {
                            events: events(),
                            why: why.to_string(),
                        });
                    }
                    Err(why @ Refusal::ArchitecturalOnly) => {
                        return Err(PlanError::Hidden {
                            events: events(),
                            why: why.to_string(),
                        });
                    }
                    Ok(()) | Err(_) => {}
                }
                *index = Some(packed.groups.len());
                packed.groups.push(event_set.wanted.clone());
            }
        }
        // Hardware events come first: the first event leads its group, and sessions take a group
        // with a software leader for one without hardware events. A scheduler event is not opened,
        // so it cannot lead.
        for group in &mut packed.groups {
            group.sort_by_key(|RequestedEvent { counter, .. }| {
                (!counter.is_hardware(), counter.is_of_scheduler())
            });
        }
        let first_group = match kind {
            PmuClass::Uncore(_) => self.uncore_groups.len(),
            PmuClass::AlwaysRunning(_) | PmuClass::Core(_) => self.groups.len(),
        };
        for group in &packed.groups {
            self.add_group(kind, group, &event_sets);
        }
        if matches!(kind, PmuClass::Core(_)) && (several_kinds || packed.groups.len() > 1) {
            self.rotated += packed.groups.len();
        }
        // A set that was left out may still be in a group of the user.
        let containing_group = |event_set: &&EventSet| {
            let has_all =
                |group: &Vec<RequestedEvent>| event_set.wanted.iter().all(|it| group.contains(it));
            packed.groups.iter().position(has_all)
        };
        let left_out: Vec<(&EventSet, Option<usize>)> = left_out
            .iter()
            .map(|it| (*it, containing_group(it)))
            .collect();
        for (event_set, index) in event_sets.into_iter().zip(packed.group_of).chain(left_out) {
            match index {
                Some(index) => {
                    let group = &packed.groups[index];
                    let places = event_set.wanted.iter().map(|wanted| {
                        let at = group
                            .iter()
                            .position(|event| event == wanted)
                            .expect("an event set is whole in its group");
                        self.place_of(kind, first_group + index, at)
                    });
                    let places: Vec<CountSource> = places.collect();
                    self.assign_places(event_set, &places);
                }
                None => self.record_refusal(event_set, slots),
            }
        }
        Ok(())
    }

    /// Records the reason why no group holds a metric's event set.
    fn record_refusal(&mut self, event_set: &EventSet, slots: Slots<'_>) {
        let (Purpose::Metric { at, .. } | Purpose::Offered { at, .. }) = event_set.purpose else {
            return;
        };
        let planned = &mut self.metrics.list[at];
        match (slots.can_schedule(&event_set.wanted), &event_set.purpose) {
            (Err(refusal), _) => planned.sources = Err(refusal.to_string()),
            (Ok(()), Purpose::Offered { .. }) => {
                planned.sources = Err(format!(
                    "its events are in groups that take turns, so they were not counted at one \
                     time: \
                     -M {} counts them together",
                    planned.metric.name
                ));
            }
            (Ok(()), _) => {}
        }
    }

    /// Adds a group, with columns for its events.
    fn add_group(&mut self, kind: &PmuClass, group: &[RequestedEvent], event_sets: &[&EventSet]) {
        let first_uncore = self.uncore.len();
        let mut planned = Vec::new();
        for wanted in group {
            planned.push(Planned {
                column: self.column_for(wanted, event_sets),
                counter: wanted.counter.clone(),
                exclude: wanted.exclude,
            });
        }
        if matches!(kind, PmuClass::Uncore(_)) {
            self.uncore.extend(planned);
            self.uncore_groups.push(first_uncore..self.uncore.len());
        } else {
            self.groups.push(planned);
        }
    }

    /// The user's column of an event, or a new one that is not shown.
    fn column_for(&mut self, wanted: &RequestedEvent, event_sets: &[&EventSet]) -> usize {
        let users_column = event_sets
            .iter()
            .find_map(|event_set| match &event_set.purpose {
                Purpose::Columns(columns) => {
                    let at = event_set.wanted.iter().position(|event| event == wanted)?;
                    Some(columns[at])
                }
                _ => None,
            });
        users_column.unwrap_or_else(|| {
            let event = Event {
                name: wanted.name.clone(),
                source: Source::Counter(wanted.counter.clone()),
                exclude: wanted.exclude,
                unit: None,
                scale: None,
            };
            self.columns.push(EventColumn {
                shown: false,
                ..EventColumn::new(&event, CountSource::Duration)
            });
            self.columns.len() - 1
        })
    }

    /// Where event `at` of a group is counted.
    fn place_of(&self, kind: &PmuClass, group: usize, at: usize) -> CountSource {
        match kind {
            PmuClass::Uncore(_) => CountSource::Uncore {
                at: self.uncore_groups[group].start + at,
            },
            PmuClass::AlwaysRunning(_) | PmuClass::Core(_) => CountSource::Core { group, at },
        }
    }

    /// Sets where the counts of an event set come from; `places` has one for each event.
    fn assign_places(&mut self, event_set: &EventSet, places: &[CountSource]) {
        match &event_set.purpose {
            Purpose::Columns(columns) => {
                for (column, place) in columns.iter().zip(places) {
                    self.columns[*column].place = *place;
                }
            }
            Purpose::Metric { at, place, names } => {
                // If another event set of the metric did not fit, the metric has no value.
                let Ok(sources) = &mut self.metrics.list[*at].sources else {
                    return;
                };
                let existing = sources.iter().position(|source| source.place == *place);
                let source = existing.unwrap_or_else(|| {
                    sources.push(MetricSource {
                        place: place.clone(),
                        ..MetricSource::default()
                    });
                    sources.len() - 1
                });
                let events = names.iter().cloned().zip(places.iter().copied());
                sources[source].events.extend(events);
                sources[source].units += 1;
            }
            Purpose::Offered { at, names } => {
                let sources = self.metrics.list[*at].sources.iter_mut().flatten();
                let events = || names.iter().cloned().zip(places.iter().copied());
                sources.for_each(|source| source.events.extend(events()));
            }
            Purpose::Io { at } => self.metrics.list[*at].io.extend(places),
            Purpose::Weight(weight) => self.weights.extend(weight.placed_at(places)),
        }
    }
}

/// The event sets to count: all requested ones, and those of optional metrics that add no group and
/// so cost no multiplexing time. The second list has the optional sets that were left out.
fn choose_event_sets<'a>(
    event_sets: &'a [EventSet],
    slots: Slots<'_>,
) -> (Vec<&'a EventSet>, Vec<&'a EventSet>) {
    let is_offered = |event_set: &&EventSet| matches!(event_set.purpose, Purpose::Offered { .. });
    let (offered, mut chosen): (Vec<&EventSet>, Vec<&EventSet>) =
        event_sets.iter().partition(is_offered);
    let groups = slots.packed(&chosen).groups.len();
    let mut left_out = Vec::new();
    for event_set in offered {
        chosen.push(event_set);
        let packed = slots.packed(&chosen);
        if packed.groups.len() > groups || packed.group_of.last() == Some(&None) {
            left_out.extend(chosen.pop());
        }
    }
    (chosen, left_out)
}

/// Rejects filters of events and of metrics that exclude each other. Parsing has checked only the
/// filters within each list.
fn check_filters<'a>(
    event_sets: impl Iterator<Item = &'a EventSet>,
    request: &ResolvedRequest<'_>,
    pmus: &Pmus,
) -> Result<(), EventError> {
    let with_names = |event_set: &'a EventSet| {
        let metric = match event_set.purpose {
            Purpose::Metric { at, .. } | Purpose::Io { at } => Some(&request.metrics[at].name),
            Purpose::Columns(_) | Purpose::Offered { .. } | Purpose::Weight(_) => None,
        };
        event_set.wanted.iter().map(move |wanted| {
            let name = match metric {
                Some(metric) => format!("{metric}: {}", wanted.name),
                None => wanted.name.clone(),
            };
            (name, &wanted.counter)
        })
    };
    let named: Vec<_> = event_sets.flat_map(with_names).collect();
    let by_name = named
        .iter()
        .map(|(name, counter)| (name.as_str(), *counter));
    event::check_filters(by_name, pmus)
}

#[cfg(test)]
mod tests;
