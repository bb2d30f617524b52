//! A report as CSV: one line per value.

use std::{borrow::Cow, io};

use super::{EmitOptions, label::short, printable::printable};
use crate::derive::{
    MetricKind, Report, ReportSection, ReportTable, Series, Subject, TableCell, Value, ValueMethod,
    mem_level_name,
};

const HEADING: [&str; 23] = [
    "elapsed_s",
    "duration_s",
    "kind",
    "name",
    "metric",
    "value",
    "running",
    "unit",
    "reason",
    "socket",
    "method",
    "counting_error",
    "device",
    "low",
    "high",
    "raw",
    "operation",
    "source",
    "address",
    "group",
    "enabled_ns",
    "running_ns",
    "validated",
];

/// A line. A field without a value is empty.
#[derive(Clone, Debug, Default)]
struct CsvLine<'a> {
    kind: &'a str,
    name: &'a str,
    metric: &'a str,
    value: String,
    running: String,
    unit: &'a str,
    reason: String,
    socket: String,
    method: String,
    counting_error: String,
    device: &'a str,
    low: String,
    high: String,
    raw: String,
    operation: &'a str,
    source: String,
    address: String,
    group: String,
    enabled: String,
    running_nanos: String,
    validated: &'a str,
}

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: EmitOptions) -> io::Result<()> {
    let mut writer = CsvWriter {
        csv: csv::Writer::from_writer(out),
        elapsed: format!("{:.6}", report.elapsed().as_secs_f64()),
        length: format!("{:.6}", report.length().as_secs_f64()),
    };
    if options.first {
        writer.csv.write_record(HEADING)?;
    }
    for group in report.groups() {
        if group.section == ReportSection::SelfCounters && !options.with_self {
            continue;
        }
        let (mut kind, mut name) = group.subject.kind_and_name();
        if let Subject::Place(..) = group.subject {
            name = short(group.subject).into();
        }
        if group.section == ReportSection::Missing {
            (kind, name) = ("machine", "machine".into());
        }
        for series in group.series {
            let metric = report.metric(series);
            // Histograms count since the session began. Accesses without a sample in the window
            // have no line.
            let sampled = report.attributes(series).operation.is_some();
            let none =
                series.counter().is_some_and(|counter| counter.raw == 0) || series.value.is_err();
            if metric.kind == MetricKind::Histogram || sampled && none {
                continue;
            }
            writer.add(&CsvLine {
                kind,
                name: &name,
                metric: &metric.name,
                unit: &metric.unit,
                ..series_line(report, series)
            })?;
        }
    }
    for table in &report.tables {
        for row in &table.rows {
            writer.add_row(table, row)?;
        }
        for (metric, count) in &table.counts {
            writer.add(&CsvLine {
                kind: table.name,
                metric,
                value: count.to_string(),
                raw: count.to_string(),
                ..CsvLine::default()
            })?;
        }
    }
    writer.csv.flush()
}

fn series_line<'a>(report: &'a Report, series: &Series) -> CsvLine<'a> {
    let attributes = report.attributes(series);
    let mut line = CsvLine {
        socket: text(attributes.socket),
        method: match &attributes.method {
            ValueMethod::Counted => String::new(),
            method => method.to_string(),
        },
        group: text(attributes.group),
        device: attributes.device.as_deref().unwrap_or_default(),
        operation: attributes
            .operation
            .map_or("", |operation| operation.name()),
        source: attributes.source.map(mem_level_name).unwrap_or_default(),
        ..CsvLine::default()
    };
    match &series.value {
        // A missing value has no method.
        Err(reason) => {
            line.method.clear();
            line.reason = reason.to_string();
        }
        Ok(Value::State(state, _)) => (*state).clone_into(&mut line.value),
        Ok(Value::Info(texts)) => {
            let texts = texts.iter().map(|(name, text)| format!("{name}={text}"));
            line.value = texts.collect::<Vec<_>>().join(" ");
        }
        Ok(value) => {
            let Some(estimate) = value.estimate() else {
                return line;
            };
            line.value = estimate.value.to_string();
            line.running = estimate.running_ratio.to_string();
            if let Some(counter) = series.counter() {
                line.raw = counter.raw.to_string();
                line.enabled = text(counter.time.map(|time| time.enabled));
                line.running_nanos = text(counter.time.map(|time| time.running));
            }
            interval_ends(&mut line, estimate.sampled_interval());
            if let Some(bound) = estimate.above_bound {
                line.reason = above_bound(bound);
            }
            if attributes.method.is_not_validated() {
                line.validated = "false";
            }
            let error = estimate.counting_error();
            line.counting_error =
                text(error.filter(|error| *error > 0.0 || attributes.method.is_share()));
        }
    }
    line
}

/// The reason column of a value above its bound.
fn above_bound(bound: f64) -> String {
    format!("above {bound}, the largest possible value: its events do not count the same things")
}

fn interval_ends(line: &mut CsvLine<'_>, interval: Option<(f64, f64)>) {
    line.low = text(interval.map(|(low, _)| low));
    line.high = text(interval.map(|(_, high)| high));
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Whether a text column of a list locates the row in memory.
fn is_location(column: &str) -> bool {
    matches!(column, "line" | "function" | "page")
}

struct CsvWriter<'a> {
    csv: csv::Writer<&'a mut Vec<u8>>,
    elapsed: String,
    length: String,
}

impl CsvWriter<'_> {
    /// Writes a row of a list as lines that repeat its identifying columns. A number goes into the
    /// line of its estimate; each count has a line of its own.
    fn add_row(&mut self, table: &ReportTable, row: &[TableCell]) -> io::Result<()> {
        let cells = || table.columns.iter().zip(row);
        let mut row_line = CsvLine {
            kind: table.name,
            ..CsvLine::default()
        };
        let (mut name, mut event) = (Cow::default(), String::new());
        for (column, cell) in cells() {
            match cell {
                TableCell::Number(number) if *column == "pid" => name = number.to_string().into(),
                TableCell::Number(number) => row_line.raw = number.to_string(),
                TableCell::Address(address) => row_line.address = format!("{address:#x}"),
                TableCell::Text(text) if is_location(column) => row_line.address.clone_from(text),
                TableCell::Text(text) if *column == "event" => event.clone_from(text),
                TableCell::Owner(owner) => name = owner.kind_and_name().1,
                TableCell::Count(_) | TableCell::Text(_) | TableCell::Estimate(_) => {}
            }
        }
        (row_line.name, row_line.operation) = (&name, &event);
        for (column, cell) in cells() {
            let mut line = CsvLine {
                metric: column,
                ..row_line.clone()
            };
            match cell {
                TableCell::Count(count) => {
                    line.value = count.to_string();
                    line.raw.clone_from(&line.value);
                }
                TableCell::Text(text) if !is_location(column) && *column != "event" => {
                    line.value.clone_from(text);
                }
                TableCell::Estimate(Some(estimate)) => {
                    line.value = estimate.value.to_string();
                    interval_ends(&mut line, estimate.sampled_interval());
                }
                TableCell::Estimate(None) => {}
                TableCell::Number(_)
                | TableCell::Address(_)
                | TableCell::Owner(_)
                | TableCell::Text(_) => continue,
            }
            self.add(&line)?;
        }
        Ok(())
    }

    /// Writes one line, with printable text.
    fn add(&mut self, line: &CsvLine<'_>) -> io::Result<()> {
        let fields: [&str; HEADING.len()] = [
            &self.elapsed,
            &self.length,
            line.kind,
            line.name,
            line.metric,
            &line.value,
            &line.running,
            line.unit,
            &line.reason,
            &line.socket,
            &line.method,
            &line.counting_error,
            line.device,
            &line.low,
            &line.high,
            &line.raw,
            line.operation,
            &line.source,
            &line.address,
            &line.group,
            &line.enabled,
            &line.running_nanos,
            line.validated,
        ];
        for field in fields {
            self.csv.write_field(printable(field).as_bytes())?;
        }
        Ok(self.csv.write_record(None::<&[u8]>)?)
    }
}
