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
    join::{Entity, Joined},
    load::{Column, Place, Plan},
    window::{Usage, Window},
};

/// A count of one event. There is none for a counter that never ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// As counted.
    pub raw: u64,
    /// Estimate for the whole time: scaled by enabled / running where the counter was not always
    /// on the PMU, and by the event's own scale.
    pub scaled: f64,
    /// Share of the time for which the counter was on the PMU: 1 where nothing was scaled.
    pub running: f64,
}

/// A row with its values in the order of the columns.
#[derive(Clone, Debug)]
pub struct Row<L> {
    /// Whom it is about.
    pub label: L,
    /// One per column of the report.
    pub values: Vec<Option<Value>>,
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
        let row = |usage: &Usage| -> Vec<Option<Value>> {
            columns
                .iter()
                .map(|column| core_value(column, usage))
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
                Place::Core { .. } | Place::Sampled(_) => {}
                Place::Uncore { .. } => {
                    values[at] = total(sockets.values().map(|values| values[at]));
                }
                Place::Duration => values[at] = Some(duration(window.length)),
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
        Entity::Unnamed(_) => 4,
        Entity::System => 5,
        Entity::Overflow | Entity::Unattributed => 6,
        Entity::Idle | Entity::SystemAndIdle => 7,
    }
}

fn first(row: &Row<Entity>) -> f64 {
    row.values
        .first()
        .copied()
        .flatten()
        .map_or(-1.0, |value| value.scaled)
}

/// The value of a column that is counted on CPUs.
fn core_value(column: &Column, usage: &Usage) -> Option<Value> {
    let Place::Core { group, at } = column.place else {
        return None;
    };
    let row = usage.get(group)?.as_ref()?;
    scale(row.counts[at], row.enabled, row.running, column.scale)
}

/// None where the counter never ran: nothing can be said then, least of all 0.
#[expect(
    clippy::cast_precision_loss,
    reason = "an estimate of more than 2^53 counts has no better precision"
)]
fn scale(raw: u64, enabled: u64, running: u64, scale: f64) -> Option<Value> {
    if running == 0 {
        return None;
    }
    let share = running as f64 / enabled.max(running) as f64;
    Some(Value {
        raw,
        scaled: raw as f64 / share * scale,
        running: share,
    })
}

/// Of a socket with several instances of a PMU: their sum.
fn socket_values(columns: &[&Column], window: &Window) -> BTreeMap<u32, Vec<Option<Value>>> {
    let mut instances: BTreeMap<(u32, usize), Vec<Option<Value>>> = BTreeMap::new();
    for reading in &window.uncore {
        let place = Place::Uncore { at: reading.at };
        let Some(column) = columns.iter().position(|column| column.place == place) else {
            continue;
        };
        let factor = columns[column].scale;
        let value = |count| scale(count, reading.enabled, reading.running, factor);
        let of_socket = instances.entry((reading.socket, column)).or_default();
        of_socket.push(reading.count.and_then(value));
    }
    let mut sockets: BTreeMap<u32, Vec<Option<Value>>> = BTreeMap::new();
    for ((socket, column), values) in instances {
        let of_socket = sockets
            .entry(socket)
            .or_insert_with(|| vec![None; columns.len()]);
        of_socket[column] = total(values.into_iter());
    }
    sockets
}

/// The sum over sockets or instances; none where one of them has no value, a part is not the whole.
fn total(values: impl Iterator<Item = Option<Value>>) -> Option<Value> {
    values
        .map(|value| value.ok_or(()))
        .try_fold(None, |sum: Option<Value>, value| {
            let value = value?;
            let sum = sum.map_or(value, |sum| Value {
                raw: sum.raw.wrapping_add(value.raw),
                scaled: sum.scaled + value.scaled,
                running: sum.running.min(value.running),
            });
            Ok::<_, ()>(Some(sum))
        })
        .unwrap_or(None)
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_never_ran_has_no_value() {
        assert_eq!(scale(0, 1_000, 0, 1.0), None);
        assert_eq!(scale(0, 0, 0, 1.0), None);
    }

    #[test]
    fn a_counter_that_ran_part_of_the_time_is_scaled_and_says_so() {
        let value = scale(250, 1_000, 250, 1.0).unwrap();
        assert_eq!(
            (value.raw, value.scaled, value.running),
            (250, 1_000.0, 0.25)
        );
        let value = scale(3, 10, 10, 64.0).unwrap();
        assert_eq!((value.raw, value.scaled, value.running), (3, 192.0, 1.0));
    }

    #[test]
    fn a_total_needs_every_socket() {
        let one = Some(Value {
            raw: 1,
            scaled: 1.0,
            running: 1.0,
        });
        assert_eq!(total([one, one].into_iter()).unwrap().raw, 2);
        assert_eq!(total([one, None].into_iter()), None);
        assert_eq!(total(std::iter::empty()), None);
    }
}
