//! What must be counted together, for the user's events, metrics, and the shares of metrics.

use super::Request;
use crate::{
    catalogue::{self, CounterGroup, Metric, Unavailable},
    event::{self, Event, EventError, Scope, Source},
    machine::{PmuKind, Pmus},
    plan::{
        Plan, RequestedEvent,
        weights::{self, RequestedWeight},
    },
};

/// Events that must be counted together, and who wants them.
pub(super) struct EventSet {
    pub(super) wanted: Vec<RequestedEvent>,
    pub(super) whose: Whose,
}

pub(super) enum Whose {
    /// Columns of the user's events, in the order of the events.
    Columns(Vec<usize>),
    /// A metric, the value's place, and the names of the events in the formula.
    Metric {
        at: usize,
        place: catalogue::Place,
        names: Vec<String>,
    },
    /// A metric that the user's events hold all of: taken where that costs no further group.
    Offered { at: usize, names: Vec<String> },
    /// Shares: the part of devices in a metric's counts.
    Io { at: usize },
    /// Shares: who caused them.
    Weight(RequestedWeight),
}

/// On which PMU an event set counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Always live: software events, and PMUs per CPU that are not the core's.
    Beside(Option<String>),
    Core(Option<String>),
    Uncore(Option<String>),
}

impl Kind {
    /// The same PMU, always live.
    pub(super) fn beside(&self) -> Self {
        match self {
            Self::Core(pmu) | Self::Beside(pmu) | Self::Uncore(pmu) => Self::Beside(pmu.clone()),
        }
    }
}

impl EventSet {
    /// What the user calls it.
    pub(super) fn name(&self, plan: &Plan) -> String {
        match self.whose {
            Whose::Metric { at, .. } | Whose::Offered { at, .. } | Whose::Io { at } => {
                plan.metrics.list[at].metric.name.clone()
            }
            Whose::Columns(_) | Whose::Weight(_) => {
                let names: Vec<&str> = self.wanted.iter().map(|it| it.name.as_str()).collect();
                names.join(",")
            }
        }
    }

    /// What a metric needs, in each of its places; or why it cannot be counted.
    pub(super) fn of_metric(
        metric: &Metric,
        at: usize,
        request: &Request<'_>,
        pmus: &Pmus,
    ) -> Result<Vec<Self>, String> {
        metric
            .valid_on(&request.machine)
            .map_err(|reason| reason.to_string())?;
        let groups = metric.groups(pmus, &request.settings);
        let groups = groups.map_err(|error: Unavailable| error.to_string())?;
        let mut event_sets: Vec<Self> = Vec::new();
        for group in groups {
            let wanted = Self::parsed(&group, pmus).map_err(|error| error.to_string())?;
            // What the kernel counts itself is the same for every kind of core.
            if event_sets.iter().any(|other| other.wanted == wanted) {
                continue;
            }
            let names = group.events.into_iter().map(|(name, _)| name).collect();
            event_sets.push(Self {
                wanted,
                whose: Whose::Metric {
                    at,
                    place: group.place,
                    names,
                },
            });
        }
        Ok(event_sets)
    }

    /// The events of a metric's group, those on its own PMU where generic events stand for those of
    /// each.
    pub(super) fn parsed(
        group: &CounterGroup,
        pmus: &Pmus,
    ) -> Result<Vec<RequestedEvent>, EventError> {
        let mut groups = event::parse(&group.text(), pmus)?;
        if groups.len() > 1 {
            groups.retain(|parsed| parsed.is_on(&group.pmu));
        }
        let events = groups.iter().flat_map(|group| &group.events);
        Ok(events.filter_map(wanted).collect())
    }

    /// The events that count the part of devices, on every unit of their PMU.
    pub(super) fn of_io(metric: &Metric, at: usize, pmus: &Pmus) -> Vec<Self> {
        let events = metric.io.iter();
        let texts = events.flat_map(|(pmu, event)| pmu.on_each(event, pmus));
        let parsed = texts.filter_map(|text| event::parse(&text, pmus).ok());
        parsed
            .map(|groups| {
                let events = groups.iter().flat_map(|group| &group.events);
                Self {
                    wanted: events.filter_map(wanted).collect(),
                    whose: Whose::Io { at },
                }
            })
            .collect()
    }

    /// What the shares of these metrics need.
    pub(super) fn of_weights(request: &Request<'_>, pmus: &Pmus) -> Vec<Self> {
        let weights = weights::wanted(request, pmus).into_iter();
        weights
            .map(|(weight, wanted)| Self {
                wanted,
                whose: Whose::Weight(weight),
            })
            .collect()
    }

    /// On which PMU it counts.
    pub(super) fn kind(&self, pmus: &Pmus) -> Kind {
        let kinds = self.wanted.iter().map(|wanted| kind_of(wanted, pmus));
        // A core event decides: software events may be in its group.
        kinds.max().unwrap_or(Kind::Beside(None))
    }
}

/// On which PMU an event counts.
pub(super) fn kind_of(wanted: &RequestedEvent, pmus: &Pmus) -> Kind {
    let pmu = wanted.counter.pmu.clone();
    if let Scope::Uncore { .. } = wanted.counter.scope {
        return Kind::Uncore(pmu);
    }
    let core = match pmu.as_deref() {
        // Found by the kernel on each CPU.
        None => true,
        Some(name) => pmus
            .get(name)
            .and_then(Result::ok)
            .is_some_and(|pmu| pmu.kind == PmuKind::Core),
    };
    if core {
        Kind::Core(pmu)
    } else {
        Kind::Beside(pmu)
    }
}

/// None for what is no counter.
pub(in crate::plan) fn wanted(event: &Event) -> Option<RequestedEvent> {
    match &event.source {
        Source::DurationTime => None,
        Source::Counter(counter) => Some(RequestedEvent {
            name: event.name.clone(),
            counter: counter.clone(),
            exclude: event.exclude,
        }),
    }
}
