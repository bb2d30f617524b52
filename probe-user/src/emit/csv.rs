//! A report as CSV: one line per row and event or metric.

use std::io::{self, Write};

use super::{label, place, self_values, whose};
use crate::{
    derive::{Measured, MetricHead, MetricValue, Report, Row, ShareRow},
    emit::printable::printable,
    snapshot::Health,
};

const HEADING: [&str; 16] = [
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
    "rel_error",
    "resctrl_bytes_per_second",
    "device",
    "low",
    "high",
];

pub(super) fn write(
    out: &mut impl Write,
    report: &Report,
    health: Option<&Health>,
    heading: bool,
) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    if heading {
        csv.write_record(HEADING)?;
    }
    for row in &report.rows {
        let (kind, name) = label(&row.label);
        lines(&mut csv, report, kind, &name, row)?;
    }
    for row in &report.sockets {
        lines(&mut csv, report, "socket", &row.label.to_string(), row)?;
    }
    lines(&mut csv, report, "total", "total", &report.total)?;
    for row in &report.places {
        let (kind, name) = place(row);
        metric(&mut csv, report, [kind, &name], &row.metric, &row.value)?;
    }
    for row in &report.shares {
        share(&mut csv, report, row)?;
    }
    for (head, reason) in &report.missing {
        let fields = ["machine", "machine", &head.name, "", "", &head.unit, reason];
        line(&mut csv, report, fields)?;
    }
    let account = health.map(|health| self_values(report, health));
    for (name, value) in account.unwrap_or_default() {
        let value = if value == "-" { String::new() } else { value };
        line(
            &mut csv,
            report,
            ["self", "pmuscope", &name, &value, "", "", ""],
        )?;
    }
    csv.flush()
}

/// A value that could not be had is an empty field, with its reason.
fn lines<L>(
    csv: &mut csv::Writer<impl Write>,
    report: &Report,
    kind: &str,
    name: &str,
    row: &Row<L>,
) -> io::Result<()> {
    for (column, value) in report.columns.iter().zip(&row.values) {
        let unit = column.unit.as_deref().unwrap_or_default();
        let (value, running, reason, error) = match value {
            None => Default::default(),
            Some(Ok(value)) => (
                value.scaled.to_string(),
                value.running.to_string(),
                String::new(),
                text(value.rel_error()),
            ),
            Some(Err(reason)) => (
                String::new(),
                String::new(),
                reason.to_string(),
                String::new(),
            ),
        };
        let fields = [kind, name, &column.name, &value, &running, unit, &reason];
        complete(csv, report, fields, ["", "", &error, "", ""], [""; 2])?;
    }
    for (head, value) in report.metrics.iter().zip(&row.metrics) {
        metric(csv, report, [kind, name], head, value)?;
    }
    Ok(())
}

fn metric(
    csv: &mut csv::Writer<impl Write>,
    report: &Report,
    [kind, name]: [&str; 2],
    head: &MetricHead,
    value: &MetricValue,
) -> io::Result<()> {
    let ends = value.as_ref().ok().and_then(|value| value.interval);
    let error = value.as_ref().ok().and_then(Measured::rel_error);
    let (value, live, reason) = match value {
        Ok(value) => (
            value.value.to_string(),
            value.live.to_string(),
            String::new(),
        ),
        Err(reason) => (String::new(), String::new(), reason.to_string()),
    };
    let fields = [kind, name, &head.name, &value, &live, &head.unit, &reason];
    let ends = ends.map(|(low, high)| [low, high].map(|end| end.to_string()));
    let [low, high] = ends.unwrap_or_default();
    let of_share = ["", "", &text(error), "", ""];
    complete(csv, report, fields, of_share, [&low, &high])
}

/// Empty where there is none.
fn text(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn share(csv: &mut csv::Writer<impl Write>, report: &Report, row: &ShareRow) -> io::Result<()> {
    let (kind, name) = whose(&row.whose);
    let head = &row.metric;
    let socket = row.socket.to_string();
    let device = row.device.as_deref().unwrap_or_default();
    match &row.share {
        Ok(share) => {
            let (value, live) = (share.value.to_string(), share.live.to_string());
            let fields = [kind, &name, &head.name, &value, &live, &head.unit, ""];
            let error = text(share.rel_error);
            let method = share.method.to_string();
            let monitored = row.monitored.map(|bytes| bytes.to_string());
            let monitored = monitored.unwrap_or_default();
            with_share(
                csv,
                report,
                fields,
                [&socket, &method, &error, &monitored, device],
            )
        }
        Err(reason) => {
            let fields = [kind, &name, &head.name, "", "", &head.unit, reason];
            with_share(csv, report, fields, [&socket, "", "", "", device])
        }
    }
}

fn line(csv: &mut csv::Writer<impl Write>, report: &Report, fields: [&str; 7]) -> io::Result<()> {
    with_share(csv, report, fields, [""; 5])
}

fn with_share(
    csv: &mut csv::Writer<impl Write>,
    report: &Report,
    fields: [&str; 7],
    of_share: [&str; 5],
) -> io::Result<()> {
    complete(csv, report, fields, of_share, [""; 2])
}

/// The last fields are of shares only, and the ends of the interval of what was estimated of samples.
fn complete(
    csv: &mut csv::Writer<impl Write>,
    report: &Report,
    fields: [&str; 7],
    of_share: [&str; 5],
    ends: [&str; 2],
) -> io::Result<()> {
    let elapsed = format!("{:.6}", report.elapsed.as_secs_f64());
    let length = format!("{:.6}", report.length.as_secs_f64());
    let line = [elapsed.as_str(), &length].into_iter().chain(fields);
    record(csv, line.chain(of_share).chain(ends))
}

/// One line, as text that is safe to look at.
pub(super) fn record<'a>(
    csv: &mut csv::Writer<impl Write>,
    fields: impl Iterator<Item = &'a str>,
) -> io::Result<()> {
    csv.write_record(fields.map(|field| printable(field).into_owned().into_bytes()))?;
    Ok(())
}
