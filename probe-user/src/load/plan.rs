//! What is counted where: every event of `-e` gets a place in a counter group, on the uncore
//! PMUs, or on the clock.

use probe_common::{GROUP_COUNTERS, GROUPS, SLOTS};

use super::LoadError;
use crate::event::{Counter, Event, EventGroup, Exclude, Scope, Source};

/// Hardware counters that go into one group where the user made none. More would save
/// look-ups, but a group runs as a whole or not at all, and other users hold counters too.
const HARDWARE_GROUP: usize = 4;

/// `PERF_TYPE_SOFTWARE` of `linux/perf_event.h`.
const SOFTWARE: u32 = 1;

/// An event with the place its counts come from.
#[derive(Clone, Debug)]
pub struct Column {
    /// As the user wrote it.
    pub name: String,
    /// Unit from sysfs, where the PMU gives one.
    pub unit: Option<String>,
    /// What one count stands for in `unit`.
    pub scale: f64,
    /// Where the counts come from.
    pub place: Place,
    /// True for cpu-clock and task-clock, whose counts are nanoseconds.
    pub clock: bool,
}

/// Where the counts of an event come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
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
}

/// A counter and what it leaves out.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Index into [`Plan::columns`].
    pub column: usize,
    /// What to open.
    pub counter: Counter,
    /// What is not counted.
    pub exclude: Exclude,
}

/// All that is counted.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The events in the user's order.
    pub columns: Vec<Column>,
    /// Groups of counters that are on every CPU, each read and charged as a whole.
    pub groups: Vec<Vec<Planned>>,
    /// Uncore counters.
    pub uncore: Vec<Planned>,
}

impl Plan {
    /// Gives every event its place.
    ///
    /// # Errors
    ///
    /// Where there are more events than slots, or more in a group of the user's than a group holds.
    pub fn new(groups: &[EventGroup]) -> Result<Self, LoadError> {
        let mut plan = Self::default();
        let mut open: Vec<OpenGroup> = Vec::new();
        for group in groups {
            let mut own = None;
            for event in &group.events {
                plan.add(event, group.explicit, &mut own, &mut open);
            }
        }
        let events: usize = plan.groups.iter().map(Vec::len).sum();
        let fits = events <= SLOTS
            && plan.groups.len() <= GROUPS
            && plan
                .groups
                .iter()
                .all(|group| group.len() <= GROUP_COUNTERS);
        if fits {
            Ok(plan)
        } else {
            let groups = plan.groups.len();
            Err(LoadError::TooManyEvents {
                events,
                groups,
                slots: SLOTS,
                in_group: GROUP_COUNTERS,
            })
        }
    }

    /// `own` is the group that the user's braces made, once it has its first event.
    fn add(
        &mut self,
        event: &Event,
        explicit: bool,
        own: &mut Option<usize>,
        open: &mut Vec<OpenGroup>,
    ) {
        let column = self.columns.len();
        let mut clock = false;
        let place = match &event.source {
            Source::DurationTime => Place::Duration,
            Source::Counter(counter) => {
                clock = counter.type_ == SOFTWARE && counter.config < 2;
                let planned = Planned {
                    column,
                    counter: counter.clone(),
                    exclude: event.exclude,
                };
                if let Scope::Uncore { .. } = counter.scope {
                    self.uncore.push(planned);
                    Place::Uncore {
                        at: self.uncore.len() - 1,
                    }
                } else {
                    let group = match own {
                        Some(group) => *group,
                        None if explicit => *own.insert(self.new_group()),
                        None => self.shared_group(counter, open),
                    };
                    self.groups[group].push(planned);
                    Place::Core {
                        group,
                        at: self.groups[group].len() - 1,
                    }
                }
            }
        };
        let (name, unit) = (event.name.clone(), event.unit.clone());
        self.columns.push(Column {
            name,
            unit,
            scale: event.scale.unwrap_or(1.0),
            place,
            clock,
        });
    }

    fn new_group(&mut self) -> usize {
        self.groups.push(Vec::new());
        self.groups.len() - 1
    }

    /// A group of the same PMU, made without braces, that has room.
    fn shared_group(&mut self, counter: &Counter, open: &mut Vec<OpenGroup>) -> usize {
        let software = counter.type_ == SOFTWARE;
        let room = if software {
            GROUP_COUNTERS
        } else {
            HARDWARE_GROUP
        };
        let fits = |group: &&OpenGroup| {
            group.pmu == counter.pmu
                && group.software == software
                && self.groups[group.index].len() < room
        };
        if let Some(group) = open.iter().find(fits) {
            return group.index;
        }
        let index = self.new_group();
        open.push(OpenGroup {
            index,
            pmu: counter.pmu.clone(),
            software,
        });
        index
    }

    /// Bit n set where slot n is the last of its group, as the programs want it.
    pub(crate) fn group_ends(&self) -> u64 {
        let mut end = 0;
        self.groups.iter().fold(0, |bits, group| {
            end += group.len();
            bits | 1 << (end - 1)
        })
    }

    /// Bit n set where slot n counts the nanoseconds of a clock.
    pub(crate) fn clocks(&self) -> u64 {
        let clocks = self
            .slots()
            .map(|planned| self.columns[planned.column].clock);
        (0..)
            .zip(clocks)
            .fold(0, |bits, (slot, clock)| bits | u64::from(clock) << slot)
    }

    /// All counters of all groups: the slots in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Planned> {
        self.groups.iter().flatten()
    }
}

/// A group that takes more events.
struct OpenGroup {
    index: usize,
    pmu: Option<String>,
    software: bool,
}
