//! A report as CSV: one line per value.

use std::{borrow::Cow, io};

use super::{
    Options,
    label::{label, short},
    printable::printable,
};
use crate::derive::{Cell, Kind, Method, Part, Report, Series, Subject, Table, Value, served_name};

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
struct Line<'a> {
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

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: Options) -> io::Result<()> {
    let mut lines = Lines {
        csv: csv::Writer::from_writer(out),
        elapsed: format!("{:.6}", report.elapsed().as_secs_f64()),
        length: format!("{:.6}", report.length().as_secs_f64()),
    };
    if options.first {
        lines.csv.write_record(HEADING)?;
    }
    for group in report.groups() {
        if group.part == Part::Own && !options.with_self {
            continue;
        }
        let (mut kind, mut name) = label(group.subject);
        if let Subject::Place(..) = group.subject {
            name = short(group.subject).into();
        }
        if group.part == Part::Missing {
            (kind, name) = ("machine", "machine".into());
        }
        for series in group.series {
            let metric = report.metric(series);
            // Histograms are since the session began, and who was not sampled in the window has no
            // line.
            let sampled = report.attributes(series).operation.is_some();
            let none =
                series.counter().is_some_and(|counter| counter.raw == 0) || series.value.is_err();
            if metric.kind == Kind::Histogram || sampled && none {
                continue;
            }
            lines.add(&Line {
                kind,
                name: &name,
                metric: &metric.name,
                unit: &metric.unit,
                ..of_series(report, series)
            })?;
        }
    }
    for table in &report.tables {
        for row in &table.rows {
            lines.add_row(table, row)?;
        }
        for (metric, count) in &table.counts {
            lines.add(&Line {
                kind: table.name,
                metric,
                value: count.to_string(),
                raw: count.to_string(),
                ..Line::default()
            })?;
        }
    }
    lines.csv.flush()
}

fn of_series<'a>(report: &'a Report, series: &Series) -> Line<'a> {
    let attributes = report.attributes(series);
    let mut line = Line {
        socket: text(attributes.socket),
        method: match &attributes.method {
            Method::Counted => String::new(),
            method => method.to_string(),
        },
        group: text(attributes.group),
        device: attributes.device.as_deref().unwrap_or_default(),
        operation: attributes
            .operation
            .map_or("", |operation| operation.name()),
        source: attributes.source.map(served_name).unwrap_or_default(),
        ..Line::default()
    };
    match &series.value {
        // Nothing is known, by any method.
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
            line.running = estimate.live.to_string();
            if let Some(counter) = series.counter() {
                line.raw = counter.raw.to_string();
                line.enabled = text(counter.time.map(|time| time.enabled));
                line.running_nanos = text(counter.time.map(|time| time.running));
            }
            ends(&mut line, estimate.sampled_interval());
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

/// Why a value should not be believed as it is.
fn above_bound(bound: f64) -> String {
    format!("above {bound}, the largest possible value: its events do not count the same things")
}

fn ends(line: &mut Line<'_>, interval: Option<(f64, f64)>) {
    line.low = text(interval.map(|(low, _)| low));
    line.high = text(interval.map(|(_, high)| high));
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Whether a text of a list tells where in memory its row is.
fn is_place(column: &str) -> bool {
    matches!(column, "line" | "function" | "page")
}

struct Lines<'a> {
    csv: csv::Writer<&'a mut Vec<u8>>,
    elapsed: String,
    length: String,
}

impl Lines<'_> {
    /// A row of a list: what tells it apart is in each of its lines. A number has one beside its
    /// estimate; several have one each.
    fn add_row(&mut self, table: &Table, row: &[Cell]) -> io::Result<()> {
        let cells = || table.columns.iter().zip(row);
        let mut of_row = Line {
            kind: table.name,
            ..Line::default()
        };
        let (mut name, mut event) = (Cow::default(), String::new());
        for (column, cell) in cells() {
            match cell {
                Cell::Number(number) if *column == "pid" => name = number.to_string().into(),
                Cell::Number(number) => of_row.raw = number.to_string(),
                Cell::Address(address) => of_row.address = format!("{address:#x}"),
                Cell::Text(text) if is_place(column) => of_row.address.clone_from(text),
                Cell::Text(text) if *column == "event" => event.clone_from(text),
                Cell::Owner(owner) => name = label(owner).1,
                Cell::Count(_) | Cell::Text(_) | Cell::Estimate(_) => {}
            }
        }
        (of_row.name, of_row.operation) = (&name, &event);
        for (column, cell) in cells() {
            let mut line = Line {
                metric: column,
                ..of_row.clone()
            };
            match cell {
                Cell::Count(count) => {
                    line.value = count.to_string();
                    line.raw.clone_from(&line.value);
                }
                Cell::Text(text) if !is_place(column) && *column != "event" => {
                    line.value.clone_from(text);
                }
                Cell::Estimate(Some(estimate)) => {
                    line.value = estimate.value.to_string();
                    ends(&mut line, estimate.sampled_interval());
                }
                Cell::Estimate(None) => {}
                Cell::Number(_) | Cell::Address(_) | Cell::Owner(_) | Cell::Text(_) => continue,
            }
            self.add(&line)?;
        }
        Ok(())
    }

    /// One line, as text that is safe to look at.
    fn add(&mut self, line: &Line<'_>) -> io::Result<()> {
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
