//! What must be counted together for the user's events, for metrics, and for their shares.

use super::ResolvedRequest;
use crate::{
    catalogue::{self, CounterGroup, Metric, Unavailable},
    event::{self, Event, EventError, Scope, Source},
    machine::{PmuKind, Pmus},
    plan::{
        Plan, RequestedEvent,
        weights::{self, RequestedWeight},
    },
};

/// Events that must be counted together, and their purpose.
pub(super) struct EventSet {
    pub(super) wanted: Vec<RequestedEvent>,
    pub(super) purpose: Purpose,
}

/// What an event set is counted for. `at` is an index into the metrics of the plan.
pub(super) enum Purpose {
    /// Events of the user: for each, the index of its column.
    Columns(Vec<usize>),
    /// A metric, the place that the value is for, and the names of the events in the formula.
    Metric {
        at: usize,
        place: catalogue::MetricPlace,
        names: Vec<String>,
    },
    /// An optional metric: counted if that costs no further group.
    Offered { at: usize, names: Vec<String> },
    /// Counts the part of a metric's traffic that devices cause, for the metric's shares.
    Io { at: usize },
    /// A weight, for shares.
    Weight(RequestedWeight),
}

/// The kind of PMU that counts an event set, and the PMU's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PmuClass {
    /// Always running: software events, and per-CPU PMUs that are not the core's.
    AlwaysRunning(Option<String>),
    Core(Option<String>),
    Uncore(Option<String>),
}

impl PmuClass {
    /// The class of this PMU's events that always run, such as weights that are not multiplexed.
    pub(super) fn always_running(&self) -> Self {
        match self {
            Self::Core(pmu) | Self::AlwaysRunning(pmu) | Self::Uncore(pmu) => {
                Self::AlwaysRunning(pmu.clone())
            }
        }
    }
}

impl EventSet {
    /// The name for messages: of the metric, or of the events.
    pub(super) fn name(&self, plan: &Plan) -> String {
        match self.purpose {
            Purpose::Metric { at, .. } | Purpose::Offered { at, .. } | Purpose::Io { at } => {
                plan.metrics.list[at].metric.name.clone()
            }
            Purpose::Columns(_) | Purpose::Weight(_) => {
                let names: Vec<&str> = self.wanted.iter().map(|it| it.name.as_str()).collect();
                names.join(",")
            }
        }
    }

    /// The event sets of a metric, one for each of its groups; or why it cannot be counted.
    pub(super) fn for_metric(
        metric: &Metric,
        at: usize,
        request: &ResolvedRequest<'_>,
        pmus: &Pmus,
    ) -> Result<Vec<Self>, String> {
        metric
            .valid_on(&request.machine)
            .map_err(|reason| reason.to_string())?;
        let groups = metric
            .groups(pmus, &request.settings)
            .map_err(|error: Unavailable| error.to_string())?;
        let mut event_sets: Vec<Self> = Vec::new();
        for group in groups {
            let wanted = Self::parsed(&group, pmus).map_err(|error| error.to_string())?;
            // Software events are the same for every kind of core.
            if event_sets.iter().any(|other| other.wanted == wanted) {
                continue;
            }
            let names = group.events.into_iter().map(|(name, _)| name).collect();
            event_sets.push(Self {
                wanted,
                purpose: Purpose::Metric {
                    at,
                    place: group.place,
                    names,
                },
            });
        }
        Ok(event_sets)
    }

    /// The events of a metric's group. A generic event stands for an event on each core PMU: that
    /// on the group's PMU is taken.
    pub(super) fn parsed(
        group: &CounterGroup,
        pmus: &Pmus,
    ) -> Result<Vec<RequestedEvent>, EventError> {
        let mut groups = event::parse(&group.text(), pmus)?;
        if groups.len() > 1 {
            groups.retain(|parsed| parsed.is_on(&group.pmu));
        }
        let events = groups.iter().flat_map(|group| &group.events);
        Ok(events.filter_map(requested_event).collect())
    }

    /// The event sets that count the devices' part of a metric: one for each unit of the PMU.
    pub(super) fn for_io(metric: &Metric, at: usize, pmus: &Pmus) -> Vec<Self> {
        let events = metric.io.iter();
        let texts = events.flat_map(|(pmu, event)| pmu.on_each(event, pmus));
        let parsed = texts.filter_map(|text| event::parse(&text, pmus).ok());
        parsed
            .map(|groups| {
                let events = groups.iter().flat_map(|group| &group.events);
                Self {
                    wanted: events.filter_map(requested_event).collect(),
                    purpose: Purpose::Io { at },
                }
            })
            .collect()
    }

    /// The event sets of the weights that shares of metrics need.
    pub(super) fn for_weights(request: &ResolvedRequest<'_>, pmus: &Pmus) -> Vec<Self> {
        let weights = weights::requested_weights(request, pmus).into_iter();
        weights
            .map(|(weight, wanted)| Self {
                wanted,
                purpose: Purpose::Weight(weight),
            })
            .collect()
    }

    /// The kind of PMU that counts the event set.
    pub(super) fn kind(&self, pmus: &Pmus) -> PmuClass {
        let kinds = self.wanted.iter().map(|wanted| kind_of(wanted, pmus));
        // If one event is the core's, the set is: software events may be in a group of the core.
        kinds.max().unwrap_or(PmuClass::AlwaysRunning(None))
    }
}

/// The kind of PMU that counts an event.
pub(super) fn kind_of(wanted: &RequestedEvent, pmus: &Pmus) -> PmuClass {
    let pmu = wanted.counter.pmu.clone();
    if let Scope::Uncore { .. } = wanted.counter.scope {
        return PmuClass::Uncore(pmu);
    }
    let is_core = match pmu.as_deref() {
        // A generic event: the kernel finds the PMU of each CPU.
        None => true,
        Some(name) => pmus
            .get(name)
            .and_then(Result::ok)
            .is_some_and(|pmu| pmu.kind == PmuKind::Core),
    };
    if is_core {
        PmuClass::Core(pmu)
    } else {
        PmuClass::AlwaysRunning(pmu)
    }
}

/// The request for an event's counter; `None` if the event is no counter.
pub(in crate::plan) fn requested_event(event: &Event) -> Option<RequestedEvent> {
    match &event.source {
        Source::DurationTime => None,
        Source::Counter(counter) => Some(RequestedEvent {
            name: event.name.clone(),
            counter: counter.clone(),
            exclude: event.exclude,
        }),
    }
}
