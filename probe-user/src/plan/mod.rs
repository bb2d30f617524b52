//! Plan: what is counted, and by which counters. Every event of `-e` and of metrics gets a place in
//! a counter group, on the uncore PMUs, or on the clock. Groups that cannot be counted at one time
//! are multiplexed.

mod capacity;
mod checked;
mod defaults;
mod degrade;
mod error;
mod pack;
mod plan_request;
mod planner;
mod sampled;
mod select_metrics;
mod serialized;
#[cfg(test)]
pub(crate) mod tests;
mod time_only;
mod weights;

use std::{ops::Range, sync::Arc};

use probe_common::{GROUP_COUNTERS, GROUPS, SLOTS, SchedulerCounter};
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::capacity::simulated;
pub(crate) use self::capacity::{CoreCounters, CounterTest, CounterTestError, CounterTestResult};
pub(crate) use self::defaults::NO_COUNTER;
pub use self::{
    capacity::Capacity,
    defaults::{DefaultRequest, DefaultsError, default_request},
    error::PlanError,
    plan_request::{PlanRequest, PlanRequestError},
    planner::{MetricSource, PlannedMetric, PlannedMetrics, ResolvedRequest},
    weights::PlannedWeight,
};
use crate::{
    calibration::{CalibratedTraffic, UsedCalibration},
    catalogue::{self, SampledQuantity},
    devices::{Device, Devices},
    event::{Counter, Event, EventGroup, Exclude, Scope, Source, UncountableEvent},
    machine::cpus::CpuList,
};

/// Hardware counters of each core that stay free for other users by default.
pub const RESERVE_COUNTERS: usize = 1;

/// Maximum number of hardware counters in a group without braces. Larger groups would save
/// look-ups, but a group runs as a whole or not at all, and other users hold counters too.
const HARDWARE_GROUP: usize = 4;

/// An event, and where its counts come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventColumn {
    /// As the user wrote it.
    pub name: String,
    /// Unit from sysfs, if the PMU gives one.
    pub unit: Option<String>,
    /// What one count stands for in `unit`.
    pub scale: f64,
    /// Where the counts come from.
    pub place: CountSource,
    /// True for cpu-clock and task-clock, which count nanoseconds.
    pub clock: bool,
    /// False for an event that only metrics need.
    pub shown: bool,
}

/// Where the counts of an event come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountSource {
    /// Counter `at` of counter group `group`: per owner.
    Core {
        /// Index into [`Plan::groups`].
        group: usize,
        /// Position in the group.
        at: usize,
    },
    /// Uncore event `at` of [`Plan::uncore`]: per socket.
    Uncore {
        /// Index into [`Plan::uncore`].
        at: usize,
    },
    /// The length of the window.
    Duration,
    /// Estimated from SPE samples: per owner.
    Sampled(SampledQuantity),
}

/// A counter to open, and the privilege levels that it excludes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Planned {
    /// Index into [`Plan::columns`].
    pub column: usize,
    /// What to open.
    pub counter: Counter,
    /// The privilege levels that are not counted.
    pub exclude: Exclude,
}

/// A requested event, before it is placed.
#[derive(Clone, Debug)]
pub(crate) struct RequestedEvent {
    pub(crate) name: String,
    pub(crate) counter: Counter,
    pub(crate) exclude: Exclude,
}

/// Equal if they count the same, however they are written.
impl PartialEq for RequestedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.counter == other.counter && self.exclude == other.exclude
    }
}

/// All that is counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The user's events in their order, then events that only metrics need.
    pub columns: Vec<EventColumn>,
    /// Events of the user that this machine cannot count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncountable: Vec<UncountableEvent>,
    /// Default events that are not counted, and why.
    #[serde(skip)]
    pub left_out: Vec<UncountableEvent>,
    /// Counter groups, opened on every CPU of their PMU, each read and charged as a whole. The
    /// groups that always run come first, then the multiplexed ones, which run one at a time.
    pub groups: Vec<Vec<Planned>>,
    /// How many of the groups, the last ones, are multiplexed.
    pub rotated: usize,
    /// Uncore counters.
    pub uncore: Vec<Planned>,
    /// Ranges of [`Self::uncore`], each opened as one group, without gaps between them. Events in
    /// the user's braces are one group, every other event of the user is a group of its own.
    pub uncore_groups: Vec<Range<usize>>,
    /// The metrics that are computed.
    pub metrics: PlannedMetrics,
    /// Counters of cores that attribute a socket's traffic, the best first.
    pub weights: Vec<PlannedWeight>,
    /// How much of a metric's traffic each weight counts on this machine.
    #[serde(default, skip_serializing_if = "UsedCalibration::is_empty")]
    pub calibration: UsedCalibration,
    /// Why the weights are multiplexed with other groups; `None` if they always run.
    #[serde(default)]
    pub weights_in_turns: Option<String>,
    /// The devices of the machine, if metrics are about them.
    pub devices: Arc<Devices>,
    /// The CPUs of each core PMU that states its CPUs in sysfs. There are several if cores differ
    /// in kind.
    pub cores: Vec<CpuList>,
    /// Whether the events are the defaults for consecutive windows. Tables then show metrics
    /// instead of these events.
    #[serde(default)]
    pub rates_only: bool,
}

impl Plan {
    /// Places every event, with all groups running at once: if the PMU has fewer counters, the
    /// kernel multiplexes them.
    ///
    /// # Errors
    ///
    /// If there are more events or groups than the programs have slots for, or more events in a
    /// group of the user than a group holds.
    pub fn new(groups: &[EventGroup]) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        let mut open: Vec<OpenGroup> = Vec::new();
        for group in groups {
            let mut own = None;
            let first_uncore = plan.uncore.len();
            for event in &group.events {
                plan.add(event, group.explicit, &mut own, &mut open);
            }
            // An event without braces is a group of its own.
            if plan.uncore.len() > first_uncore {
                plan.uncore_groups.push(first_uncore..plan.uncore.len());
            }
        }
        plan.checked()
    }

    /// Takes the calibrations of the plan's metrics, except those with a weight that is not
    /// counted.
    fn calibrate(&mut self, calibration: &UsedCalibration) {
        let metrics = &self.metrics.list;
        let is_planned = |it: &&CalibratedTraffic| {
            let mut metrics = metrics.iter();
            metrics.any(|planned| planned.metric.name == it.metric)
        };
        let of_plan = calibration.traffics.iter().filter(is_planned);
        let is_counted = |event: &String| self.weights.iter().any(|it| *it.name == **event);
        let usable = of_plan.filter(|it| {
            let missing = it.events.iter().find(|event| !is_counted(event));
            if let Some(missing) = missing {
                tracing::warn!(
                    "{} is divided by one weight, not by its calibration: {missing} is not counted",
                    it.metric
                );
            }
            missing.is_none()
        });
        self.calibration = UsedCalibration {
            made_on: calibration.made_on,
            traffics: usable.cloned().collect(),
        };
    }

    /// The plan, if the programs have slots for all that runs at once.
    pub(super) fn checked(self) -> Result<Self, PlanError> {
        let fixed = self.fixed();
        let events = self.slots();
        let groups = fixed + usize::from(self.rotated > 0);
        let is_too_long = |group: &Vec<Planned>| group.len() > GROUP_COUNTERS;
        if events > SLOTS || groups > GROUPS || self.groups.iter().any(is_too_long) {
            return Err(PlanError::TooManyEvents {
                events,
                groups,
                slots: SLOTS,
                in_group: GROUP_COUNTERS,
            });
        }
        Ok(self)
    }

    /// How many groups always run.
    #[must_use]
    pub fn fixed(&self) -> usize {
        self.groups.len() - self.rotated
    }

    /// Whether a metric is about devices, and devices are known.
    #[must_use]
    pub fn reads_devices(&self) -> bool {
        let mut metrics = self.metrics.list.iter();
        let is_needed = metrics.any(|planned| planned.metric.apportion.is_of_device());
        is_needed && self.devices.iter().next().is_some()
    }

    /// The devices whose traffic a source counts on a socket.
    #[must_use]
    pub fn devices_of(&self, source: &MetricSource, socket: u32) -> Vec<&Device> {
        let pmu = source.events.iter().find_map(|(_, place)| match place {
            CountSource::Uncore { at } => self.uncore.get(*at)?.counter.pmu.as_deref(),
            CountSource::Core { .. } | CountSource::Duration | CountSource::Sampled(_) => None,
        });
        // Devices know a PMU by its alias, if it has one: a name with the socket and the unit.
        let Some(pmu) = source.place.device.as_deref().or(pmu) else {
            return Vec::new();
        };
        let catalogue::MetricPlace { filters, part, .. } = &source.place;
        self.devices.counted_by(pmu, socket, filters, *part)
    }

    /// Whether a group is opened on this CPU.
    #[must_use]
    pub fn counts_on(&self, group: usize, cpu: u32) -> bool {
        self.groups[group]
            .iter()
            .all(|planned| planned.counter.scope.counts_on(cpu))
    }

    /// The kind of a CPU's core: an index into [`Self::cores`]. `None` if no core PMU states that
    /// it has this CPU, as on x86 machines with one kind of core.
    #[must_use]
    pub fn kind_of_core(&self, cpu: u32) -> Option<usize> {
        self.cores.iter().position(|cpus| cpus.contains(cpu))
    }

    /// Whether a group is of one kind of core, on a machine with several.
    #[must_use]
    pub fn is_of_one_kind(&self, group: usize) -> bool {
        let is_of_kind = |planned: &Planned| matches!(planned.counter.scope, Scope::Cpus(_));
        self.cores.len() > 1 && self.groups[group].iter().any(is_of_kind)
    }

    /// The groups that are multiplexed on this CPU.
    pub fn multiplexed_groups(&self, cpu: u32) -> impl Iterator<Item = usize> + '_ {
        (self.fixed()..self.groups.len()).filter(move |group| self.counts_on(*group, cpu))
    }

    /// Adds the column and the counter of an event. `own` is the group of the user's braces, once
    /// it has its first event; `open` are the groups without braces.
    fn add(
        &mut self,
        event: &Event,
        explicit: bool,
        own: &mut Option<usize>,
        open: &mut Vec<OpenGroup>,
    ) {
        let column = self.columns.len();
        let place = match &event.source {
            Source::DurationTime => CountSource::Duration,
            Source::Counter(counter) => {
                let planned = Planned {
                    column,
                    counter: counter.clone(),
                    exclude: event.exclude,
                };
                if let Scope::Uncore { .. } = counter.scope {
                    self.uncore.push(planned);
                    CountSource::Uncore {
                        at: self.uncore.len() - 1,
                    }
                } else {
                    let group = match own {
                        Some(group) => *group,
                        None if explicit => *own.insert(self.new_group()),
                        None => self.shared_group(counter, open),
                    };
                    self.groups[group].push(planned);
                    CountSource::Core {
                        group,
                        at: self.groups[group].len() - 1,
                    }
                }
            }
        };
        self.columns.push(EventColumn::new(event, place));
    }

    fn new_group(&mut self) -> usize {
        self.groups.push(Vec::new());
        self.groups.len() - 1
    }

    /// A group without braces, on the same PMU and with room for another event. Without one, it is
    /// added.
    fn shared_group(&mut self, counter: &Counter, open: &mut Vec<OpenGroup>) -> usize {
        let is_software = !counter.is_hardware();
        let capacity = if is_software {
            GROUP_COUNTERS
        } else {
            HARDWARE_GROUP
        };
        let fits = |group: &&OpenGroup| {
            group.pmu == counter.pmu
                && group.is_software == is_software
                && self.groups[group.index].len() < capacity
        };
        if let Some(group) = open.iter().find(fits) {
            return group.index;
        }
        let index = self.new_group();
        open.push(OpenGroup {
            index,
            pmu: counter.pmu.clone(),
            is_software,
        });
        index
    }

    /// Bit mask for the programs: bit n is set if slot n is the last of its group.
    pub(crate) fn group_ends(&self) -> u64 {
        let mut end = 0;
        let mut bits = 0;
        for group in &self.groups[..self.fixed()] {
            end += group.len();
            bits |= 1 << (end - 1);
        }
        if self.rotated > 0 {
            bits |= 1 << (self.slots() - 1);
        }
        bits
    }

    /// Bit mask for the programs: bit n is set if slot n counts the nanoseconds of a clock. Only
    /// groups that always run are in it.
    pub(crate) fn clocks(&self) -> u64 {
        let fixed = self.groups[..self.fixed()].iter().flatten();
        let clocks = fixed.map(|planned| self.columns[planned.column].clock);
        (0..)
            .zip(clocks)
            .fold(0, |bits, (slot, clock)| bits | u64::from(clock) << slot)
    }

    /// For the programs, [`SchedulerCounter::BITS`] bits for each slot: the number of its scheduler
    /// counter, or 0 for an event that is opened. Only groups that always run have such counters.
    pub(crate) fn scheduler_slots(&self) -> u64 {
        let fixed = self.groups[..self.fixed()].iter().flatten();
        let numbers = fixed.map(|planned| match planned.counter.is_of_scheduler() {
            true => planned.counter.config,
            false => 0,
        });
        (0..).zip(numbers).fold(0, |bits, (slot, number)| {
            bits | number << (SchedulerCounter::BITS * slot)
        })
    }

    /// Whether CPU waits are counted. If so, the programs also keep the lengths of waits, and who
    /// waited for whom.
    pub(crate) fn counts_waits(&self) -> bool {
        let mut planned = self.groups[..self.fixed()].iter().flatten();
        planned.any(|planned| {
            let counter = &planned.counter;
            counter.is_of_scheduler() && counter.config == SchedulerCounter::Wait as u64
        })
    }

    /// The group of a clock, and the clock's position in it; `None` without a clock. The group has
    /// only software events, so it always runs.
    pub(crate) fn clock(&self) -> Option<(usize, usize)> {
        self.columns.iter().find_map(|column| match column.place {
            CountSource::Core { group, at } if column.clock && group < self.fixed() => {
                let counters = self.groups[group].iter().map(|planned| &planned.counter);
                let is_software = !counters.clone().any(Counter::is_hardware);
                is_software.then_some((group, at))
            }
            _ => None,
        })
    }

    /// Slots of the groups that always run; those of the multiplexed group follow.
    pub(crate) fn fixed_slots(&self) -> usize {
        self.groups[..self.fixed()].iter().map(Vec::len).sum()
    }

    /// Slots that are needed, including the largest multiplexed group.
    pub(crate) fn slots(&self) -> usize {
        let rotated = self.groups[self.fixed()..].iter().map(Vec::len);
        self.fixed_slots() + rotated.max().unwrap_or(0)
    }
}

impl EventColumn {
    pub(super) fn new(event: &Event, place: CountSource) -> Self {
        let clock = match &event.source {
            Source::DurationTime => false,
            Source::Counter(counter) => counter.is_clock(),
        };
        Self {
            name: event.name.clone(),
            unit: event.unit.clone(),
            scale: event.scale.unwrap_or(1.0),
            place,
            clock,
            shown: true,
        }
    }
}

/// A group without braces, which takes further events of its PMU.
struct OpenGroup {
    /// Index into [`Plan::groups`].
    index: usize,
    pmu: Option<String>,
    is_software: bool,
}
