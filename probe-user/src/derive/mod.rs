//! Derive: values from counts, and documented metrics from values.

mod ddio;
mod metrics;
mod samples;
mod shares;

pub mod spe;
pub mod statistics;

use std::{collections::BTreeMap, time::Duration};

pub use self::{
    ddio::{Advice, Finding},
    metrics::{Measured, MetricHead, MetricValue, PlaceRow},
    shares::{Share, ShareRow, Whose},
};
use crate::{
    formula::{Absent, NoValue},
    join::{Entity, Joined},
    plan::{Column, CountSource, Plan},
    window::{Counted, Usage, Window},
};

/// A count of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// As counted.
    pub raw: u64,
    /// Estimate for the whole time, where the counter was not always on the PMU: the sum of what is estimated
    /// for each owner on each CPU; times the event's own scale.
    pub scaled: f64,
    /// Share of the time for which the counter was on the PMU: 1 where nothing was estimated.
    pub running: f64,
    /// Standard error of `scaled`, as far as it is an estimate: 0 where `running` is 1.
    pub error: f64,
}

impl Value {
    /// [`Self::error`] as a part of the value; None where it is nothing of nothing.
    #[must_use]
    pub fn rel_error(&self) -> Option<f64> {
        relative(self.error, self.scaled)
    }
}

/// A count, or why there is none; None where the event is not counted for such a row.
pub type CountValue = Option<Result<Value, NoValue>>;

/// A row with its values in the order of the columns.
#[derive(Clone, Debug)]
pub struct Row<L> {
    /// Whom it is about.
    pub label: L,
    /// One per column of the report.
    pub values: Vec<CountValue>,
    /// One per metric of [`Report::metrics`]; none in rows of sockets.
    pub metrics: Vec<MetricValue>,
}

/// Everything that is shown of a window.
#[derive(Clone, Debug)]
pub struct Report {
    /// Time since the session began, at the window's end.
    pub elapsed: Duration,
    /// Length of the window.
    pub length: Duration,
    /// The events.
    pub columns: Vec<Column>,
    /// The metrics that every entity has a value of.
    pub metrics: Vec<MetricHead>,
    /// Rows by entity.
    pub rows: Vec<Row<Entity>>,
    /// Rows by socket, where uncore events are counted; only those have values.
    pub sockets: Vec<Row<u32>>,
    /// The whole machine.
    pub total: Row<()>,
    /// Metrics of sockets and devices.
    pub places: Vec<PlaceRow>,
    /// What of the metrics of sockets is whose.
    pub shares: Vec<ShareRow>,
    /// What metrics of sockets say in words.
    pub findings: Vec<Finding>,
    /// What to try where they are not as one would wish.
    pub advice: &'static [Advice],
    /// Metrics that cannot be counted here, and why.
    pub missing: Vec<(MetricHead, String)>,
    /// What became of everything that SPE wrote since the session began, in one that samples.
    pub sampling: Vec<(String, u64)>,
}

impl Report {
    /// Values and metrics of a joined window. `began` is the time of the session's first snapshot.
    #[must_use]
    pub fn new(plan: &Plan, window: &Window, joined: &Joined, began: Duration) -> Self {
        let columns: Vec<&Column> = plan.columns.iter().filter(|column| column.shown).collect();
        let row = |usage: &Usage| -> Vec<CountValue> {
            columns
                .iter()
                .map(|column| core_value(plan, column, usage))
                .collect()
        };
        let rows = joined.rows.iter().map(|(entity, usage)| Row {
            label: entity.clone(),
            values: row(usage),
            metrics: metrics::of_usage(plan, usage, window.length),
        });
        let mut rows: Vec<_> = rows.collect();
        // Of one kind, whoever used most of the first event comes first.
        rows.sort_by(|a, b| {
            rank(&a.label)
                .cmp(&rank(&b.label))
                .then(first(b).total_cmp(&first(a)))
        });
        let sockets = socket_values(&columns, window);
        let mut values = row(&joined.total);
        for (at, column) in columns.iter().enumerate() {
            match column.place {
                CountSource::Core { .. } | CountSource::Sampled(_) => {}
                CountSource::Uncore { .. } => {
                    values[at] = total(sockets.values().map(|values| &values[at]));
                }
                CountSource::Duration => values[at] = Some(Ok(duration(window.length))),
            }
        }
        let socket = |(label, values)| Row {
            label,
            values,
            metrics: Vec::new(),
        };
        let places = metrics::of_places(plan, window);
        Self {
            elapsed: (window.start + window.length).saturating_sub(began),
            length: window.length,
            metrics: metrics::of_entities(plan),
            rows,
            sockets: sockets.into_iter().map(socket).collect(),
            total: Row {
                label: (),
                values,
                metrics: metrics::of_usage(plan, &joined.total, window.length),
            },
            findings: ddio::findings(&places),
            advice: ddio::advice(&places),
            places,
            shares: Vec::new(),
            missing: metrics::missing(plan),
            sampling: Vec::new(),
            columns: columns.into_iter().cloned().collect(),
        }
    }
}

/// The place of a row's kind in the output.
fn rank(label: &Entity) -> u8 {
    match label {
        Entity::Command(_) => 0,
        Entity::Pod(_) => 1,
        Entity::Container { .. } => 2,
        Entity::Cgroup(_) | Entity::Process { .. } => 3,
        Entity::EndedProcesses | Entity::Unnamed(_) => 4,
        Entity::System => 5,
        Entity::Overflow | Entity::Unattributed => 6,
        Entity::Idle | Entity::SystemAndIdle => 7,
    }
}

fn first(row: &Row<Entity>) -> f64 {
    match row.values.first() {
        Some(Some(Ok(value))) => value.scaled,
        _ => -1.0,
    }
}

/// The value of a column that is counted on CPUs.
fn core_value(plan: &Plan, column: &Column, usage: &Usage) -> CountValue {
    let CountSource::Core { group, at } = column.place else {
        return None;
    };
    let counted = usage.get(group)?.as_ref();
    let counted = counted.filter(|it| it.enabled > 0);
    let ran = usage.iter().flatten().any(|it| it.enabled > 0);
    if counted.is_none() && ran && plan.is_of_one_kind(group) {
        // It ran, and never on a core of that kind: that is known.
        return Some(Ok(Value {
            raw: 0,
            scaled: 0.0,
            running: 1.0,
            error: 0.0,
        }));
    }
    let value = |counted: &Counted| {
        let estimate = estimate(counted, at).map_err(|why| match why {
            Absent::MostlyUnknown => NoValue::MostlyUnknown,
            Absent::Missing | Absent::NeverRan => NoValue::NeverRan(column.name.clone()),
        })?;
        Ok(Value {
            raw: counted.counts[at],
            scaled: estimate * column.scale,
            running: counted.live(),
            error: counted.covariance(at, at).sqrt() * column.scale,
        })
    };
    Some(counted.ok_or(NoValue::DidNotRun).and_then(value))
}

/// The estimate of a counter of a group that could have been live, or why there is none.
fn estimate(counted: &Counted, at: usize) -> Result<f64, Absent> {
    counted.estimate(at).ok_or(if counted.running == 0 {
        Absent::NeverRan
    } else {
        Absent::MostlyUnknown
    })
}

/// An error as a part of its value; None where that says nothing.
fn relative(error: f64, value: f64) -> Option<f64> {
    (error > 0.0 && value != 0.0).then(|| error / value.abs())
}

/// Of an uncore counter. None where it never ran: nothing can be said then, least of all 0.
#[expect(
    clippy::cast_precision_loss,
    reason = "an estimate of more than 2^53 counts has no better precision"
)]
fn scale(raw: u64, enabled: u64, running: u64, scale: f64) -> Option<Value> {
    if running == 0 {
        return None;
    }
    let share = running as f64 / enabled.max(running) as f64;
    let scaled = raw as f64 / share * scale;
    Some(Value {
        raw,
        scaled,
        running: share,
        // What was not seen may be anything from nothing to twice as much.
        error: scaled * (1.0 - share),
    })
}

/// Of a socket with several instances of a PMU: their sum.
fn socket_values(columns: &[&Column], window: &Window) -> BTreeMap<u32, Vec<CountValue>> {
    let mut instances: BTreeMap<(u32, usize), Vec<CountValue>> = BTreeMap::new();
    for reading in &window.uncore {
        let place = CountSource::Uncore { at: reading.at };
        let Some(column) = columns.iter().position(|column| column.place == place) else {
            continue;
        };
        let Column { name, scale, .. } = columns[column];
        let value = match reading.count {
            Some(count) => self::scale(count, reading.enabled, reading.running, *scale)
                .ok_or_else(|| NoValue::NeverRan(name.clone())),
            None => Err(NoValue::Missing(vec![name.clone()])),
        };
        let of_socket = instances.entry((reading.socket, column)).or_default();
        of_socket.push(Some(value));
    }
    let mut sockets: BTreeMap<u32, Vec<CountValue>> = BTreeMap::new();
    for ((socket, column), values) in instances {
        let of_socket = sockets
            .entry(socket)
            .or_insert_with(|| vec![None; columns.len()]);
        of_socket[column] = total(values.iter());
    }
    sockets
}

/// The sum over sockets or instances; none where one of them has no value, a part is not the whole.
fn total<'a>(values: impl Iterator<Item = &'a CountValue>) -> CountValue {
    let mut all: Option<Value> = None;
    for value in values {
        let value = match value.as_ref()? {
            Ok(value) => *value,
            Err(reason) => return Some(Err(reason.clone())),
        };
        all = Some(all.map_or(value, |sum| Value {
            raw: sum.raw.wrapping_add(value.raw),
            scaled: sum.scaled + value.scaled,
            running: sum.running.min(value.running),
            error: sum.error.hypot(value.error),
        }));
    }
    all.map(Ok)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a window of more than 2^53 ns is 104 days long"
)]
fn duration(length: Duration) -> Value {
    let raw = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    Value {
        raw,
        scaled: raw as f64,
        running: 1.0,
        error: 0.0,
    }
}

#[cfg(test)]
mod tests;
