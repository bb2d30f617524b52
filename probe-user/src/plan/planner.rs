//! Planner: the events of `-e` and those that metrics need, packed into groups that the PMUs can
//! run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Column, CountSource, Plan, Planned, RequestedEvent,
    capacity::{Capacity, Refusal},
    recorded::Recorded,
    sampled,
};
use crate::{
    catalogue::{self, Hardware, Metric, Settings},
    event::{self, Event, EventError, EventGroup, Source},
    machine::Pmus,
    plan::PlanError,
};

mod event_set;
mod offer;
mod room;
pub(super) use event_set::wanted;
use event_set::{EventSet, Kind, Whose};
use offer::Offer;
use room::Room;

/// What is to be counted and computed.
pub struct Request<'a> {
    /// Of `-e`.
    pub events: &'a [EventGroup],
    /// Of `-M`.
    pub metrics: &'a [&'a Metric],
    /// Metrics that are shown where `events` hold all that they need.
    pub offered: &'a [&'a Metric],
    /// What it is counted on.
    pub machine: Hardware,
    /// CPUs that are counted.
    pub cpus: usize,
    /// Filters such as `root_port`.
    pub settings: Settings,
}

/// The metrics of a plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(into = "Recorded", try_from = "Recorded")]
pub struct PlannedMetrics {
    /// In the order of the request.
    pub list: Vec<PlannedMetric>,
    /// What they are evaluated for; None where there are none.
    pub machine: Option<Hardware>,
    /// CPUs that are counted.
    pub cpus: usize,
}

/// A metric, and where its counts come from.
#[derive(Clone, Debug)]
pub struct PlannedMetric {
    /// What is computed.
    pub metric: Metric,
    /// By place that has a value of its own: one for core metrics. Or why it cannot be counted.
    pub sources: Result<Vec<MetricSource>, String>,
    /// Where the part of devices in its counts is counted, on every unit of that PMU.
    pub io: Vec<CountSource>,
}

/// The counts of one value of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricSource {
    /// What the value is for.
    pub place: catalogue::Place,
    /// By the name that the formula uses; counts of one name are added up.
    pub events: Vec<(String, CountSource)>,
    /// Units of the hardware that are added up.
    pub units: usize,
}

impl Plan {
    /// Packs what is asked for; groups that cannot all be live at once are rotated.
    ///
    /// # Errors
    ///
    /// Where the user's own groups hold more events than a group can, or two filters exclude each
    /// other.
    pub fn packed(
        request: &Request<'_>,
        pmus: &Pmus,
        capacity: &Capacity,
    ) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        let mut event_sets: BTreeMap<Kind, Vec<EventSet>> = BTreeMap::new();
        let mut add = |event_set: EventSet| {
            let kind = event_set.kind(pmus);
            event_sets.entry(kind).or_default().push(event_set);
        };
        for group in request.events {
            plan.columns_of(group).into_iter().for_each(&mut add);
        }
        for (at, metric) in request.metrics.iter().enumerate() {
            let sources = sampled::sources(metric, request, pmus).unwrap_or_else(|| {
                let event_sets = EventSet::of_metric(metric, at, request, pmus)?;
                event_sets.into_iter().for_each(&mut add);
                Ok(Vec::new())
            });
            plan.metrics.list.push(PlannedMetric {
                metric: (*metric).clone(),
                sources,
                io: Vec::new(),
            });
            EventSet::of_io(metric, at, pmus)
                .into_iter()
                .for_each(&mut add);
        }
        EventSet::of_weights(request, pmus)
            .into_iter()
            .for_each(&mut add);
        let offers = Offer::all(request, pmus);
        plan.offer(&offers).into_iter().for_each(&mut add);
        check_filters(event_sets.values().flatten(), request, pmus)?;
        let several_kinds = pmus.cores().nth(1).is_some();
        let pinned = room::pin(&mut event_sets, capacity, &plan).unwrap_or_else(|why| {
            plan.weights_in_turns = Some(why);
            Vec::new()
        });
        // Fixed groups come before rotated ones: by Kind's order, `Beside` before `Core`.
        for (kind, event_sets) in &event_sets {
            let room = Room::of(capacity).beside(&pinned, kind);
            plan.place(kind, event_sets, several_kinds, room)?;
        }
        plan.join_offers(&offers);
        plan.metrics.machine = Some(request.machine);
        plan.metrics.cpus = request.cpus;
        plan.cores = pmus.cores().filter_map(|pmu| pmu.cpus.clone()).collect();
        plan.checked()
    }

    /// Adds the columns of a group of the user's, and returns what must be counted for them.
    fn columns_of(&mut self, group: &EventGroup) -> Vec<EventSet> {
        let mut event_sets: Vec<EventSet> = Vec::new();
        for event in &group.events {
            let column = self.columns.len();
            // Until its event set is placed.
            self.columns.push(Column::of(event, CountSource::Duration));
            let Some(wanted) = wanted(event) else {
                continue;
            };
            match (event_sets.last_mut(), group.explicit) {
                (Some(event_set), true) => {
                    event_set.wanted.push(wanted);
                    if let Whose::Columns(columns) = &mut event_set.whose {
                        columns.push(column);
                    }
                }
                _ => event_sets.push(EventSet {
                    wanted: vec![wanted],
                    whose: Whose::Columns(vec![column]),
                }),
            }
        }
        event_sets
    }

    fn place(
        &mut self,
        kind: &Kind,
        event_sets: &[EventSet],
        several_kinds: bool,
        room: Room<'_>,
    ) -> Result<(), PlanError> {
        let (event_sets, left) = choose(event_sets, room);
        let mut packed = room.packed(&event_sets);
        for (event_set, of) in event_sets.iter().zip(&mut packed.of) {
            // What the user wants together is opened as it is: the kernel says what is wrong with
            // it. Beside what is sampled it would take counters from that.
            if of.is_none() && matches!(event_set.whose, Whose::Columns(_)) {
                if let Err(why @ Refusal::BesideSampled { .. }) =
                    room.can_schedule(&event_set.wanted)
                {
                    return Err(PlanError::BesideSampled {
                        events: event_set.name(self),
                        why: why.to_string(),
                    });
                }
                *of = Some(packed.groups.len());
                packed.groups.push(event_set.wanted.clone());
            }
        }
        // A software event cannot lead a group that hardware events join.
        for group in &mut packed.groups {
            group.sort_by_key(|wanted| wanted.counter.type_ == super::SOFTWARE);
        }
        let base = match kind {
            Kind::Uncore(_) => self.uncore_groups.len(),
            Kind::Beside(_) | Kind::Core(_) => self.groups.len(),
        };
        for group in &packed.groups {
            self.add_group(kind, group, &event_sets);
        }
        if matches!(kind, Kind::Core(_)) && (several_kinds || packed.groups.len() > 1) {
            self.rotated += packed.groups.len();
        }
        // What is left may still be in a group that the user made.
        let held = |event_set: &&EventSet| {
            let holds =
                |group: &Vec<RequestedEvent>| event_set.wanted.iter().all(|it| group.contains(it));
            packed.groups.iter().position(holds)
        };
        let left: Vec<(&EventSet, Option<usize>)> = left.iter().map(|it| (*it, held(it))).collect();
        for (event_set, of) in event_sets.into_iter().zip(packed.of).chain(left) {
            match of {
                Some(of) => {
                    let group = &packed.groups[of];
                    let places = event_set.wanted.iter().map(|wanted| {
                        let at = group.iter().position(|event| event == wanted);
                        let at = at.expect("a event_set is whole in its group");
                        self.place_of(kind, base + of, at)
                    });
                    let places: Vec<CountSource> = places.collect();
                    self.give(event_set, &places);
                }
                None => self.refuse(event_set, room),
            }
        }
        Ok(())
    }

    /// Says of a metric why no group holds it.
    fn refuse(&mut self, event_set: &EventSet, room: Room<'_>) {
        let (Whose::Metric { at, .. } | Whose::Offered { at, .. }) = event_set.whose else {
            return;
        };
        let planned = &mut self.metrics.list[at];
        match (room.can_schedule(&event_set.wanted), &event_set.whose) {
            (Err(refusal), _) => planned.sources = Err(refusal.to_string()),
            (Ok(()), Whose::Offered { .. }) => {
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

    fn add_group(&mut self, kind: &Kind, group: &[RequestedEvent], event_sets: &[&EventSet]) {
        let first = self.uncore.len();
        let mut planned = Vec::new();
        for wanted in group {
            planned.push(Planned {
                column: self.column_for(wanted, event_sets),
                counter: wanted.counter.clone(),
                exclude: wanted.exclude,
            });
        }
        if matches!(kind, Kind::Uncore(_)) {
            self.uncore.extend(planned);
            self.uncore_groups.push(first..self.uncore.len());
        } else {
            self.groups.push(planned);
        }
    }

    /// The user's column of that event, or one that is not shown.
    fn column_for(&mut self, wanted: &RequestedEvent, event_sets: &[&EventSet]) -> usize {
        let own = event_sets
            .iter()
            .find_map(|event_set| match &event_set.whose {
                Whose::Columns(columns) => {
                    let at = event_set.wanted.iter().position(|event| event == wanted)?;
                    Some(columns[at])
                }
                _ => None,
            });
        own.unwrap_or_else(|| {
            let event = Event {
                name: wanted.name.clone(),
                source: Source::Counter(wanted.counter.clone()),
                exclude: wanted.exclude,
                unit: None,
                scale: None,
            };
            self.columns.push(Column {
                shown: false,
                ..Column::of(&event, CountSource::Duration)
            });
            self.columns.len() - 1
        })
    }

    fn place_of(&self, kind: &Kind, group: usize, at: usize) -> CountSource {
        match kind {
            Kind::Uncore(_) => CountSource::Uncore {
                at: self.uncore_groups[group].start + at,
            },
            Kind::Beside(_) | Kind::Core(_) => CountSource::Core { group, at },
        }
    }

    fn give(&mut self, event_set: &EventSet, places: &[CountSource]) {
        match &event_set.whose {
            Whose::Columns(columns) => {
                for (column, place) in columns.iter().zip(places) {
                    self.columns[*column].place = *place;
                }
            }
            Whose::Metric { at, place, names } => {
                // One of its groups has no room: a part is not the whole.
                let Ok(sources) = &mut self.metrics.list[*at].sources else {
                    return;
                };
                let known = sources.iter().position(|source| source.place == *place);
                let source = known.unwrap_or_else(|| {
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
            Whose::Offered { at, names } => {
                let sources = self.metrics.list[*at].sources.iter_mut().flatten();
                let events = || names.iter().cloned().zip(places.iter().copied());
                sources.for_each(|source| source.events.extend(events()));
            }
            Whose::Io { at } => self.metrics.list[*at].io.extend(places),
            Whose::Weight(weight) => self.weights.extend(weight.at(places)),
        }
    }
}

/// All that is asked for, and of what is offered that for which its events need no further group:
/// nobody's live share is less for a metric that nobody asked for. Then what is left of the
/// offered.
fn choose<'a>(
    event_sets: &'a [EventSet],
    room: Room<'_>,
) -> (Vec<&'a EventSet>, Vec<&'a EventSet>) {
    let is_offered = |event_set: &&EventSet| matches!(event_set.whose, Whose::Offered { .. });
    let (offered, mut chosen): (Vec<&EventSet>, Vec<&EventSet>) =
        event_sets.iter().partition(is_offered);
    let groups = room.packed(&chosen).groups.len();
    let mut left = Vec::new();
    for event_set in offered {
        chosen.push(event_set);
        let packed = room.packed(&chosen);
        if packed.groups.len() > groups || packed.of.last() == Some(&None) {
            left.extend(chosen.pop());
        }
    }
    (chosen, left)
}

/// Refuses filters of events and of metrics' events that exclude each other: each was parsed by
/// itself.
fn check_filters<'a>(
    event_sets: impl Iterator<Item = &'a EventSet>,
    request: &Request<'_>,
    pmus: &Pmus,
) -> Result<(), EventError> {
    let named = |event_set: &'a EventSet| {
        let metric = match event_set.whose {
            Whose::Metric { at, .. } | Whose::Io { at } => Some(&request.metrics[at].name),
            Whose::Columns(_) | Whose::Offered { .. } | Whose::Weight(_) => None,
        };
        event_set.wanted.iter().map(move |wanted| {
            let name = match metric {
                Some(metric) => format!("{metric}: {}", wanted.name),
                None => wanted.name.clone(),
            };
            (name, &wanted.counter)
        })
    };
    let all: Vec<_> = event_sets.flat_map(named).collect();
    let all = all.iter().map(|(name, counter)| (name.as_str(), *counter));
    event::check_filters(all, pmus)
}

#[cfg(test)]
mod tests;
