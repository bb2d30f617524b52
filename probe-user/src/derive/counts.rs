//! Counts of events: of entities, sockets and the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::once,
    time::Duration,
};

use super::{
    Attributes, Counter, Counting, Estimate, Kind, Metric, Reason, Report, Spread, Subject, Value,
};
use crate::{
    formula::{Absent, NoValue},
    plan::{Column, CountSource, Plan},
    snapshot::UncoreReading,
    sys::clock::nanos,
    window::{Counted, Gained, LiveTime, UncoreTotal, Usage, Window, float},
};

/// A count, or why there is none.
pub(super) type Count = Result<Counter, NoValue>;

/// The events that are shown, with their metrics.
pub(super) struct Columns<'a> {
    plan: &'a Plan,
    list: Vec<Shown<'a>>,
}

/// An event that is shown: indices in the report.
struct Shown<'a> {
    column: &'a Column,
    metric: u32,
    attributes: u32,
}

impl<'a> Columns<'a> {
    pub(super) fn new(report: &mut Report, plan: &'a Plan) -> Self {
        let mut list: Vec<Shown<'_>> = Vec::new();
        let mut names = BTreeSet::new();
        for column in plan.columns.iter().filter(|column| column.shown) {
            if list.iter().any(|other| is_same(other.column, column)) {
                continue;
            }
            let group = group(plan, column.place);
            let name = unique(&column.name, group, &mut names);
            let nanos = column.clock || column.place == CountSource::Duration;
            let unit = column.unit.clone();
            list.push(Shown {
                column,
                metric: report.add_metric(Metric {
                    help: format!("What the event {name} counted"),
                    name,
                    unit: unit.unwrap_or_else(|| if nanos { "ns" } else { "" }.to_owned()),
                    kind: Kind::Counter,
                    counting: Counting::Event(column.scale),
                }),
                attributes: report.add_attributes(Attributes {
                    group,
                    ..Attributes::default()
                }),
            });
        }
        Self { plan, list }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds the events of one row that are counted on CPUs.
    pub(super) fn add_row(&self, report: &mut Report, subject: u32, row: &Gained<Usage>) {
        for shown in &self.list {
            let CountSource::Core { group, at } = shown.column.place else {
                continue;
            };
            let start = report.start;
            let Some(count) = core_count(self.plan, shown.column, (group, at), &row.delta, start)
            else {
                continue;
            };
            let total = row.total.get(group).and_then(Option::as_ref);
            let total = total.and_then(|total| counted(shown.column, total, at, row.since).ok());
            shown.push(report, subject, count, total);
        }
    }

    /// Adds the events of sockets: the sums over instances of a PMU.
    pub(super) fn add_sockets(&self, report: &mut Report, window: &Window) {
        let mut last = None;
        for (socket, at, count) in self.socket_counts(window) {
            let subject = match last {
                Some((same, subject)) if same == socket => subject,
                _ => report.subject(Subject::Socket(socket)),
            };
            last = Some((socket, subject));
            let shown = &self.list[at];
            let mut totals = shown.totals(window);
            let total = totals.find(|total| total.socket == socket);
            shown.push(report, subject, count, total.map(|it| shown.total(it)));
        }
    }

    /// Adds the events of the whole machine.
    pub(super) fn add_machine(&self, report: &mut Report, subject: u32, window: &Window) {
        self.add_row(report, subject, &window.total);
        let sockets = self.socket_counts(window);
        for (at, shown) in self.list.iter().enumerate() {
            let (count, sum) = match shown.column.place {
                CountSource::Core { .. } | CountSource::Sampled(_) => continue,
                CountSource::Uncore { .. } => {
                    let here = sockets.iter().filter(|(_, column, _)| *column == at);
                    let missing = || Err(NoValue::Missing(vec![shown.column.name.clone()]));
                    let count = total(here.map(|(.., count)| count)).unwrap_or_else(missing);
                    let totals = shown.totals(window).map(|total| shown.total(total));
                    (count, totals.reduce(sum_of))
                }
                CountSource::Duration => {
                    let [window, all] = [report.length(), report.elapsed()].map(nanos);
                    (
                        Ok(exact(window, report.start)),
                        Some(exact(all, report.began)),
                    )
                }
            };
            shown.push(report, subject, count, sum);
        }
    }

    /// By socket and column.
    fn socket_counts(&self, window: &Window) -> Vec<(u32, usize, Count)> {
        let mut instances: BTreeMap<(u32, usize), Vec<Count>> = BTreeMap::new();
        for reading in &window.uncore {
            let place = CountSource::Uncore { at: reading.at };
            let columns = self.list.iter().enumerate();
            for (at, shown) in columns.filter(|(_, shown)| shown.column.place == place) {
                let Column { name, scale, .. } = shown.column;
                let value = match reading.count {
                    Some(_) => self::scale(reading, *scale, window.start)
                        .ok_or_else(|| NoValue::NeverRan(name.clone())),
                    None => Err(NoValue::Missing(vec![name.clone()])),
                };
                instances
                    .entry((reading.socket, at))
                    .or_default()
                    .push(value);
            }
        }
        let sums = instances.into_iter();
        sums.filter_map(|((socket, at), counts)| Some((socket, at, total(counts.iter())?)))
            .collect()
    }
}

impl Shown<'_> {
    fn push(&self, report: &mut Report, subject: u32, count: Count, total: Option<Counter>) {
        let value = count.map(Value::Counter).map_err(Reason::NoValue);
        report.push([subject, self.metric, self.attributes], value, total);
    }

    /// What an uncore event counted since the session began, by socket.
    fn totals<'a>(&self, window: &'a Window) -> impl Iterator<Item = &'a UncoreTotal> {
        let place = self.column.place;
        let totals = window.uncore_totals.iter();
        totals.filter(move |total| place == CountSource::Uncore { at: total.at })
    }

    fn total(&self, total: &UncoreTotal) -> Counter {
        let scale = self.column.scale;
        Counter {
            start: total.since,
            raw: total.raw,
            estimate: Estimate {
                live: float(total.running) / float(total.enabled.max(1)),
                spread: Spread::Error(total.variance.sqrt() * scale),
                ..Estimate::exact(total.estimate * scale)
            },
            time: Some(LiveTime {
                enabled: total.enabled,
                running: total.running,
            }),
        }
    }
}

/// Whether two columns show the same count under the same name: an event asked for twice is counted
/// once.
fn is_same(a: &Column, b: &Column) -> bool {
    (&a.name, a.place, &a.unit) == (&b.name, b.place, &b.unit)
        && a.scale.to_bits() == b.scale.to_bits()
}

/// A unique name for an event. An event that is in several of the user's sets is in several counter
/// groups, each with its own count: all but the first have the number of their group in the name.
fn unique(name: &str, group: Option<u32>, taken: &mut BTreeSet<String>) -> String {
    let in_group = group.map(|group| format!("{name} group {group}"));
    let numbered = (2..).map(|number| format!("{name} #{number}"));
    let mut names = once(name.to_owned()).chain(in_group).chain(numbered);
    loop {
        if let Some(name) = names.next()
            && taken.insert(name.clone())
        {
            return name;
        }
    }
}

/// The number of an event's counter group.
fn group(plan: &Plan, place: CountSource) -> Option<u32> {
    let group = match place {
        CountSource::Core { group, .. } => group,
        CountSource::Uncore { at } => {
            let mut groups = plan.uncore_groups.iter();
            plan.groups.len() + groups.position(|group| group.contains(&at))?
        }
        CountSource::Duration | CountSource::Sampled(_) => return None,
    };
    u32::try_from(group).ok()
}

/// The value of a column that is counted on CPUs; None where it is not counted for such a row.
fn core_count(
    plan: &Plan,
    column: &Column,
    (group, at): (usize, usize),
    usage: &Usage,
    start: Duration,
) -> Option<Count> {
    let of_group = usage.get(group)?.as_ref();
    let of_group = of_group.filter(|it| it.enabled > 0);
    let ran = || usage.iter().flatten().any(|it| it.enabled > 0);
    if of_group.is_none() && plan.is_of_one_kind(group) && ran() {
        // It ran, but never on a core of that kind: its count is 0.
        return Some(Ok(exact(0, start)));
    }
    let of_group = of_group.ok_or(NoValue::DidNotRun);
    Some(of_group.and_then(|it| counted(column, it, at, start)))
}

/// The value of one counter of a group.
fn counted(column: &Column, counted: &Counted, at: usize, start: Duration) -> Count {
    let estimate = estimate(counted, at).map_err(|why| match why {
        Absent::MostlyUnknown => NoValue::MostlyUnknown,
        Absent::Divided => NoValue::Divided,
        Absent::Missing | Absent::NeverRan => NoValue::NeverRan(column.name.clone()),
    })?;
    Ok(Counter {
        start,
        raw: counted.counts[at],
        estimate: Estimate {
            live: counted.live(),
            spread: Spread::Error(counted.covariance(at, at).sqrt() * column.scale),
            ..Estimate::exact(estimate * column.scale)
        },
        time: Some(LiveTime {
            enabled: counted.enabled,
            running: counted.running,
        }),
    })
}

/// The estimate of the first event, if it is counted on CPUs.
pub(super) fn first(plan: &Plan, usage: &Usage) -> Option<f64> {
    let column = plan.columns.iter().find(|column| column.shown)?;
    let CountSource::Core { group, at } = column.place else {
        return None;
    };
    let count = core_count(plan, column, (group, at), usage, Duration::ZERO)?;
    Some(count.ok()?.estimate.value)
}

/// The estimate of a counter of a group that could have been live, or why there is none.
pub(super) fn estimate(counted: &Counted, at: usize) -> Result<f64, Absent> {
    if counted.counts[at] == 0 && counted.divided().is_some() {
        return Err(Absent::Divided);
    }
    counted.estimate(at).ok_or(if counted.running == 0 {
        Absent::NeverRan
    } else {
        Absent::MostlyUnknown
    })
}

/// What is said of a row whose slices were divided by time.
pub(super) fn divided(usage: &Usage) -> Option<String> {
    let parts = usage.iter().flatten().filter_map(Counted::divided);
    let part = parts.reduce(f64::max)?;
    Some(format!(
        "{:.0}% of its time is in slices that were divided by time between it and others, since the \
         kernel did not show all context switches: what it counted then, but for clocks, is an \
         estimate",
        part * 100.0
    ))
}

/// The value of an uncore counter. None where it never ran: its count is not known, and not 0.
pub(super) fn scale(reading: &UncoreReading, scale: f64, start: Duration) -> Option<Counter> {
    let enabled = reading.enabled.max(reading.running);
    Some(Counter {
        start,
        raw: reading.count?,
        estimate: Estimate {
            live: float(reading.running) / float(enabled),
            spread: Spread::Error(reading.error() * scale),
            ..Estimate::exact(reading.estimate()? * scale)
        },
        time: Some(LiveTime {
            enabled,
            running: reading.running,
        }),
    })
}

/// The sum over sockets or instances; an error where one of them has no value, since a part is not
/// the whole. None of an empty list.
pub(super) fn total<'a>(counts: impl Iterator<Item = &'a Count>) -> Option<Count> {
    let counts: Result<Vec<Counter>, NoValue> = counts.cloned().collect();
    counts
        .map(|counts| counts.into_iter().reduce(sum_of))
        .transpose()
}

fn sum_of(a: Counter, b: Counter) -> Counter {
    Counter {
        start: a.start.min(b.start),
        raw: a.raw.wrapping_add(b.raw),
        estimate: Estimate {
            live: a.estimate.live.min(b.estimate.live),
            spread: a.estimate.spread.of_sum(b.estimate.spread),
            ..Estimate::exact(a.estimate.value + b.estimate.value)
        },
        time: a.time.zip(b.time).map(|(a, b)| LiveTime {
            enabled: a.enabled + b.enabled,
            running: a.running + b.running,
        }),
    }
}

fn exact(raw: u64, start: Duration) -> Counter {
    Counter {
        start,
        raw,
        estimate: Estimate {
            spread: Spread::Error(0.0),
            ..Estimate::exact(float(raw))
        },
        time: None,
    }
}
