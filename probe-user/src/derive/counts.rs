//! Counts of events of entities, sockets and the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::once,
    time::Duration,
};

use super::{
    Attributes, CounterSource, CounterValue, Estimate, MetricInfo, MetricKind, Reason, Report,
    Spread, Subject, Value,
};
use crate::{
    formula::{Absent, NoValue},
    plan::{CountSource, EventColumn, Plan},
    snapshot::UncoreReading,
    sys::clock::nanos,
    window::{Gained, GroupCounts, RunningTime, UncoreTotal, Usage, Window, float},
};

/// A count, or the reason for its absence.
pub(super) type CountResult = Result<CounterValue, NoValue>;

/// The displayed events with their metrics.
pub(super) struct CountColumns<'a> {
    plan: &'a Plan,
    list: Vec<CountColumn<'a>>,
    /// Events that this machine cannot count: the indices of metric and attributes, and the reason.
    uncountable: Vec<(u32, u32, &'a str)>,
}

/// A displayed event, with its indices in the report.
struct CountColumn<'a> {
    column: &'a EventColumn,
    metric: u32,
    attributes: u32,
}

impl<'a> CountColumns<'a> {
    pub(super) fn new(report: &mut Report, plan: &'a Plan) -> Self {
        let mut list: Vec<CountColumn<'_>> = Vec::new();
        let mut names = BTreeSet::new();
        for column in plan.columns.iter().filter(|column| column.shown) {
            if list.iter().any(|other| is_same(other.column, column)) {
                continue;
            }
            let group = group(plan, column.place);
            let name = unique_name(&column.name, group, &mut names);
            let nanos = column.clock || column.place == CountSource::Duration;
            let unit = column.unit.clone();
            let unit = unit.unwrap_or_else(|| if nanos { "ns" } else { "" }.to_owned());
            list.push(CountColumn {
                column,
                metric: report.add_metric(event_metric(name, unit, column.scale)),
                attributes: report.add_attributes(Attributes {
                    group,
                    ..Attributes::default()
                }),
            });
        }
        let uncountable = plan.uncountable.iter().map(|event| {
            let name = unique_name(&event.name, None, &mut names);
            let metric = report.add_metric(event_metric(name, String::new(), 1.0));
            let attributes = report.add_attributes(Attributes::default());
            (metric, attributes, event.reason.as_str())
        });
        Self {
            plan,
            uncountable: uncountable.collect(),
            list,
        }
    }

    /// The number of events.
    pub(super) fn len(&self) -> usize {
        self.list.len() + self.uncountable.len()
    }

    /// Adds the CPU events of one row.
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
            let total = row
                .total
                .get(group)
                .and_then(Option::as_ref)
                .and_then(|total| counter_value(shown.column, total, at, row.since).ok());
            shown.push(report, subject, count, total);
        }
    }

    /// Adds the events that cannot be counted to a row or the machine, after its counts.
    pub(super) fn add_uncountable(&self, report: &mut Report, subject: u32) {
        for (metric, attributes, reason) in &self.uncountable {
            let reason = Reason::NotPlanned((*reason).to_owned());
            report.push([subject, *metric, *attributes], Err(reason), None);
        }
    }

    /// Adds the events of sockets: sums over the instances of a PMU.
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
            shown.push(
                report,
                subject,
                count,
                total.map(|it| shown.total_counter(it)),
            );
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
                    let totals = shown.totals(window).map(|total| shown.total_counter(total));
                    (count, totals.reduce(sum_counters))
                }
                CountSource::Duration => {
                    let [in_window, in_session] = [report.length(), report.elapsed()].map(nanos);
                    (
                        Ok(exact(in_window, report.start)),
                        Some(exact(in_session, report.began)),
                    )
                }
            };
            shown.push(report, subject, count, sum);
        }
    }

    /// Counts by socket and event.
    fn socket_counts(&self, window: &Window) -> Vec<(u32, usize, CountResult)> {
        let mut instances: BTreeMap<(u32, usize), Vec<CountResult>> = BTreeMap::new();
        for reading in &window.uncore {
            let place = CountSource::Uncore { at: reading.at };
            let columns = self.list.iter().enumerate();
            for (at, shown) in columns.filter(|(_, shown)| shown.column.place == place) {
                let EventColumn { name, scale, .. } = shown.column;
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

impl CountColumn<'_> {
    fn push(
        &self,
        report: &mut Report,
        subject: u32,
        count: CountResult,
        total: Option<CounterValue>,
    ) {
        let value = count.map(Value::Counter).map_err(Reason::NoValue);
        report.push([subject, self.metric, self.attributes], value, total);
    }

    /// Totals of an uncore event since the session began, by socket.
    fn totals<'a>(&self, window: &'a Window) -> impl Iterator<Item = &'a UncoreTotal> {
        let place = self.column.place;
        let totals = window.uncore_totals.iter();
        totals.filter(move |total| place == CountSource::Uncore { at: total.at })
    }

    fn total_counter(&self, total: &UncoreTotal) -> CounterValue {
        let scale = self.column.scale;
        CounterValue {
            start: total.since,
            raw: total.raw,
            estimate: Estimate {
                running_ratio: float(total.running) / float(total.enabled.max(1)),
                spread: Spread::Error(total.variance.sqrt() * scale),
                ..Estimate::exact(total.estimate * scale)
            },
            time: Some(RunningTime {
                enabled: total.enabled,
                running: total.running,
            }),
        }
    }
}

/// The metric of an event, under the name that the user gave it.
fn event_metric(name: String, unit: String, scale: f64) -> MetricInfo {
    MetricInfo {
        help: format!("What the event {name} counted"),
        name,
        unit,
        kind: MetricKind::Counter,
        counting: CounterSource::Event(scale),
    }
}

/// Whether two columns show the same count under the same name. An event requested twice is counted
/// once.
fn is_same(a: &EventColumn, b: &EventColumn) -> bool {
    (&a.name, a.place, &a.unit) == (&b.name, b.place, &b.unit)
        && a.scale.to_bits() == b.scale.to_bits()
}

/// A unique name for an event. An event in several event sets of the user is in several counter
/// groups, each with its own count: all but the first have the group number in the name.
fn unique_name(name: &str, group: Option<u32>, taken: &mut BTreeSet<String>) -> String {
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

/// The number of the counter group; None for an event without one.
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

/// The value of a column counted on CPUs; None if it is not counted for this row.
fn core_count(
    plan: &Plan,
    column: &EventColumn,
    (group, at): (usize, usize),
    usage: &Usage,
    start: Duration,
) -> Option<CountResult> {
    let group_counts = usage.get(group)?.as_ref().filter(|it| it.enabled > 0);
    let ran = || usage.iter().flatten().any(|it| it.enabled > 0);
    if group_counts.is_none() && plan.is_of_one_kind(group) && ran() {
        // The owner ran only on cores of other kinds, so its count is 0.
        return Some(Ok(exact(0, start)));
    }
    let group_counts = group_counts.ok_or(NoValue::DidNotRun);
    Some(group_counts.and_then(|it| counter_value(column, it, at, start)))
}

/// The value of the counter at index `at` of a group.
fn counter_value(
    column: &EventColumn,
    counted: &GroupCounts,
    at: usize,
    start: Duration,
) -> CountResult {
    let estimate = estimate(counted, at).map_err(|why| match why {
        Absent::MostlyUnknown => NoValue::MostlyUnknown,
        Absent::Divided => NoValue::Divided,
        Absent::Missing | Absent::NeverRan => NoValue::NeverRan(column.name.clone()),
    })?;
    Ok(CounterValue {
        start,
        raw: counted.counts[at],
        estimate: Estimate {
            running_ratio: counted.running_ratio(),
            spread: Spread::Error(counted.covariance(at, at).sqrt() * column.scale),
            ..Estimate::exact(estimate * column.scale)
        },
        time: Some(RunningTime {
            enabled: counted.enabled,
            running: counted.running,
        }),
    })
}

/// The sort key of rows: the estimate of the first displayed event; None if CPUs do not count it,
/// or without a count. If no event is displayed, the key is the time on CPUs.
pub(super) fn sort_key(plan: &Plan, usage: &Usage) -> Option<f64> {
    let Some(column) = plan.columns.iter().find(|column| column.shown) else {
        let enabled = usage.iter().flatten().map(|counted| counted.enabled);
        return enabled.max().map(float);
    };
    let CountSource::Core { group, at } = column.place else {
        return None;
    };
    let count = core_count(plan, column, (group, at), usage, Duration::ZERO)?;
    Some(count.ok()?.estimate.value)
}

/// The estimate of a counter of an enabled group, or the reason for its absence.
pub(super) fn estimate(counted: &GroupCounts, at: usize) -> Result<f64, Absent> {
    if counted.counts[at] == 0 && counted.divided().is_some() {
        return Err(Absent::Divided);
    }
    counted.estimate(at).ok_or(if counted.running == 0 {
        Absent::NeverRan
    } else {
        Absent::MostlyUnknown
    })
}

/// The finding about a row with slices that were divided by time.
pub(super) fn divided_slices(usage: &Usage) -> Option<String> {
    let parts = usage.iter().flatten().filter_map(GroupCounts::divided);
    let part = parts.reduce(f64::max)?;
    Some(format!(
        "{:.0}% of its time is in slices that were divided by time between it and others, since the \
         kernel did not show all context switches: what it counted then, but for clocks, is an \
         estimate",
        part * 100.0
    ))
}

/// The value of an uncore counter. None if it never ran: its count is then unknown, not 0.
pub(super) fn scale(reading: &UncoreReading, scale: f64, start: Duration) -> Option<CounterValue> {
    let enabled = reading.enabled.max(reading.running);
    Some(CounterValue {
        start,
        raw: reading.count?,
        estimate: Estimate {
            running_ratio: float(reading.running) / float(enabled),
            spread: Spread::Error(reading.error() * scale),
            ..Estimate::exact(reading.estimate()? * scale)
        },
        time: Some(RunningTime {
            enabled,
            running: reading.running,
        }),
    })
}

/// The sum over sockets or instances; None for an empty list. If one of them has no value, neither
/// has the sum, since a partial sum would mislead.
pub(super) fn total<'a>(counts: impl Iterator<Item = &'a CountResult>) -> Option<CountResult> {
    let counts: Result<Vec<CounterValue>, NoValue> = counts.cloned().collect();
    counts
        .map(|counts| counts.into_iter().reduce(sum_counters))
        .transpose()
}

fn sum_counters(a: CounterValue, b: CounterValue) -> CounterValue {
    CounterValue {
        start: a.start.min(b.start),
        raw: a.raw.wrapping_add(b.raw),
        estimate: Estimate {
            running_ratio: a.estimate.running_ratio.min(b.estimate.running_ratio),
            spread: a.estimate.spread.combine(b.estimate.spread),
            ..Estimate::exact(a.estimate.value + b.estimate.value)
        },
        time: a.time.zip(b.time).map(|(a, b)| RunningTime {
            enabled: a.enabled + b.enabled,
            running: a.running + b.running,
        }),
    }
}

fn exact(raw: u64, start: Duration) -> CounterValue {
    CounterValue {
        start,
        raw,
        estimate: Estimate {
            spread: Spread::Error(0.0),
            ..Estimate::exact(float(raw))
        },
        time: None,
    }
}
