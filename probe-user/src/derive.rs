//! Derive: values from counts, and the ratios that can be had from the events at hand.

pub mod spe;
pub mod statistics;

use std::{collections::BTreeMap, time::Duration};

use crate::{
    join::{Entity, Joined},
    load::{Column, Place, Plan, Planned},
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
    /// One per column of the plan.
    pub values: Vec<Option<Value>>,
    /// One per ratio of [`Report::ratios`].
    pub ratios: Vec<Option<f64>>,
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
    /// The ratios that these events give.
    pub ratios: Vec<&'static Ratio>,
    /// Rows by entity.
    pub rows: Vec<Row<Entity>>,
    /// Rows by socket, where uncore events are counted; only those have values.
    pub sockets: Vec<Row<u32>>,
    /// The whole machine.
    pub total: Row<()>,
}

/// A ratio of two events, or of an event and time.
#[derive(Debug, PartialEq)]
pub struct Ratio {
    /// Heading.
    pub name: &'static str,
    /// Unit, UCUM-like: 1 for a plain ratio.
    pub unit: &'static str,
    numerator: EventId,
    denominator: Denominator,
    factor: f64,
}

/// Type and config of `linux/perf_event.h`.
type EventId = (u32, u64);

#[derive(Debug, PartialEq)]
enum Denominator {
    Event(EventId),
    /// Length of the window in seconds.
    Seconds,
}

const CYCLES: EventId = (0, 0);
const INSTRUCTIONS: EventId = (0, 1);
const CACHE_REFERENCES: EventId = (0, 2);
const CACHE_MISSES: EventId = (0, 3);
const BRANCHES: EventId = (0, 4);
const BRANCH_MISSES: EventId = (0, 5);
const TASK_CLOCK: EventId = (1, 1);
const PAGE_FAULTS: EventId = (1, 2);
const CONTEXT_SWITCHES: EventId = (1, 3);

const fn ratio(
    name: &'static str,
    unit: &'static str,
    numerator: EventId,
    denominator: Denominator,
    factor: f64,
) -> Ratio {
    Ratio {
        name,
        unit,
        numerator,
        denominator,
        factor,
    }
}

/// The ratios that `stat` shows without being asked.
static RATIOS: [Ratio; 7] = [
    // task-clock counts nanoseconds.
    ratio("CPUs", "1", TASK_CLOCK, Denominator::Seconds, 1e-9),
    ratio("IPC", "1", INSTRUCTIONS, Denominator::Event(CYCLES), 1.0),
    ratio("GHz", "GHz", CYCLES, Denominator::Event(TASK_CLOCK), 1.0),
    ratio(
        "cache-miss%",
        "%",
        CACHE_MISSES,
        Denominator::Event(CACHE_REFERENCES),
        100.0,
    ),
    ratio(
        "branch-miss%",
        "%",
        BRANCH_MISSES,
        Denominator::Event(BRANCHES),
        100.0,
    ),
    ratio("faults/s", "1/s", PAGE_FAULTS, Denominator::Seconds, 1.0),
    ratio("cs/s", "1/s", CONTEXT_SWITCHES, Denominator::Seconds, 1.0),
];

impl Report {
    /// Values and ratios of a joined window. `began` is the time of the session's first snapshot.
    #[must_use]
    pub fn new(plan: &Plan, window: &Window, joined: &Joined, began: Duration) -> Self {
        let sources: Vec<_> = RATIOS
            .iter()
            .filter_map(|ratio| Some((ratio, ratio.columns(plan)?)))
            .collect();
        let row = |usage: &Usage| -> Vec<Option<Value>> {
            plan.columns
                .iter()
                .map(|column| core_value(column, usage))
                .collect()
        };
        let ratios = |values: &[Option<Value>]| -> Vec<Option<f64>> {
            sources
                .iter()
                .map(|(ratio, source)| ratio.of(values, source, window.length))
                .collect()
        };
        let rows = joined.rows.iter().map(|(entity, usage)| {
            let values = row(usage);
            Row {
                label: entity.clone(),
                ratios: ratios(&values),
                values,
            }
        });
        let mut rows: Vec<_> = rows.collect();
        // Of one kind, whoever used most of the first event comes first.
        rows.sort_by(|a, b| {
            rank(&a.label)
                .cmp(&rank(&b.label))
                .then(first(b).total_cmp(&first(a)))
        });
        let sockets = socket_values(plan, window);
        let mut values = row(&joined.total);
        for (at, column) in plan.columns.iter().enumerate() {
            match column.place {
                Place::Core { .. } => {}
                Place::Uncore { .. } => {
                    values[at] = total(sockets.values().map(|values| values[at]));
                }
                Place::Duration => values[at] = Some(duration(window.length)),
            }
        }
        let none = vec![None; sources.len()];
        Self {
            elapsed: (window.start + window.length).saturating_sub(began),
            length: window.length,
            columns: plan.columns.clone(),
            ratios: sources.iter().map(|(ratio, _)| *ratio).collect(),
            rows,
            sockets: sockets
                .into_iter()
                .map(|(label, values)| Row {
                    label,
                    values,
                    ratios: none.clone(),
                })
                .collect(),
            total: Row {
                label: (),
                ratios: ratios(&values),
                values,
            },
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

impl Ratio {
    /// The ratio of that name.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        RATIOS.iter().find(|ratio| ratio.name == name)
    }

    /// The columns of numerator and denominator (None: time). They leave out the same, or there is no ratio.
    fn columns(&self, plan: &Plan) -> Option<(usize, Option<usize>)> {
        let find = |event: EventId, like: Option<&Planned>| {
            plan.slots().find(|planned| {
                // The upper half of a hardware event's config is the PMU's type, where it is given.
                let config = planned.counter.config & 0xffff_ffff;
                (planned.counter.type_, config) == event
                    && like.is_none_or(|like| like.exclude == planned.exclude)
            })
        };
        let numerator = find(self.numerator, None)?;
        let denominator = match self.denominator {
            Denominator::Event(event) => Some(find(event, Some(numerator))?.column),
            Denominator::Seconds => None,
        };
        Some((numerator.column, denominator))
    }

    fn of(
        &self,
        values: &[Option<Value>],
        source: &(usize, Option<usize>),
        length: Duration,
    ) -> Option<f64> {
        let above = values[source.0]?.scaled;
        let below = match source.1 {
            Some(column) => values[column]?.scaled,
            None => length.as_secs_f64(),
        };
        (below > 0.0).then(|| above / below * self.factor)
    }
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

fn socket_values(plan: &Plan, window: &Window) -> BTreeMap<u32, Vec<Option<Value>>> {
    let mut sockets: BTreeMap<u32, Vec<Option<Value>>> = BTreeMap::new();
    for reading in &window.uncore {
        let column = plan.uncore[reading.at].column;
        let values = sockets
            .entry(reading.socket)
            .or_insert_with(|| vec![None; plan.columns.len()]);
        values[column] = reading.count.and_then(|count| {
            scale(
                count,
                reading.enabled,
                reading.running,
                plan.columns[column].scale,
            )
        });
    }
    sockets
}

/// The sum over sockets; none where one of them has no value, a part is not the whole.
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
