//! Sampled accesses: their number and latency by owner, their data sources, and lists of pages.

use probe_common::spe::Class;

use super::{
    Page,
    entities::cell,
    grid::{Cell, Column, Grid, Row},
    names::one_of_many,
    number::{Form, Number},
};
use crate::{
    derive::{self, Group, Part, Series, samples_of, served_name},
    emit::{label::short, printable::printable},
    window::float,
};

/// How a metric is shown.
struct Shown {
    metric: &'static str,
    heading: &'static str,
    unit: &'static str,
    /// From the metric's unit to that one.
    factor: f64,
}

const fn cycles(metric: &'static str, heading: &'static str) -> Shown {
    Shown {
        metric,
        heading,
        unit: "cycles",
        factor: 1.0,
    }
}

const fn percent(metric: &'static str, heading: &'static str) -> Shown {
    Shown {
        metric,
        heading,
        unit: "%",
        factor: 100.0,
    }
}

const MEAN_LATENCY: Shown = cycles("spe_latency_mean_cycles", "mean latency");

/// The share of an address in its row.
const SHARE: Shown = percent("share", "share");

/// The columns of accesses.
const COLUMNS: [Shown; 6] = [
    MEAN_LATENCY,
    cycles("spe_latency_p50_cycles", "p50"),
    cycles("spe_latency_p90_cycles", "p90"),
    cycles("spe_latency_p99_cycles", "p99"),
    percent("spe_tlb_walk_share", "TLB walk"),
    percent("spe_remote_share", "remote"),
];

/// The columns of data sources of loads.
const SOURCE_COLUMNS: [Shown; 2] = [percent("spe_source_share", "of loads"), MEAN_LATENCY];

/// The accesses of each owner, and the data sources of its loads.
pub(super) fn grids(page: &Page<'_>) -> [Grid; 2] {
    let (mut accesses, mut sources) = (Vec::new(), Vec::new());
    let of_rows = |group: &&Group<'_>| matches!(group.part, Part::Rows | Part::Total);
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
                // Stores and the rest have no sources.
                Some((Class::Load, Some(source))) => {
                    let row = row(page, group, &served_name(source), series, &SOURCE_COLUMNS);
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
        kept: 1,
    };
    [
        grid("class", "operations", &COLUMNS, accesses),
        grid("served by", "loads", &SOURCE_COLUMNS, sources),
    ]
}

fn columns(page: &Page<'_>, operations: &str, shown: &[Shown]) -> Vec<Column> {
    let counts = ["samples", operations].map(|name| count(page, name));
    counts
        .into_iter()
        .chain(shown.iter().map(|shown| shown.column(page)))
        .collect()
}

impl Shown {
    fn column(&self, page: &Page<'_>) -> Column {
        Column {
            name: self.heading.to_owned(),
            under: vec![self.unit.to_owned()],
            form: Form {
                factor: self.factor,
                whole: false,
                exact: page.screen.exact,
            },
            adds_up: false,
        }
    }
}

/// A column of numbers of accesses.
fn count(page: &Page<'_>, name: &str) -> Column {
    Column {
        name: name.to_owned(),
        under: Vec::new(),
        form: Form {
            factor: 1.0,
            whole: true,
            exact: page.screen.exact,
        },
        adds_up: true,
    }
}

/// The same of what is no part of a sum.
fn no_sum(column: Column) -> Column {
    Column {
        adds_up: false,
        ..column
    }
}

/// A row; None where nothing was sampled in this window. The first series has the operations; where
/// their number is not known, the second one has the samples.
fn row(
    page: &Page<'_>,
    group: &Group<'_>,
    second: &str,
    series: &[Series],
    shown: &[Shown],
) -> Option<Row> {
    let counter = samples_of(series).filter(|it| it.raw > 0)?;
    let labels = vec![page.name(group), second.to_owned()];
    let mut row = Row::new(labels, 0, one_of_many(group.subject));
    let samples = Number::plain(float(counter.raw));
    row.cells = vec![Cell::Number(samples), cell(&series[0])];
    let metrics = shown.iter().map(|shown| {
        let mut series = series.iter();
        let found = series.find(|series| page.report.metric(series).name == shown.metric);
        found.map_or(Cell::Empty, cell)
    });
    row.cells.extend(metrics);
    Some(row)
}

/// A list of the report: each line has its owner, its subject and its numbers. One event that
/// all have is named by the table of rows.
pub(super) fn list(page: &Page<'_>, list: &derive::Table) -> Grid {
    let mut grid = Grid::default();
    let event = list.columns.iter().position(|name| *name == "event");
    let event = event.filter(|at| {
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
            "line" | "sharing" | "owner" | "event" | "function" | "module" => {
                grid.heads.push((*name).to_owned());
            }
            "bytes_read" => grid.heads.push("read at".to_owned()),
            "bytes_written" => grid.heads.push("written at".to_owned()),
            "spe_reads" => grid.columns.push(count(page, "reads")),
            "spe_writes" => grid.columns.push(count(page, "writes")),
            "spe_from_other_cores" => grid.columns.push(count(page, "from other cores")),
            "cpus" => grid.columns.push(no_sum(count(page, "CPUs"))),
            "line_cpus" => grid.columns.push(no_sum(count(page, "CPUs of the line"))),
            "spe_samples" => grid.columns.push(count(page, "samples")),
            "spe_latency_mean_cycles" => grid.columns.push(MEAN_LATENCY.column(page)),
            // For programs.
            "build_id" => {}
            "share" => grid.columns.push(SHARE.column(page)),
            name => grid.columns.push(count(page, name)),
        }
    }
    let row = |cells: &Vec<derive::Cell>| {
        let mut row = Row::new(Vec::new(), 0, true);
        let cells = list.columns.iter().zip(cells).enumerate();
        for (_, (name, cell)) in cells.filter(|(at, _)| is_shown(*at)) {
            match cell {
                derive::Cell::Number(number) if *name == "pid" => {
                    row.labels.push(number.to_string());
                }
                derive::Cell::Text(_) if *name == "build_id" => {}
                derive::Cell::Text(text) => row.labels.push(printable(text).into_owned()),
                derive::Cell::Owner(owner) => {
                    row.labels.push(printable(&short(owner)).into_owned());
                }
                derive::Cell::Address(address) => row.labels.push(format!("{address:#x}")),
                derive::Cell::Number(number) | derive::Cell::Count(number) => {
                    row.cells.push(Cell::Number(Number::plain(float(*number))));
                }
                derive::Cell::Estimate(estimate) => {
                    let number = estimate.as_ref().map(Number::of);
                    row.cells.push(number.map_or(Cell::Absent, Cell::Number));
                }
            }
        }
        row
    };
    grid.rows = list.rows.iter().map(row).collect();
    grid
}
