//! Events and metrics: a row for each entity, socket and the machine.

use super::{
    TablePage,
    grid::{Grid, GridCell, GridColumn, GridRow},
    kinds::is_one_of_many,
    number::{NumberFormat, TableNumber},
};
use crate::{
    derive::{MetricInfo, MetricKind, Reason, ReportSection, Series, Subject, SubjectSeries},
    emit::printable::printable,
    formula::NoValue,
};

/// Metrics that tables omit, since these show the 99th percentile. Other formats have them.
const FOR_PROGRAMS: [&str; 2] = ["cpu_wait_p50", "cpu_wait_p90"];

/// A row for each entity, socket and the machine.
pub(super) fn entities(page: &TablePage<'_>) -> Grid {
    let wanted = |group: &&SubjectSeries<'_>| {
        matches!(
            group.section,
            ReportSection::Rows
                | ReportSection::Processes
                | ReportSection::Sockets
                | ReportSection::Total
        )
    };
    let groups = || page.groups.iter().filter(wanted);
    let metrics = &page.report.metrics;
    let mut is_shown = vec![false; metrics.len()];
    for series in groups().flat_map(|group| page.row_series(group)) {
        is_shown[series.metric as usize] = true;
    }
    let is_replaced_by_rates = |at: &usize| page.report.is_replaced_by_rates(&metrics[*at]);
    // Events come first, then metrics.
    let mut columns: Vec<usize> = (0..metrics.len())
        .filter(|at| is_shown[*at] && !is_replaced_by_rates(at))
        .collect();
    columns.sort_by_key(|at| metrics[*at].kind != MetricKind::Counter);
    let mut column_of = vec![None; metrics.len()];
    for (column, metric) in columns.iter().enumerate() {
        column_of[*metric] = Some(column);
    }
    let rows = groups().filter_map(|group| {
        let labels = vec![page.name(group)];
        let mut row = GridRow::new(labels, 0, is_one_of_many(group.subject));
        row.cells = columns.iter().map(|_| GridCell::Empty).collect();
        if let Subject::Entity(entity) = group.subject {
            row.entity = Some(entity.clone());
        }
        let mut is_empty = true;
        for series in page.row_series(group) {
            if let Some(column) = column_of[series.metric as usize] {
                row.cells[column] = cell(series);
                is_empty = false;
            }
        }
        (!is_empty).then_some(row)
    });
    let described = columns.iter().map(|at| &metrics[*at]);
    Grid {
        heads: vec![page.heading.to_owned()],
        rows: rows.collect(),
        columns: described.map(|metric| page.column(metric)).collect(),
        key_labels: 0,
    }
}

/// The cell of a value or of a missing value.
pub(super) fn cell(series: &Series) -> GridCell {
    match &series.value {
        Err(Reason::NoValue(NoValue::DidNotRun)) => GridCell::NotRun,
        value => {
            let number = value.as_ref().ok().and_then(TableNumber::from_value);
            number.map_or(GridCell::Absent, GridCell::Number)
        }
    }
}

impl<'a> TablePage<'a> {
    /// The series of a group that the table of rows shows. Sampled accesses have separate tables.
    fn row_series(&self, group: &SubjectSeries<'a>) -> impl Iterator<Item = &'a Series> {
        let series = group.series.iter();
        series.filter(|series| {
            let is_access = self.report.attributes(series).operation.is_some();
            self.is_shown(series) && !is_access
        })
    }

    /// Whether tables show a series: values of the window, except [`FOR_PROGRAMS`].
    pub(super) fn is_shown(&self, series: &Series) -> bool {
        let name = self.report.metric(series).name.as_str();
        self.report.is_of_window(series) && !FOR_PROGRAMS.contains(&name)
    }

    /// The column of a metric. Clocks count nanoseconds, and are shown in seconds unless numbers
    /// have all digits. A plain ratio has no unit.
    pub(super) fn column(&self, metric: &MetricInfo) -> GridColumn {
        let exact = self.screen.exact;
        let is_counter = metric.kind == MetricKind::Counter;
        let is_clock = is_counter && metric.unit == "ns";
        let (unit, factor) = match metric.unit.as_str() {
            _ if is_clock && !exact => ("s", 1e-9),
            "1" => ("", 1.0),
            unit => (unit, 1.0),
        };
        let unit = (!unit.is_empty()).then(|| printable(unit).into_owned());
        GridColumn {
            name: printable(&metric.name).into_owned(),
            under: unit.into_iter().collect(),
            form: NumberFormat {
                factor,
                ..NumberFormat::new(
                    is_counter && (metric.unit.is_empty() || is_clock && exact),
                    exact,
                )
            },
            adds_up: is_counter,
        }
    }
}
