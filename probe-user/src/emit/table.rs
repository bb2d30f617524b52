//! A report as tables for people.

mod accesses;
mod notes;

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{Options, interval::large, label::short, printable::printable};
use crate::derive::{
    Counter, Estimate, Group, Kind, Method, Metric, Part, Report, Series, Subject, Value,
};

/// Columns side by side; more metrics go into tables below.
const METRICS_IN_A_ROW: usize = 6;

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: Options) -> io::Result<()> {
    let groups: Vec<Group<'_>> = report.groups().collect();
    write!(
        out,
        "{:>11.3} s, window {:.3} s",
        report.elapsed().as_secs_f64(),
        report.length().as_secs_f64()
    )?;
    let period = report.of(&Subject::Pmuscope, "spe_period").next();
    if let Some(period) = period.and_then(Series::estimate) {
        write!(out, ", period {:.0}", period.value)?;
    }
    writeln!(out)?;
    let mut tables = entities(report, &groups);
    tables.extend(accesses::tables(report, &groups));
    tables.extend(report.tables.iter().map(accesses::list));
    tables.push(places(report, &groups));
    tables.push(shares(report, &groups));
    for (at, table) in tables
        .iter()
        .filter(|table| table.row_count() > 0)
        .enumerate()
    {
        if at > 0 {
            writeln!(out)?;
        }
        print(out, table)?;
    }
    notes::write(out, report, &groups)?;
    notes::findings(out, report, options.first)?;
    writeln!(out)?;
    if options.with_self {
        for group in groups.iter().filter(|group| group.part == Part::Own) {
            for series in group.series {
                let name = &report.metric(series).name;
                writeln!(out, "  self {name:<32} {:>16}", own(series))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A row for each entity, socket and the machine: of all events and the first metrics, so that a
/// short report is one table, and of further metrics.
fn entities(report: &Report, groups: &[Group<'_>]) -> Vec<Table> {
    let rows = |group: &&Group<'_>| matches!(group.part, Part::Rows | Part::Sockets | Part::Total);
    let rows: Vec<&Group<'_>> = groups.iter().filter(rows).collect();
    let mut used = vec![false; report.metrics.len()];
    for series in rows.iter().flat_map(|group| group.series) {
        used[series.metric as usize] |= report.attributes(series).operation.is_none();
    }
    let used = report.metrics.iter().zip(used).enumerate();
    let used: Vec<(usize, Kind)> = used
        .filter_map(|(at, (metric, used))| used.then_some((at, metric.kind)))
        .collect();
    let of = |events: bool| {
        let of_kind = used
            .iter()
            .filter(move |(_, kind)| (*kind == Kind::Counter) == events);
        of_kind.map(|(at, _)| *at).collect::<Vec<_>>()
    };
    let (mut columns, metrics) = (of(true), of(false));
    let (beside, below) = metrics.split_at(METRICS_IN_A_ROW.min(metrics.len()));
    columns.extend(beside);
    let parts = [&*columns]
        .into_iter()
        .chain(below.chunks(METRICS_IN_A_ROW));
    parts
        .filter(|columns| !columns.is_empty())
        .map(|columns| matrix(report, &rows, columns))
        .collect()
}

/// A row for each subject that has any of the columns.
fn matrix(report: &Report, rows: &[&Group<'_>], columns: &[usize]) -> Table {
    let heads = columns
        .iter()
        .map(|column| heading(&report.metrics[*column]));
    let mut table = headed(std::iter::once(String::new()).chain(heads));
    for group in rows {
        let plain = |series: &&Series| report.attributes(series).operation.is_none();
        let plain = group.series.iter().filter(plain);
        let mut cells_of_row = vec!["-".to_owned(); columns.len()];
        let mut any = false;
        for series in plain {
            let at = columns
                .iter()
                .position(|column| *column == series.metric as usize);
            if let Some(at) = at {
                cells_of_row[at] = value(report.metric(series), series);
                any = true;
            }
        }
        if any {
            let name = short(group.subject);
            table.add_row(cells(std::iter::once(name).chain(cells_of_row)));
        }
    }
    table
}

/// One line for each value, those of a place together.
fn places(report: &Report, groups: &[Group<'_>]) -> Table {
    let mut table = headed([]);
    let place = |group: &&Group<'_>| match group.subject {
        Subject::Place(place, _) => Some(place.clone()),
        _ => None,
    };
    let mut groups: Vec<_> = groups
        .iter()
        .filter(|group| group.part == Part::Places)
        .collect();
    groups.sort_by_key(place);
    let mut last = None;
    for group in groups {
        let name = if last == Some(group.subject) {
            String::new()
        } else {
            short(group.subject)
        };
        last = Some(group.subject);
        for series in group.series {
            let metric = report.metric(series);
            table.add_row([
                left(&name),
                left(&metric.name),
                right(&value(metric, series)),
                left(&metric.unit),
            ]);
        }
    }
    table
}

/// One line for each share, with its error and how it is known.
fn shares(report: &Report, groups: &[Group<'_>]) -> Table {
    let mut table = headed([]);
    for group in groups.iter().filter(|group| group.part == Part::Shares) {
        for series in group.series {
            let Some(estimate) = series.estimate() else {
                continue;
            };
            let (metric, attributes) = (report.metric(series), report.attributes(series));
            let error = estimate.rel_error();
            let error = error.map_or_else(String::new, |error| format!("±{:.1}%", error * 100.0));
            table.add_row([
                left(&short(group.subject)),
                left(&share_place(report, series)),
                left(&metric.name),
                right(&value(metric, series)),
                left(&metric.unit),
                right(&error),
                left(&match attributes.method {
                    Method::Counted => String::new(),
                    method => method.to_string(),
                }),
            ]);
        }
    }
    table
}

/// What a share is of.
fn share_place(report: &Report, series: &Series) -> String {
    let attributes = report.attributes(series);
    let socket = || format!("socket {}", attributes.socket.unwrap_or_default());
    attributes.device.clone().unwrap_or_else(socket)
}

fn own(series: &Series) -> String {
    match &series.value {
        Ok(Value::Counter(counter)) => counter.raw.to_string(),
        Ok(Value::State(state, _)) => (*state).to_owned(),
        Ok(Value::Info(texts)) => {
            let texts: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
            texts.join(" ")
        }
        Ok(Value::Gauge(gauge)) => format!("{:.0}", gauge.value),
        Ok(Value::Histogram(_)) | Err(_) => "-".to_owned(),
    }
}

fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Headings, and a line below for each row.
fn headed(headings: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let headings = cells(headings);
    if !headings.is_empty() {
        table.set_header(headings);
    }
    table
}

/// A plain ratio has no unit to show; nanoseconds that were counted are shown in milliseconds as
/// perf does.
fn heading(metric: &Metric) -> String {
    match (metric.unit.as_str(), metric.kind) {
        ("" | "1", _) => metric.name.clone(),
        ("ns", Kind::Counter) => format!("{} ms", metric.name),
        (unit, _) => format!("{} {unit}", metric.name),
    }
}

/// A value from counters that took turns shows for which share of the time they were live.
fn value(metric: &Metric, series: &Series) -> String {
    match &series.value {
        Ok(Value::Counter(counter)) => number(metric, counter),
        Ok(Value::Gauge(estimate)) => gauge(estimate),
        Ok(Value::Histogram(_) | Value::Info(_) | Value::State(..)) | Err(_) => "-".to_owned(),
    }
}

fn gauge(estimate: &Estimate) -> String {
    match estimate.interval {
        _ if estimate.live < 0.995 => {
            format!("{} ({:.0}%)", digits(estimate.value), estimate.live * 100.0)
        }
        Some(interval) => estimated(estimate.value, interval),
        None => digits(estimate.value),
    }
}

/// A scaled value shows its share of running time, as perf does.
fn number(metric: &Metric, counter: &Counter) -> String {
    let Estimate { value, live, .. } = counter.estimate;
    let text = if metric.unit == "ns" {
        format!("{:.2}", value / 1e6)
    } else if value.fract() == 0.0 || live < 1.0 {
        thousands(value)
    } else {
        format!("{value:.2}")
    };
    if live < 1.0 {
        format!("{text} ({:.0}%)", live * 100.0)
    } else {
        text
    }
}

/// With the 95% interval.
fn estimated(value: f64, (low, high): (f64, f64)) -> String {
    if value < 1000.0 {
        format!("{} [{}, {}]", digits(value), digits(low), digits(high))
    } else {
        large(value, (low, high))
    }
}

/// Two digits behind the point, or as many as a small number needs to be seen.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 | 0.095.. => format!("{value:.2}"),
        0.001.. => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// The first cell is the label, all others are numbers.
fn cells(texts: impl IntoIterator<Item = String>) -> Vec<Cell> {
    let align = |(at, text): (usize, String)| if at == 0 { left(&text) } else { right(&text) };
    texts.into_iter().enumerate().map(align).collect()
}

fn left(text: &str) -> Cell {
    Cell::new(printable(text)).set_alignment(CellAlignment::Left)
}

fn right(text: &str) -> Cell {
    Cell::new(printable(text)).set_alignment(CellAlignment::Right)
}

/// 1234567 as 1,234,567.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
