//! Events and metrics: a row for each entity, socket and the machine.

use super::{
    Page,
    grid::{Cell, Column, Grid, Row},
    names::one_of_many,
    number::{Form, Number},
};
use crate::{
    derive::{Group, Kind, Metric, Part, Reason, Series},
    emit::printable::printable,
    formula::NoValue,
};

/// A row for each entity, socket and the machine.
pub(super) fn entities(page: &Page<'_>) -> Grid {
    let wanted =
        |group: &&Group<'_>| matches!(group.part, Part::Rows | Part::Sockets | Part::Total);
    let groups = || page.groups.iter().filter(wanted);
    let metrics = &page.report.metrics;
    let mut is_shown = vec![false; metrics.len()];
    for series in groups().flat_map(|group| page.shown(group)) {
        is_shown[series.metric as usize] = true;
    }
    // Events first, and then metrics.
    let mut columns: Vec<usize> = (0..metrics.len()).filter(|at| is_shown[*at]).collect();
    columns.sort_by_key(|at| metrics[*at].kind != Kind::Counter);
    let mut column_of = vec![0; metrics.len()];
    for (column, metric) in columns.iter().enumerate() {
        column_of[*metric] = column;
    }
    let rows = groups().filter_map(|group| {
        let labels = vec![page.name(group)];
        let mut row = Row::new(labels, 0, one_of_many(group.subject));
        row.cells = columns.iter().map(|_| Cell::Empty).collect();
        let mut is_empty = true;
        for series in page.shown(group) {
            row.cells[column_of[series.metric as usize]] = cell(series);
            is_empty = false;
        }
        (!is_empty).then_some(row)
    });
    let described = columns.iter().map(|at| &metrics[*at]);
    Grid {
        heads: vec![page.heading.to_owned()],
        rows: rows.collect(),
        columns: described.map(|metric| page.column(metric)).collect(),
        kept: 0,
    }
}

/// A value, or that there is none.
pub(super) fn cell(series: &Series) -> Cell {
    match &series.value {
        Err(Reason::NoValue(NoValue::DidNotRun)) => Cell::NotRun,
        value => {
            let number = value.as_ref().ok().and_then(Number::of_value);
            number.map_or(Cell::Absent, Cell::Number)
        }
    }
}

impl<'a> Page<'a> {
    /// The series of a group, but for sampled accesses, which have tables of their own.
    fn shown(&self, group: &Group<'a>) -> impl Iterator<Item = &'a Series> {
        let series = group.series.iter();
        series.filter(|series| self.report.attributes(series).operation.is_none())
    }

    /// The column of a metric. Clocks count nanoseconds; seconds are shown. A plain ratio has no
    /// unit to show.
    pub(super) fn column(&self, metric: &Metric) -> Column {
        let exact = self.screen.exact;
        let counter = metric.kind == Kind::Counter;
        let clock = counter && metric.unit == "ns";
        let (unit, factor) = match metric.unit.as_str() {
            _ if clock && !exact => ("s", 1e-9),
            "1" => ("", 1.0),
            unit => (unit, 1.0),
        };
        let unit = (!unit.is_empty()).then(|| printable(unit).into_owned());
        Column {
            name: printable(&metric.name).into_owned(),
            under: unit.into_iter().collect(),
            form: Form {
                factor,
                whole: counter && (metric.unit.is_empty() || clock && exact),
                exact,
            },
            adds_up: counter,
        }
    }
}
