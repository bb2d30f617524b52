//! The counts of one place in one part of the input, and a formula's input from them.

use std::collections::BTreeMap;

use super::derived::StepCount;
use crate::formula::{Absent, EventCount, Implicit, Input};

/// The count of one event in one group: the sum over units of a PMU.
#[derive(Debug)]
pub(super) struct GroupedCount {
    /// Index of the event.
    pub(super) event: usize,
    /// The number of the group on its PMU, from 0 on.
    pub(super) group: usize,
    /// None if it never ran on one of the units, since the sum would be too low.
    pub(super) sample: Option<EventCount>,
    /// Indices of the units' names; None stands for a sum that perf made.
    units: Vec<Option<usize>>,
    /// The enabled time, summed over the units, ns.
    enabled: Option<f64>,
}

/// The count of one line of the input, for one event and place.
pub(super) struct CountLine {
    pub(super) event: usize,
    pub(super) group: usize,
    pub(super) sample: Option<EventCount>,
    pub(super) unit: Option<usize>,
    pub(super) enabled: Option<f64>,
}

/// The counts of a place.
#[derive(Debug, Default)]
pub(super) struct PlaceCounts(Vec<GroupedCount>);

impl PlaceCounts {
    /// Adds a line to the event's count on other units. If the unit was counted before, the line is
    /// another count, of another group.
    pub(super) fn add(&mut self, line: &CountLine, work: &StepCount) {
        let mut same = self.0.iter_mut().inspect(|_| work.step());
        let sum = same.find(|it| {
            let is_new_unit = it
                .units
                .iter()
                .all(|unit| *unit != line.unit && unit.is_some());
            it.event == line.event && line.unit.is_some() && is_new_unit
        });
        let Some(sum) = sum else {
            self.0.push(GroupedCount {
                event: line.event,
                group: line.group,
                sample: line.sample,
                units: vec![line.unit],
                enabled: line.enabled,
            });
            return;
        };
        sum.units.push(line.unit);
        sum.enabled = sum.enabled.zip(line.enabled).map(|(a, b)| a + b);
        sum.sample = sum.sample.zip(line.sample).map(|(a, b)| EventCount {
            count: a.count + b.count,
            running_ratio: a.running_ratio.min(b.running_ratio),
        });
    }

    /// The counts of an event.
    fn for_event(&self, event: usize) -> impl Iterator<Item = &GroupedCount> {
        self.0.iter().filter(move |count| count.event == event)
    }

    pub(super) fn has(&self, event: usize) -> bool {
        self.for_event(event).next().is_some()
    }

    /// The enabled time of the first count, summed over its units.
    pub(super) fn enabled(&self) -> Option<f64> {
        self.0.first().and_then(|count| count.enabled)
    }

    /// The number of units with a name.
    pub(super) fn named_units(&self) -> usize {
        let first = self.0.first().map(|count| count.units.iter());
        first.into_iter().flatten().flatten().count()
    }
}

/// The input of a formula: one count of each event, all from one group if a group has them all.
pub(super) struct FormulaInput<'a> {
    events: Vec<(&'a str, Option<EventCount>)>,
    /// The enabled time of the first event, ns.
    enabled: Option<f64>,
    implicits: &'a BTreeMap<Implicit, f64>,
    /// Whether repeated events are taken from several groups, since no group has all events.
    pub(super) mixed: bool,
}

impl<'a> FormulaInput<'a> {
    /// `places` are the place itself, then wider ones that apply to it, the narrowest first. An
    /// event is taken from the first place that has it.
    pub(super) fn new(
        events: &[(&'a str, usize)],
        places: &[&PlaceCounts],
        implicits: &'a BTreeMap<Implicit, f64>,
        work: &StepCount,
    ) -> Self {
        let counts_of = |event: usize| {
            work.step();
            let counts = places.iter().find(|counts| counts.has(event));
            counts
                .into_iter()
                .flat_map(move |counts| counts.for_event(event))
        };
        let (mut repeated, mut enabled) = (false, None);
        let first_counts = events.iter().filter_map(|(name, event)| {
            let mut counts = counts_of(*event);
            let first = counts.next()?;
            repeated |= counts.next().is_some();
            enabled = enabled.or(first.enabled);
            Some((*name, first.sample))
        });
        let first_counts = first_counts.collect();
        if !repeated {
            return Self {
                events: first_counts,
                enabled,
                implicits,
                mixed: false,
            };
        }
        let counts: Vec<(&str, Vec<&GroupedCount>)> = events
            .iter()
            .map(|(name, event)| (*name, counts_of(*event).collect()))
            .filter(|(_, counts): &(&str, Vec<&GroupedCount>)| !counts.is_empty())
            .collect();
        let group = common_group(&counts);
        let chosen = counts.iter().filter_map(|(name, counts)| {
            let in_group = counts.iter().find(|count| Some(count.group) == group);
            let count = in_group.copied().or_else(|| longest_running(counts))?;
            Some((*name, count))
        });
        let chosen: Vec<(&str, &GroupedCount)> = chosen.collect();
        Self {
            enabled: chosen.iter().find_map(|(_, count)| count.enabled),
            events: { chosen.into_iter() }
                .map(|(name, count)| (name, count.sample))
                .collect(),
            implicits,
            mixed: group.is_none(),
        }
    }
}

/// The group that has all events; of several, the one that ran longest.
fn common_group(counts: &[(&str, Vec<&GroupedCount>)]) -> Option<usize> {
    let (_, first) = counts.first()?;
    let running_ratio = |group: usize| {
        let of_group = counts.iter().map(|(_, counts)| {
            let mut counts = counts.iter();
            counts
                .find(|count| count.group == group)
                .map(|it| running_ratio(it))
        });
        of_group.reduce(|a, b| Some(a?.min(b?))).flatten()
    };
    let best = first
        .iter()
        .map(|count| count.group)
        .filter_map(|group| Some((group, running_ratio(group)?)))
        .reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(group, _)| group)
}

fn longest_running<'a>(counts: &[&'a GroupedCount]) -> Option<&'a GroupedCount> {
    let counts = counts.iter().copied();
    counts.reduce(|best, next| {
        if running_ratio(next) > running_ratio(best) {
            next
        } else {
            best
        }
    })
}

/// The running ratio; -1 if the counter never ran, so that it is the last choice.
fn running_ratio(count: &GroupedCount) -> f64 {
    count.sample.map_or(-1.0, |sample| sample.running_ratio)
}

impl Input for FormulaInput<'_> {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let entry = self.events.iter().find(|(event, _)| *event == name);
        let (_, sample) = entry.ok_or(Absent::Missing)?;
        sample.ok_or(Absent::NeverRan)
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        let given = self.implicits.get(&implicit).copied();
        match implicit {
            Implicit::CounterTime => self.enabled.or(given),
            _ => given,
        }
    }
}
