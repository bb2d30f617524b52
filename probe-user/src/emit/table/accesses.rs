//! Sampled accesses: who accessed how much and how long it took, where it was served, and lists of
//! pages.

use comfy_table::Table;
use probe_common::spe::Class;

use super::{cells, headed, large, short, thousands};
use crate::derive::{self, Cell, Estimate, Group, Part, Report, Series, served_name};

/// The columns of accesses, by metric, with the factor of what is shown.
const COLUMNS: [(&str, &str, f64); 6] = [
    ("spe_latency_mean_cycles", "cycles mean", 1.0),
    ("spe_latency_p50_cycles", "p50", 1.0),
    ("spe_latency_p90_cycles", "p90", 1.0),
    ("spe_latency_p99_cycles", "p99", 1.0),
    ("spe_tlb_walk_share", "TLB walk %", 100.0),
    ("spe_remote_share", "remote %", 100.0),
];

/// Those of where loads were served.
const SOURCE_COLUMNS: [(&str, &str, f64); 2] = [
    ("spe_source_share", "% of loads", 100.0),
    ("spe_latency_mean_cycles", "cycles mean", 1.0),
];

/// Two tables, without rows where nothing was sampled.
pub(super) fn tables(report: &Report, groups: &[Group<'_>]) -> [Table; 2] {
    let mut accesses = columns(["", "class", "samples", "operations"], &COLUMNS);
    let mut sources = columns(["", "served by", "samples", "loads"], &SOURCE_COLUMNS);
    for group in groups
        .iter()
        .filter(|it| matches!(it.part, Part::Rows | Part::Total))
    {
        let name = short(group.subject);
        for series in group.series.chunk_by(|a, b| a.attributes == b.attributes) {
            let attributes = report.attributes(&series[0]);
            let Some(class) = attributes.operation else {
                continue;
            };
            match attributes.source {
                None => add(
                    &mut accesses,
                    report,
                    [&name, class.name()],
                    series,
                    &COLUMNS,
                ),
                // Stores and the rest have no sources.
                Some(source) if class == Class::Load => {
                    let labels = [&*name, &served_name(source)];
                    add(&mut sources, report, labels, series, &SOURCE_COLUMNS);
                }
                Some(_) => {}
            }
        }
    }
    [accesses, sources]
}

/// A list of the report, as it is.
pub(super) fn list(list: &derive::Table) -> Table {
    let headings = list.columns.iter().map(|column| match *column {
        "address" => "page",
        "spe_samples" => "samples",
        "spe_latency_mean_cycles" => "cycles mean",
        column => column,
    });
    let mut table = headed(headings.map(str::to_owned));
    for row in &list.rows {
        table.add_row(cells(row.iter().map(|cell| match cell {
            Cell::Number(number) => number.to_string(),
            Cell::Address(address) => format!("{address:#x}"),
            Cell::Estimate(estimate) => with_ends(estimate.as_ref(), 1.0),
        })));
    }
    table
}

fn columns(first: [&str; 4], columns: &[(&str, &str, f64)]) -> Table {
    let columns = columns.iter().map(|(_, heading, _)| *heading);
    headed(first.into_iter().chain(columns).map(str::to_owned))
}

/// A line; none of what was not sampled in this window. The first of the series are the operations.
fn add(
    table: &mut Table,
    report: &Report,
    labels: [&str; 2],
    series: &[Series],
    columns: &[(&str, &str, f64)],
) {
    let Some(operations) = series[0].counter().filter(|operations| operations.raw > 0) else {
        return;
    };
    let of = |name: &str| {
        let found = series
            .iter()
            .find(|series| report.metric(series).name == name);
        found.and_then(Series::estimate)
    };
    let estimate = operations.estimate;
    let counted = [
        thousands_of(operations.raw),
        large(
            estimate.value,
            estimate
                .interval
                .unwrap_or((estimate.value, estimate.value)),
        ),
    ];
    let values = columns
        .iter()
        .map(|(name, _, factor)| with_ends(of(name), *factor));
    let labels = labels.map(str::to_owned).into_iter();
    table.add_row(cells(labels.chain(counted).chain(values)));
}

/// A number with the ends of its interval.
fn with_ends(estimate: Option<&Estimate>, factor: f64) -> String {
    let ends = estimate.and_then(|estimate| Some((estimate.value, estimate.interval?)));
    match ends {
        Some((value, (low, high))) => {
            let [value, low, high] = [value, low, high].map(|number| number * factor);
            format!("{value:.1} [{low:.1}, {high:.1}]")
        }
        None => "-".to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "samples, below 2^53")]
fn thousands_of(count: u64) -> String {
    thousands(count as f64)
}
