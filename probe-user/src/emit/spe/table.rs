//! Samples as tables for people: who accessed how much and how long it took, and where from.

use std::io::{self, Write};

use comfy_table::{Table, presets};

use crate::{
    derive::{
        spe::{SpeReport, SpeReportRow, served_name},
        statistics::Estimate,
    },
    emit::{
        interval::large,
        table::{cells, print, short, thousands},
    },
};

const HEADINGS: [&str; 10] = [
    "",
    "class",
    "samples",
    "operations",
    "cycles mean",
    "p50",
    "p90",
    "p99",
    "TLB walk %",
    "remote %",
];

const SOURCE_HEADINGS: [&str; 6] = [
    "",
    "served by",
    "samples",
    "loads",
    "% of loads",
    "cycles mean",
];

pub(super) fn write(out: &mut impl Write, report: &SpeReport, with_self: bool) -> io::Result<()> {
    let mut accesses = table(&HEADINGS);
    let mut sources = table(&SOURCE_HEADINGS);
    for row in &report.rows {
        add(&mut accesses, &mut sources, &short(&row.label), row);
    }
    add(&mut accesses, &mut sources, "total", &report.total);
    writeln!(
        out,
        "{:>11.3} s, window {:.3} s, period {}",
        report.elapsed.as_secs_f64(),
        report.length.as_secs_f64(),
        report.health.period
    )?;
    print(out, &accesses)?;
    writeln!(out)?;
    print(out, &sources)?;
    writeln!(out)?;
    if !report.pages.is_empty() {
        let mut pages = table(&["pid", "page", "samples", "cycles mean"]);
        for page in &report.pages {
            pages.add_row(cells([
                page.tgid.to_string(),
                format!("{:#x}", page.address),
                page.samples.to_string(),
                number(page.mean, 1.0),
            ]));
        }
        print(out, &pages)?;
        writeln!(out)?;
    }
    if with_self {
        for (name, value) in report.health.counts() {
            writeln!(out, "  self spe_{name:<32} {value:>16}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn add<L>(accesses: &mut Table, sources: &mut Table, label: &str, row: &SpeReportRow<L>) {
    for class in &row.classes {
        let latency = &class.latency;
        accesses.add_row(cells([
            label.to_owned(),
            class.class.name().to_owned(),
            thousands_of(class.samples),
            count(&class.operations),
            number(latency.mean, 1.0),
            number(latency.p50, 1.0),
            number(latency.p90, 1.0),
            number(latency.p99, 1.0),
            number(class.walks, 100.0),
            number(class.remote, 100.0),
        ]));
        // Stores and the rest have no sources.
        if class.class != probe_common::spe::Class::Load {
            continue;
        }
        for source in &class.sources {
            sources.add_row(cells([
                label.to_owned(),
                served_name(source.served),
                thousands_of(source.samples),
                count(&source.operations),
                number(source.share, 100.0),
                number(source.latency.mean, 1.0),
            ]));
        }
    }
}

fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(cells(headings.iter().map(|text| (*text).to_owned())));
    table
}

/// A large number with its interval.
fn count(estimate: &Estimate) -> String {
    large(estimate.value, (estimate.low, estimate.high))
}

/// A number with the ends of its interval.
fn number(estimate: Option<Estimate>, factor: f64) -> String {
    match estimate {
        Some(it) => format!(
            "{:.1} [{:.1}, {:.1}]",
            it.value * factor,
            it.low * factor,
            it.high * factor
        ),
        None => "-".to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "samples, below 2^53")]
fn thousands_of(count: u64) -> String {
    thousands(count as f64)
}
