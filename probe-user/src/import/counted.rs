//! The counts of one place in one part of the input, and the view of a formula on them.

use std::collections::BTreeMap;

use super::derived::Work;
use crate::formula::{Absent, Implicit, Input, Sample};

/// The count of one event in one group: the sum over units of a PMU.
#[derive(Debug)]
pub(super) struct Count {
    /// Index of the event.
    pub(super) event: usize,
    /// Of its PMU, from 0 on.
    pub(super) group: usize,
    /// None where it never ran on one of the units: a part is not the whole.
    pub(super) sample: Option<Sample>,
    /// The units by the indices of their names; None stands for a sum that perf made.
    units: Vec<Option<usize>>,
    /// The time for which it was enabled on all of them together, ns.
    enabled: Option<f64>,
}

/// One line of the input.
pub(super) struct Line {
    pub(super) event: usize,
    pub(super) group: usize,
    pub(super) sample: Option<Sample>,
    pub(super) unit: Option<usize>,
    pub(super) enabled: Option<f64>,
}

/// The counts of a place.
#[derive(Debug, Default)]
pub(super) struct Counts(Vec<Count>);

impl Counts {
    /// Adds a line: to the same event's count on other units, or as another count if this unit was
    /// counted before. It is in another group then.
    pub(super) fn add(&mut self, line: &Line, work: &Work) {
        let mut same = self.0.iter_mut().inspect(|_| work.step());
        let sum = same.find(|it| {
            let other = it
                .units
                .iter()
                .all(|unit| *unit != line.unit && unit.is_some());
            it.event == line.event && line.unit.is_some() && other
        });
        let Some(sum) = sum else {
            self.0.push(Count {
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
        sum.sample = sum.sample.zip(line.sample).map(|(a, b)| Sample {
            count: a.count + b.count,
            live: a.live.min(b.live),
        });
    }

    /// Those of an event.
    fn of(&self, event: usize) -> impl Iterator<Item = &Count> {
        self.0.iter().filter(move |count| count.event == event)
    }

    pub(super) fn has(&self, event: usize) -> bool {
        self.of(event).next().is_some()
    }

    /// The time for which the first count was enabled, on all units together.
    pub(super) fn enabled(&self) -> Option<f64> {
        self.0.first().and_then(|count| count.enabled)
    }

    /// How many units have a name.
    pub(super) fn named_units(&self) -> usize {
        let first = self.0.first().map(|count| count.units.iter());
        first.into_iter().flatten().flatten().count()
    }
}

/// The view of a formula: one count of each of its events, from one group if one has them all.
pub(super) struct Seen<'a> {
    events: Vec<(&'a str, Option<Sample>)>,
    /// The time for which the first of them was enabled, ns.
    enabled: Option<f64>,
    implicits: &'a BTreeMap<Implicit, f64>,
    /// Whether events that were counted more than once are taken from several groups, since none
    /// has them all.
    pub(super) mixed: bool,
}

impl<'a> Seen<'a> {
    /// `places` are the place and those that also hold for it, the narrowest first: an event is
    /// taken from the first that has it.
    pub(super) fn new(
        events: &[(&'a str, usize)],
        places: &[&Counts],
        implicits: &'a BTreeMap<Implicit, f64>,
        work: &Work,
    ) -> Self {
        let of = |event: usize| {
            work.step();
            let counts = places.iter().find(|counts| counts.has(event));
            counts.into_iter().flat_map(move |counts| counts.of(event))
        };
        let (mut repeated, mut enabled) = (false, None);
        let single = events.iter().filter_map(|(name, event)| {
            let mut counts = of(*event);
            let first = counts.next()?;
            repeated |= counts.next().is_some();
            enabled = enabled.or(first.enabled);
            Some((*name, first.sample))
        });
        let single = single.collect();
        if !repeated {
            return Self {
                events: single,
                enabled,
                implicits,
                mixed: false,
            };
        }
        let counts = events
            .iter()
            .map(|(name, event)| (*name, of(*event).collect()));
        let counts: Vec<(&str, Vec<&Count>)> = counts
            .filter(|(_, counts): &(&str, Vec<&Count>)| !counts.is_empty())
            .collect();
        let group = common(&counts);
        let chosen = counts.iter().filter_map(|(name, counts)| {
            let in_group = counts.iter().find(|count| Some(count.group) == group);
            let count = in_group.copied().or_else(|| longest(counts))?;
            Some((*name, count))
        });
        let chosen: Vec<(&str, &Count)> = chosen.collect();
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
fn common(counts: &[(&str, Vec<&Count>)]) -> Option<usize> {
    let (_, first) = counts.first()?;
    let live = |group: usize| {
        let of_group = counts.iter().map(|(_, counts)| {
            let mut counts = counts.iter();
            counts.find(|count| count.group == group).map(|it| live(it))
        });
        of_group.reduce(|a, b| Some(a?.min(b?))).flatten()
    };
    let groups = first.iter().map(|count| count.group);
    let groups = groups.filter_map(|group| Some((group, live(group)?)));
    let best = groups.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(group, _)| group)
}

fn longest<'a>(counts: &[&'a Count]) -> Option<&'a Count> {
    let counts = counts.iter().copied();
    counts.reduce(|best, next| if live(next) > live(best) { next } else { best })
}

/// The live share; a counter that never ran is the last choice.
fn live(count: &Count) -> f64 {
    count.sample.map_or(-1.0, |sample| sample.live)
}

impl Input for Seen<'_> {
    fn event(&self, name: &str) -> Result<Sample, Absent> {
        let found = self.events.iter().find(|(event, _)| *event == name);
        let (_, sample) = found.ok_or(Absent::Missing)?;
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
