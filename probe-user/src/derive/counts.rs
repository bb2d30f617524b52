//! Counts of events: of entities, sockets and the machine.

use std::collections::BTreeMap;

use super::{Counter, Estimate, Kind, Metric, Reason, Report, Subject, Value};
use crate::{
    formula::{Absent, NoValue},
    join::{Gained, Joined},
    plan::{Column, CountSource, Plan},
    window::{Counted, Usage, Window},
};

/// A count, or why there is none.
pub(super) type Count = Result<Counter, NoValue>;

/// The events that are shown, with their metrics.
pub(super) struct Columns<'a> {
    plan: &'a Plan,
    list: Vec<(u32, &'a Column)>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(report: &mut Report, plan: &'a Plan) -> Self {
        let shown = plan.columns.iter().filter(|column| column.shown);
        let list = shown.map(|column| {
            let nanos = column.clock || column.place == CountSource::Duration;
            let unit = column.unit.clone();
            let metric = report.add_metric(Metric {
                name: column.name.clone(),
                help: format!("What the event {} counted", column.name),
                unit: unit.unwrap_or_else(|| if nanos { "ns" } else { "" }.to_owned()),
                kind: Kind::Counter,
                event: true,
            });
            (metric, column)
        });
        Self {
            plan,
            list: list.collect(),
        }
    }

    /// The events that are counted on CPUs, of one row.
    pub(super) fn add_row(&self, report: &mut Report, subject: u32, row: &Gained<Usage>) {
        for (metric, column) in &self.list {
            let CountSource::Core { group, at } = column.place else {
                continue;
            };
            let Some(count) = core_count(self.plan, column, (group, at), &row.delta) else {
                continue;
            };
            let total = row.total.get(group).and_then(Option::as_ref);
            let total = total.and_then(|total| Some(total.estimate(at)? * column.scale));
            push(report, [subject, *metric], count, total);
        }
    }

    /// The events of sockets: instances of a PMU are added up.
    pub(super) fn add_sockets(&self, report: &mut Report, window: &Window, joined: &Joined) {
        let mut last = None;
        for (socket, at, count) in self.socket_counts(window) {
            let subject = match last {
                Some((same, subject)) if same == socket => subject,
                _ => report.subject(Subject::Socket(socket)),
            };
            last = Some((socket, subject));
            let (metric, column) = self.list[at];
            let total = joined.on_socket(column.place, socket);
            let total = total.map(|total| total * column.scale);
            push(report, [subject, metric], count, total);
        }
    }

    /// The events of the whole machine.
    pub(super) fn add_machine(
        &self,
        report: &mut Report,
        subject: u32,
        window: &Window,
        joined: &Joined,
    ) {
        self.add_row(report, subject, &joined.total);
        let sockets = self.socket_counts(window);
        for (at, (metric, column)) in self.list.iter().enumerate() {
            let (count, sum) = match column.place {
                CountSource::Core { .. } | CountSource::Sampled(_) => continue,
                CountSource::Uncore { .. } => {
                    let here = sockets.iter().filter(|(_, column, _)| *column == at);
                    let missing = || Err(NoValue::Missing(vec![column.name.clone()]));
                    let sum = joined.on_sockets(column.place);
                    let count = total(here.map(|(.., count)| count)).unwrap_or_else(missing);
                    (count, sum.map(|sum| sum * column.scale))
                }
                CountSource::Duration => {
                    let raw = nanos(window.length);
                    (Ok(exact(raw)), Some(float(nanos(report.elapsed()))))
                }
            };
            push(report, [subject, *metric], count, sum);
        }
    }

    /// By socket and column.
    fn socket_counts(&self, window: &Window) -> Vec<(u32, usize, Count)> {
        let mut instances: BTreeMap<(u32, usize), Vec<Count>> = BTreeMap::new();
        for reading in &window.uncore {
            let place = CountSource::Uncore { at: reading.at };
            let mut columns = self.list.iter();
            let Some(at) = columns.position(|(_, column)| column.place == place) else {
                continue;
            };
            let Column { name, scale, .. } = self.list[at].1;
            let value = match reading.count {
                Some(count) => self::scale(count, reading.enabled, reading.running, *scale)
                    .ok_or_else(|| NoValue::NeverRan(name.clone())),
                None => Err(NoValue::Missing(vec![name.clone()])),
            };
            instances
                .entry((reading.socket, at))
                .or_default()
                .push(value);
        }
        let sums = instances.into_iter();
        sums.filter_map(|((socket, at), counts)| Some((socket, at, total(counts.iter())?)))
            .collect()
    }
}

fn push(report: &mut Report, [subject, metric]: [u32; 2], count: Count, total: Option<f64>) {
    let value = count.map(Value::Counter).map_err(Reason::NoValue);
    report.push([subject, metric, 0], value, total);
}

/// The value of a column that is counted on CPUs; None where it is not counted for such a row.
fn core_count(
    plan: &Plan,
    column: &Column,
    (group, at): (usize, usize),
    usage: &Usage,
) -> Option<Count> {
    let counted = usage.get(group)?.as_ref();
    let counted = counted.filter(|it| it.enabled > 0);
    let ran = || usage.iter().flatten().any(|it| it.enabled > 0);
    if counted.is_none() && plan.is_of_one_kind(group) && ran() {
        // It ran, and never on a core of that kind: that is known.
        return Some(Ok(exact(0)));
    }
    let value = |counted: &Counted| {
        let estimate = estimate(counted, at).map_err(|why| match why {
            Absent::MostlyUnknown => NoValue::MostlyUnknown,
            Absent::Missing | Absent::NeverRan => NoValue::NeverRan(column.name.clone()),
        })?;
        Ok(Counter {
            raw: counted.counts[at],
            estimate: Estimate {
                value: estimate * column.scale,
                live: counted.live(),
                interval: None,
                error: Some(counted.covariance(at, at).sqrt() * column.scale),
            },
        })
    };
    Some(counted.ok_or(NoValue::DidNotRun).and_then(value))
}

/// What is estimated of the first event, where it is one that is counted on CPUs.
pub(super) fn first(plan: &Plan, usage: &Usage) -> Option<f64> {
    let column = plan.columns.iter().find(|column| column.shown)?;
    let CountSource::Core { group, at } = column.place else {
        return None;
    };
    let count = core_count(plan, column, (group, at), usage)?;
    Some(count.ok()?.estimate.value)
}

/// The estimate of a counter of a group that could have been live, or why there is none.
pub(super) fn estimate(counted: &Counted, at: usize) -> Result<f64, Absent> {
    counted.estimate(at).ok_or(if counted.running == 0 {
        Absent::NeverRan
    } else {
        Absent::MostlyUnknown
    })
}

/// Of an uncore counter. None where it never ran: nothing can be said then, least of all 0.
pub(super) fn scale(raw: u64, enabled: u64, running: u64, scale: f64) -> Option<Counter> {
    if running == 0 {
        return None;
    }
    let live = float(running) / float(enabled.max(running));
    let value = float(raw) / live * scale;
    Some(Counter {
        raw,
        estimate: Estimate {
            value,
            live,
            interval: None,
            // What was not seen may be anything from nothing to twice as much.
            error: Some(value * (1.0 - live)),
        },
    })
}

/// The sum over sockets or instances; an error where one of them has no value, a part is not the
/// whole. None of none.
pub(super) fn total<'a>(counts: impl Iterator<Item = &'a Count>) -> Option<Count> {
    let mut all: Option<Counter> = None;
    for count in counts {
        let count = match count {
            Ok(count) => *count,
            Err(reason) => return Some(Err(reason.clone())),
        };
        all = Some(all.map_or(count, |sum| {
            Counter {
                raw: sum.raw.wrapping_add(count.raw),
                estimate: Estimate {
                    value: sum.estimate.value + count.estimate.value,
                    live: sum.estimate.live.min(count.estimate.live),
                    interval: None,
                    error: sum
                        .estimate
                        .error
                        .zip(count.estimate.error)
                        .map(|(a, b)| a.hypot(b)),
                },
            }
        }));
    }
    all.map(Ok)
}

fn exact(raw: u64) -> Counter {
    Counter {
        raw,
        estimate: Estimate {
            error: Some(0.0),
            ..Estimate::exact(float(raw))
        },
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an estimate of more than 2^53 counts or ns has no better precision"
)]
fn float(count: u64) -> f64 {
    count as f64
}
