//! Sampled accesses: number and latency by owner, data sources, and lists such as the hottest
//! pages.

use probe_common::spe::Class;

use super::{
    TablePage,
    entities::cell,
    grid::{Grid, GridCell, GridColumn, GridRow},
    kinds::is_one_of_many,
    number::{NumberFormat, TableNumber},
};
use crate::{
    derive::{self, ReportSection, Series, SubjectSeries, find_sample_counter, mem_level_name},
    emit::printable::printable,
    window::float,
};

/// A column of a metric, with its heading and unit.
struct MetricColumn {
    metric: &'static str,
    heading: &'static str,
    unit: &'static str,
    /// Factor from the unit of the metric to `unit`.
    factor: f64,
}

const fn cycles(metric: &'static str, heading: &'static str) -> MetricColumn {
    MetricColumn {
        metric,
        heading,
        unit: "cycles",
        factor: 1.0,
    }
}

const fn percent(metric: &'static str, heading: &'static str) -> MetricColumn {
    MetricColumn {
        metric,
        heading,
        unit: "%",
        factor: 100.0,
    }
}

const MEAN_LATENCY: MetricColumn = cycles(derive::MEAN_LATENCY, "mean latency");

/// The share of an address in its row.
const SHARE: MetricColumn = percent("share", "share");

/// Columns of accesses.
const COLUMNS: [MetricColumn; 6] = [
    MEAN_LATENCY,
    cycles("memory_access_latency_p50_cycles", "p50"),
    cycles("memory_access_latency_p90_cycles", "p90"),
    cycles("memory_access_latency_p99_cycles", "p99"),
    percent("memory_access_tlb_walk_share", "TLB walk"),
    percent("memory_access_remote_share", "remote"),
];

/// Columns of the data sources of loads.
const SOURCE_COLUMNS: [MetricColumn; 2] = [
    percent("memory_access_source_share", "of loads"),
    MEAN_LATENCY,
];

/// The accesses of each owner, and the data sources of its loads.
pub(super) fn grids(page: &TablePage<'_>) -> [Grid; 2] {
    let (mut accesses, mut sources) = (Vec::new(), Vec::new());
    let of_rows = |group: &&SubjectSeries<'_>| {
        matches!(group.section, ReportSection::Rows | ReportSection::Total)
    };
    for group in page.groups.iter().filter(of_rows) {
        let kind = |series: &Series| {
            let attributes = page.report.attributes(series);
            Some((attributes.operation?, attributes.source))
        };
        for series in group.series.chunk_by(|a, b| kind(a) == kind(b)) {
            match kind(&series[0]) {
                Some((class, None)) => {
                    let row = row(page, group, class.name(), series, &COLUMNS);
                    accesses.extend(row);
                }
                // Only loads have data sources.
                Some((Class::Load, Some(source))) => {
                    let row = row(
                        page,
                        group,
                        &mem_level_name(source),
                        series,
                        &SOURCE_COLUMNS,
                    );
                    sources.extend(row);
                }
                Some(_) | None => {}
            }
        }
    }
    let grid = |second: &str, operations, shown, rows| Grid {
        heads: vec![page.heading.to_owned(), second.to_owned()],
        columns: columns(page, operations, shown),
        rows,
        key_labels: 1,
    };
    [
        grid("class", "operations", &COLUMNS, accesses),
        grid("served by", "loads", &SOURCE_COLUMNS, sources),
    ]
}

fn columns(page: &TablePage<'_>, operations: &str, shown: &[MetricColumn]) -> Vec<GridColumn> {
    let counts = ["samples", operations].map(|name| count_column(page, name));
    counts
        .into_iter()
        .chain(shown.iter().map(|shown| shown.column(page)))
        .collect()
}

impl MetricColumn {
    fn column(&self, page: &TablePage<'_>) -> GridColumn {
        GridColumn {
            name: self.heading.to_owned(),
            under: vec![self.unit.to_owned()],
            form: NumberFormat {
                factor: self.factor,
                ..NumberFormat::new(false, page.screen.exact)
            },
            adds_up: false,
        }
    }
}

/// A column of counts.
fn count_column(page: &TablePage<'_>, name: &str) -> GridColumn {
    GridColumn {
        name: name.to_owned(),
        under: Vec::new(),
        form: NumberFormat::new(true, page.screen.exact),
        adds_up: true,
    }
}

/// The column of waiting times: in seconds, or with all digits in nanoseconds.
fn waited_column(page: &TablePage<'_>) -> GridColumn {
    let mut column = count_column(page, "waited");
    if page.screen.exact {
        column.under.push("ns".to_owned());
    } else {
        column.under.push("s".to_owned());
        column.form.factor = 1e-9;
        column.form.whole = false;
    }
    column
}

/// The column, with values that do not add up.
fn without_sum(column: GridColumn) -> GridColumn {
    GridColumn {
        adds_up: false,
        ..column
    }
}

/// A row; None if nothing was sampled in this window. The first series has the operations; if their
/// number is unknown, the second series has the samples.
fn row(
    page: &TablePage<'_>,
    group: &SubjectSeries<'_>,
    second: &str,
    series: &[Series],
    shown: &[MetricColumn],
) -> Option<GridRow> {
    let counter = find_sample_counter(series).filter(|it| it.raw > 0)?;
    let labels = vec![page.name(group), second.to_owned()];
    let mut row = GridRow::new(labels, 0, is_one_of_many(group.subject));
    let samples = TableNumber::plain(float(counter.raw));
    row.cells = vec![GridCell::Number(samples), cell(&series[0])];
    let metrics = shown.iter().map(|shown| {
        let mut series = series.iter();
        let found = series.find(|series| page.report.metric(series).name == shown.metric);
        found.map_or(GridCell::Empty, cell)
    });
    row.cells.extend(metrics);
    Some(row)
}

/// A grid for a list of the report: each row has its owner, its subject and its numbers. An event
/// that is common to all rows is omitted, since the table of rows names it.
pub(super) fn list(page: &TablePage<'_>, list: &derive::ReportTable) -> Grid {
    let mut grid = Grid::default();
    let event = list
        .columns
        .iter()
        .position(|name| *name == "event")
        .filter(|at| {
            list.rows
                .windows(2)
                .all(|rows| rows[0][*at] == rows[1][*at])
        });
    let is_shown = |at: usize| Some(at) != event;
    for (_, name) in list
        .columns
        .iter()
        .enumerate()
        .filter(|(at, _)| is_shown(*at))
    {
        match *name {
            "pid" => grid.heads.push("pid".to_owned()),
            "address" | "page" => grid.heads.push("page".to_owned()),
            "line" | "sharing" | "owner" | "behind" | "event" | "function" | "module" => {
                grid.heads.push((*name).to_owned());
            }
            "bytes_read" => grid.heads.push("read at".to_owned()),
            "bytes_written" => grid.heads.push("written at".to_owned()),
            "spe_reads" => grid.columns.push(count_column(page, "reads")),
            "spe_writes" => grid.columns.push(count_column(page, "writes")),
            "spe_from_other_cores" => grid.columns.push(count_column(page, "from other cores")),
            "cpus" => grid.columns.push(without_sum(count_column(page, "CPUs"))),
            "line_cpus" => grid
                .columns
                .push(without_sum(count_column(page, "CPUs of the line"))),
            derive::SAMPLES => grid.columns.push(count_column(page, "samples")),
            derive::MEAN_LATENCY => grid.columns.push(MEAN_LATENCY.column(page)),
            // Shown only in machine-readable formats.
            "build_id" => {}
            "share" => grid.columns.push(SHARE.column(page)),
            "cpu_wait_ns" => grid.columns.push(waited_column(page)),
            name => grid.columns.push(count_column(page, name)),
        }
    }
    let row = |cells: &Vec<derive::TableCell>| {
        let mut row = GridRow::new(Vec::new(), 0, true);
        let cells = list.columns.iter().zip(cells).enumerate();
        for (_, (name, cell)) in cells.filter(|(at, _)| is_shown(*at)) {
            match cell {
                derive::TableCell::Number(number) if *name == "pid" => {
                    row.labels.push(number.to_string());
                }
                derive::TableCell::Text(_) if *name == "build_id" => {}
                derive::TableCell::Text(text) => row.labels.push(printable(text).into_owned()),
                derive::TableCell::Owner(owner) => {
                    row.labels.push(page.name_of(owner));
                }
                derive::TableCell::Address(address) => row.labels.push(format!("{address:#x}")),
                derive::TableCell::Number(number) | derive::TableCell::Count(number) => {
                    row.cells
                        .push(GridCell::Number(TableNumber::plain(float(*number))));
                }
                derive::TableCell::Estimate(estimate) => {
                    let number = estimate.as_ref().map(TableNumber::from_estimate);
                    row.cells
                        .push(number.map_or(GridCell::Absent, GridCell::Number));
                }
            }
        }
        row
    };
    let rows = list.rows.iter().enumerate();
    let shown = rows.filter(|(at, _)| !list.small_rows.contains(at));
    grid.rows = shown.map(|(_, cells)| row(cells)).collect();
    grid
}
