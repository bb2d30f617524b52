//! A report as CSV: one line per row and event or ratio.

use std::io::{self, Write};

use super::{label, self_values};
use crate::{
    derive::{Report, Row},
    pull::Health,
};

const HEADING: [&str; 7] = [
    "elapsed_s",
    "duration_s",
    "kind",
    "name",
    "metric",
    "value",
    "running",
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
    for (name, value) in health.map(self_values).unwrap_or_default() {
        let value = if value == "-" { String::new() } else { value };
        line(&mut csv, report, ["self", "pmuscope", name], &value, "")?;
    }
    csv.flush()
}

/// A value that could not be had is an empty field.
fn lines<L>(
    csv: &mut csv::Writer<impl Write>,
    report: &Report,
    kind: &str,
    name: &str,
    row: &Row<L>,
) -> io::Result<()> {
    for (column, value) in report.columns.iter().zip(&row.values) {
        let running = value
            .map(|value| value.running.to_string())
            .unwrap_or_default();
        let value = value
            .map(|value| value.scaled.to_string())
            .unwrap_or_default();
        line(csv, report, [kind, name, &column.name], &value, &running)?;
    }
    for (ratio, value) in report.ratios.iter().zip(&row.ratios) {
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        line(csv, report, [kind, name, ratio.name], &value, "")?;
    }
    Ok(())
}

fn line(
    csv: &mut csv::Writer<impl Write>,
    report: &Report,
    [kind, name, metric]: [&str; 3],
    value: &str,
    running: &str,
) -> io::Result<()> {
    let elapsed = format!("{:.6}", report.elapsed.as_secs_f64());
    let length = format!("{:.6}", report.length.as_secs_f64());
    csv.write_record([&elapsed, &length, kind, name, metric, value, running])?;
    Ok(())
}
