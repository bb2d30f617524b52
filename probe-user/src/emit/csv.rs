//! A report as CSV: one line per value.

use std::{borrow::Cow, io, time::Duration};

use super::{EmitOptions, printable::printable, wall_clock};
use crate::derive::{
    Report, ReportSection, ReportTable, Series, Subject, TableCell, Value, ValueMethod,
    mem_level_name,
};

type CsvWriter<'a> = csv::Writer<&'a mut Vec<u8>>;

/// Makes the heading and the type of a line from one list of columns.
macro_rules! columns {
    ($($column:ident,)*) => {
        const HEADING: &[&str] = &[$(stringify!($column)),*];

        /// A line. A field without a value is empty.
        #[derive(Clone, Debug, Default)]
        struct CsvLine<'a> {
            $($column: Cow<'a, str>,)*
        }

        impl CsvLine<'_> {
            fn fields(&self) -> [&str; HEADING.len()] {
                [$(&self.$column),*]
            }
        }
    };
}

columns! {
    elapsed_s,
    duration_s,
    kind,
    name,
    metric,
    value,
    running,
    unit,
    reason,
    socket,
    method,
    counting_error,
    device,
    low,
    high,
    raw,
    operation,
    source,
    address,
    group,
    enabled_ns,
    running_ns,
    validated,
    time,
    namespace,
    pod,
    container,
}

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: EmitOptions) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    if options.is_first_window {
        csv.write_record(HEADING)?;
    }
    let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
    let time = wall_clock(report).to_string();
    let (elapsed, length) = (seconds(report.elapsed()), seconds(report.length()));
    let window = CsvLine {
        elapsed_s: elapsed.as_str().into(),
        duration_s: length.as_str().into(),
        time: time.as_str().into(),
        ..CsvLine::default()
    };
    for group in report.groups() {
        if group.section == ReportSection::SelfCounters && !options.with_self {
            continue;
        }
        let (mut kind, mut name) = group.subject.kind_and_name();
        if let Subject::Place(..) = group.subject {
            name = group.subject.plain_name().into();
        }
        if group.section == ReportSection::Missing {
            (kind, name) = ("machine", "machine".into());
        }
        let labels = group.subject.labels(&report.described);
        let [namespace, pod, container] = labels
            .runtime_names()
            .map(|name| printable(name.unwrap_or_default()));
        let subject = CsvLine {
            kind: kind.into(),
            name: (&*name).into(),
            namespace,
            pod,
            container,
            ..window.clone()
        };
        for series in group.series {
            // Accesses without a sample in the window have no line.
            let is_access = report.attributes(series).operation.is_some();
            let is_empty =
                series.counter().is_some_and(|counter| counter.raw == 0) || series.value.is_err();
            if !report.is_of_window(series) || is_access && is_empty {
                continue;
            }
            write_line(&mut csv, &series_line(&subject, report, series))?;
        }
    }
    for table in &report.tables {
        let list = CsvLine {
            kind: table.name.into(),
            ..window.clone()
        };
        for row in &table.rows {
            write_row(&mut csv, &list, table, row)?;
        }
        for (metric, count) in &table.counts {
            let line = CsvLine {
                metric: (*metric).into(),
                value: count.to_string().into(),
                raw: count.to_string().into(),
                ..list.clone()
            };
            write_line(&mut csv, &line)?;
        }
    }
    csv.flush()
}

/// The line of a series, based on the line of its subject.
fn series_line<'a>(subject: &CsvLine<'a>, report: &'a Report, series: &Series) -> CsvLine<'a> {
    let (metric, attributes) = (report.metric(series), report.attributes(series));
    let mut line = CsvLine {
        metric: (&metric.name).into(),
        unit: (&metric.unit).into(),
        socket: optional_text(attributes.socket),
        method: match &attributes.method {
            ValueMethod::Counted => Cow::default(),
            method => method.to_string().into(),
        },
        group: optional_text(attributes.group),
        device: attributes.device.as_deref().unwrap_or_default().into(),
        operation: attributes
            .operation
            .map_or("", |operation| operation.name())
            .into(),
        source: attributes
            .source
            .map(mem_level_name)
            .unwrap_or_default()
            .into(),
        ..subject.clone()
    };
    match &series.value {
        // A missing value has no method.
        Err(reason) => {
            line.method = Cow::default();
            line.reason = reason.to_string().into();
        }
        Ok(Value::State(state, _)) => line.value = (*state).into(),
        Ok(Value::Info(texts)) => {
            let texts = texts.iter().map(|(name, text)| format!("{name}={text}"));
            line.value = texts.collect::<Vec<_>>().join(" ").into();
        }
        Ok(value) => {
            let Some(estimate) = value.estimate() else {
                return line;
            };
            line.value = estimate.value.to_string().into();
            line.running = estimate.running_ratio.to_string().into();
            if let Some(counter) = series.counter() {
                line.raw = counter.raw.to_string().into();
                line.enabled_ns = optional_text(counter.time.map(|time| time.enabled));
                line.running_ns = optional_text(counter.time.map(|time| time.running));
            }
            set_interval(&mut line, estimate.estimated_interval());
            if let Some(bound) = estimate.exceeded_bound {
                line.reason = exceeded_bound(bound).into();
            } else if estimate.over_threshold {
                line.reason = OVER_THRESHOLD.into();
            }
            if let Some(by) = attributes.method.validation() {
                line.validated = by.to_string().into();
            }
            let error = estimate.counting_error();
            line.counting_error =
                optional_text(error.filter(|error| *error > 0.0 || attributes.method.is_share()));
        }
    }
    line
}

/// The reason column of a value that has passed its metric's threshold.
const OVER_THRESHOLD: &str = "over the metric's threshold";

/// The reason column of a value above its bound.
fn exceeded_bound(bound: f64) -> String {
    format!("above {bound}, the largest possible value: its events do not count the same things")
}

fn set_interval(line: &mut CsvLine<'_>, interval: Option<(f64, f64)>) {
    line.low = optional_text(interval.map(|(low, _)| low));
    line.high = optional_text(interval.map(|(_, high)| high));
}

fn optional_text(value: Option<impl ToString>) -> Cow<'static, str> {
    value.map_or_else(Cow::default, |value| value.to_string().into())
}

/// Whether a text column of a list locates the row in memory.
fn is_location(column: &str) -> bool {
    matches!(column, "line" | "function" | "page")
}

/// Whether a column of a list says where its row comes from.
fn is_source(column: &str) -> bool {
    matches!(column, "behind" | "module")
}

/// Whether a text column of a list is repeated in each line of its row.
fn is_identifying(column: &str) -> bool {
    is_location(column) || is_source(column) || column == "event"
}

/// Writes a row of a list as lines: one for each count, each estimate, and each text that does not
/// identify the row. Each line repeats the identifying columns and the row's number.
fn write_row(
    csv: &mut CsvWriter<'_>,
    list: &CsvLine<'_>,
    table: &ReportTable,
    row: &[TableCell],
) -> io::Result<()> {
    let cells = || table.columns.iter().zip(row);
    let mut row_line = list.clone();
    for (column, cell) in cells() {
        match cell {
            TableCell::Number(number) if *column == "pid" => {
                row_line.name = number.to_string().into();
            }
            TableCell::Number(number) => row_line.raw = number.to_string().into(),
            TableCell::Address(address) => row_line.address = format!("{address:#x}").into(),
            TableCell::Text(text) if is_location(column) => row_line.address = text.into(),
            TableCell::Text(text) if *column == "event" => row_line.operation = text.into(),
            TableCell::Text(text) if is_source(column) => row_line.source = text.into(),
            TableCell::Owner(owner) if *column == "owner" => {
                row_line.name = owner.kind_and_name().1;
            }
            TableCell::Owner(owner) if is_source(column) => {
                row_line.source = owner.kind_and_name().1;
            }
            TableCell::Count(_)
            | TableCell::Text(_)
            | TableCell::Estimate(_)
            | TableCell::Owner(_) => {}
        }
    }
    for (column, cell) in cells() {
        let mut line = CsvLine {
            metric: (*column).into(),
            ..row_line.clone()
        };
        match cell {
            TableCell::Count(count) => {
                line.value = count.to_string().into();
                line.raw.clone_from(&line.value);
            }
            TableCell::Text(text) if !is_identifying(column) => line.value = text.into(),
            TableCell::Estimate(Some(estimate)) => {
                line.value = estimate.value.to_string().into();
                set_interval(&mut line, estimate.estimated_interval());
            }
            TableCell::Estimate(None) => {}
            TableCell::Number(_)
            | TableCell::Address(_)
            | TableCell::Owner(_)
            | TableCell::Text(_) => continue,
        }
        write_line(csv, &line)?;
    }
    Ok(())
}

/// Writes one line, with printable text.
fn write_line(csv: &mut CsvWriter<'_>, line: &CsvLine<'_>) -> io::Result<()> {
    for field in line.fields() {
        csv.write_field(printable(field).as_bytes())?;
    }
    Ok(csv.write_record(None::<&[u8]>)?)
}
