//! The counters of the cores, and what `stat`, `top` and `agent` count with them by default.

mod report;

use std::collections::BTreeSet;

use tracing::subscriber::{NoSubscriber, with_default};

use super::Subject;
use crate::{
    agent,
    catalogue::{Catalogue, Hardware},
    event::UncountableEvent,
    machine::{Machine, Pmus},
    plan::{
        Capacity, CoreCounters, NO_COUNTER, Plan, PlanRequest, PlanRequestError, Planned,
        RESERVE_COUNTERS,
    },
};

/// The command with default events of its own.
const AGENT: &[&str] = &["agent"];

/// What the cores of a machine count at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterProfile {
    /// The core PMUs: none, or one for each kind of core.
    pub pmus: Vec<CorePmu>,
    /// Whether the hypervisor lets the machine count only architectural events.
    pub architectural_only: bool,
    /// The default events, by command.
    pub defaults: Vec<DefaultEvents>,
}

/// The counters of a core PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorePmu {
    /// Name of the PMU.
    pub name: String,
    /// Its counters; None if it is not known how many it has.
    pub(crate) counters: Option<CoreCounters>,
}

/// What commands count if the user names nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultEvents {
    /// The commands.
    pub verbs: &'static [&'static str],
    /// Events of the cores that are counted all the time.
    pub at_one_time: Vec<String>,
    /// Groups that are multiplexed.
    pub multiplexed: Vec<MultiplexedGroup>,
    /// Events that take no counter.
    pub without_counter: Vec<String>,
    /// Metrics with a value.
    pub metrics: Vec<String>,
    /// Events and metrics that are not counted, and why.
    pub left_out: Vec<UncountableEvent>,
    /// The default events of the cores together, as they would be multiplexed; None if there is a
    /// counter for each.
    pub all: Option<MultiplexedGroup>,
    /// Why nothing can be counted.
    pub error: Option<String>,
}

/// Events that are multiplexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiplexedGroup {
    /// The events.
    pub events: Vec<String>,
    /// The number of groups that share the counters of a CPU, one after the other. Each runs for
    /// `1 / one_of` of the time.
    pub one_of: usize,
}

impl CounterProfile {
    /// The profile of the subject's machine; None if its PMUs cannot be read, or counting is not
    /// permitted.
    pub(super) fn for_subject(subject: &Subject, pmus: Option<&Pmus>) -> Option<Self> {
        if !subject.may_count() {
            return None;
        }
        let planner = Planner {
            subject,
            machine: &subject.machine,
            pmus: pmus?,
            catalogue: &Catalogue::builtin().ok()?,
            hardware: Hardware::detect(&subject.machine),
        };
        // Plans without a log, since doctor itself reports what the commands would log.
        with_default(NoSubscriber::new(), || planner.profile()).ok()
    }
}

/// Makes the plans of commands that count their defaults.
struct Planner<'a> {
    subject: &'a Subject,
    machine: &'a Machine,
    pmus: &'a Pmus,
    catalogue: &'a Catalogue,
    hardware: Hardware,
}

impl Planner<'_> {
    fn profile(&self) -> Result<CounterProfile, PlanRequestError> {
        let windows = PlanRequest {
            reserve_counters: RESERVE_COUNTERS,
            waits: self.machine.keeps_waits(),
            rates: true,
            ..PlanRequest::default()
        };
        let capacity = self.capacity(&windows)?;
        let plan = windows.plan_within(&capacity, self.machine, self.catalogue, self.hardware);
        let stat_and_top = self.defaults(&["stat", "top"], plan, &capacity);
        let agent = agent::default_request(self.machine);
        let agent_defaults = self.capacity(&agent).map(|capacity| {
            let (machine, catalogue) = (self.machine, self.catalogue);
            let plan = agent::plan_within(&agent, &capacity, machine, catalogue, self.hardware);
            self.defaults(AGENT, plan, &capacity)
        })?;
        let pmus = self.pmus.cores().map(|pmu| CorePmu {
            name: pmu.name.clone(),
            counters: capacity.core_counters(&pmu.name, self.pmus),
        });
        Ok(CounterProfile {
            pmus: pmus.collect(),
            architectural_only: capacity.is_architectural_only(),
            defaults: vec![stat_and_top, agent_defaults],
        })
    }

    fn capacity(&self, request: &PlanRequest) -> Result<Capacity, PlanRequestError> {
        let trials = &self.subject.trials;
        trials.capacity(request, self.machine, self.catalogue, &self.hardware)
    }

    fn defaults(
        &self,
        verbs: &'static [&'static str],
        plan: Result<Plan, PlanRequestError>,
        capacity: &Capacity,
    ) -> DefaultEvents {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                return DefaultEvents {
                    verbs,
                    error: Some(error.to_string()),
                    ..DefaultEvents::default()
                };
            }
        };
        let mut default_events = DefaultEvents {
            verbs,
            left_out: plan.left_out.clone(),
            ..DefaultEvents::default()
        };
        // In the order of the columns, which is by importance.
        let names = |planned: Vec<&Planned>| {
            let columns: BTreeSet<usize> = planned.iter().map(|planned| planned.column).collect();
            let names = columns.into_iter().map(|at| plan.columns[at].name.clone());
            names.collect::<Vec<_>>()
        };
        let (hardware, software) = plan
            .groups
            .iter()
            .enumerate()
            .flat_map(|(group, planned)| planned.iter().map(move |planned| (group, planned)))
            .partition::<Vec<_>, _>(|(_, planned)| planned.counter.is_hardware());
        default_events.without_counter =
            names(software.into_iter().map(|(_, planned)| planned).collect());
        let mut at_one_time = Vec::new();
        for in_group in hardware.chunk_by(|a, b| a.0 == b.0) {
            let planned = in_group.iter().map(|(_, planned)| *planned);
            match self.one_of(&plan, in_group[0].0) {
                1 => at_one_time.extend(planned),
                one_of => default_events.multiplexed.push(MultiplexedGroup {
                    events: names(planned.collect()),
                    one_of,
                }),
            }
        }
        default_events.at_one_time = names(at_one_time);
        for planned in &plan.metrics.list {
            let name = planned.metric.name.clone();
            match &planned.sources {
                Ok(_) => default_events.metrics.push(name),
                Err(reason) => default_events.left_out.push(UncountableEvent {
                    name,
                    reason: reason.clone(),
                }),
            }
        }
        default_events.all = self.all(&default_events, capacity);
        default_events
    }

    /// How many groups share the counters of a CPU one after the other, including this one.
    fn one_of(&self, plan: &Plan, group: usize) -> usize {
        if group < plan.fixed() {
            return 1;
        }
        let online = self.machine.online().unwrap_or_default();
        let cpu = online.iter().find(|cpu| plan.counts_on(group, *cpu));
        cpu.map_or(1, |cpu| plan.multiplexed_groups(cpu).count().max(1))
    }

    /// All default events of the cores as they would be multiplexed; None unless some of them have
    /// no counter.
    fn all(&self, default_events: &DefaultEvents, capacity: &Capacity) -> Option<MultiplexedGroup> {
        let left_out = default_events
            .left_out
            .iter()
            .filter(|it| it.reason == NO_COUNTER);
        let left_out: Vec<&String> = left_out.map(|event| &event.name).collect();
        if left_out.is_empty() || self.pmus.cores().count() > 1 {
            return None;
        }
        let events: Vec<String> = default_events
            .at_one_time
            .iter()
            .chain(left_out)
            .cloned()
            .collect();
        let request = PlanRequest {
            events: vec![events.join(",")],
            ..PlanRequest::default()
        };
        let (machine, catalogue) = (self.machine, self.catalogue);
        let plan = request.plan_within(capacity, machine, catalogue, self.hardware);
        let plan = plan.ok()?;
        let groups = (0..plan.groups.len()).map(|group| self.one_of(&plan, group));
        Some(MultiplexedGroup {
            events,
            one_of: groups.max()?,
        })
    }
}
