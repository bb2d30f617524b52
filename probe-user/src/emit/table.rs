//! A report as a table for people.

mod notes;

use std::{
    io::{self, Write},
    ops::Range,
};

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{interval::large, label, place, self_values, whose};
use crate::{
    derive::{MetricHead, MetricValue, PlaceRow, Report, Row, ShareRow, Value, Whose},
    emit::printable::printable,
    join::Entity,
    plan::Column,
    snapshot::Health,
};

/// Digits of a container id that people use.
const SHORT_ID: usize = 12;

/// Columns side by side; more metrics go into tables below.
const METRICS_IN_A_ROW: usize = 6;

pub(super) fn write(
    out: &mut impl Write,
    report: &Report,
    health: Option<&Health>,
    first: bool,
) -> io::Result<()> {
    let seconds = report.elapsed.as_secs_f64();
    writeln!(
        out,
        "{seconds:>11.3} s, window {:.3} s",
        report.length.as_secs_f64()
    )?;
    // Events and the first metrics in one table, so that a short report is one.
    let beside = METRICS_IN_A_ROW.min(report.metrics.len());
    entities(out, report, &report.columns, 0..beside)?;
    let mut next = beside;
    while next < report.metrics.len() {
        let end = report.metrics.len().min(next + METRICS_IN_A_ROW);
        writeln!(out)?;
        entities(out, report, &[], next..end)?;
        next = end;
    }
    if !report.places.is_empty() {
        writeln!(out)?;
        print(out, &places(&report.places))?;
    }
    if report.shares.iter().any(|row| row.share.is_ok()) {
        writeln!(out)?;
        print(out, &shares(&report.shares))?;
    }
    notes::write(out, report)?;
    notes::findings(out, report, first)?;
    writeln!(out)?;
    if let Some(health) = health {
        for (name, value) in self_values(report, health) {
            writeln!(out, "  self {name:<24} {value:>16}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A row for each entity with these columns and metrics.
fn entities(
    out: &mut impl Write,
    report: &Report,
    columns: &[Column],
    metrics: Range<usize>,
) -> io::Result<()> {
    if columns.is_empty() && metrics.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = columns.iter().map(heading);
    let heads = report.metrics[metrics.clone()].iter().map(head);
    table.set_header(cells(
        std::iter::once(String::new()).chain(names).chain(heads),
    ));
    for row in &report.rows {
        table.add_row(line(short(&row.label), row, columns, metrics.clone()));
    }
    if !columns.is_empty() {
        for row in &report.sockets {
            table.add_row(line(format!("socket {}", row.label), row, columns, 0..0));
        }
    }
    table.add_row(line("total".to_owned(), &report.total, columns, metrics));
    print(out, &table)
}

/// One line for each value, those of a place together.
fn places(rows: &[PlaceRow]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut rows: Vec<&PlaceRow> = rows.iter().collect();
    rows.sort_by(|a, b| a.place.cmp(&b.place));
    let mut last = None;
    for row in rows {
        let name = if last == Some(&row.place) {
            String::new()
        } else {
            place(row).1
        };
        last = Some(&row.place);
        table.add_row([
            left(&name),
            left(&row.metric.name),
            right(&metric(&row.value)),
            left(&row.metric.unit),
        ]);
    }
    table
}

/// One line for each share, with its error and how it is known.
fn shares(rows: &[ShareRow]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for row in rows {
        let Ok(share) = &row.share else {
            continue;
        };
        let name = match &row.whose {
            Whose::Entity(entity) => short(entity),
            other => whose(other).1,
        };
        let value = if share.live < 0.995 {
            format!("{} ({:.0}%)", digits(share.value), share.live * 100.0)
        } else {
            digits(share.value)
        };
        let error = share.rel_error;
        let error = error.map_or_else(String::new, |error| format!("±{:.1}%", error * 100.0));
        table.add_row([
            left(&name),
            left(&share_place(row)),
            left(&row.metric.name),
            right(&value),
            left(&row.metric.unit),
            right(&error),
            left(&share.method.to_string()),
            left(&row.monitored.map_or_else(String::new, |bytes| {
                format!("resctrl {} GB/s", digits(bytes / 1e9))
            })),
        ]);
    }
    table
}

/// What a share is of.
pub(super) fn share_place(row: &ShareRow) -> String {
    let socket = || format!("socket {}", row.socket);
    row.device.clone().unwrap_or_else(socket)
}

pub(super) fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A plain ratio has no unit to show.
fn head(head: &MetricHead) -> String {
    match head.unit.as_str() {
        "1" => head.name.clone(),
        unit => format!("{} {unit}", head.name),
    }
}

/// A value from counters that took turns shows for which share of the time they were live.
fn metric(value: &MetricValue) -> String {
    match value {
        Ok(value) if value.live < 0.995 => {
            format!("{} ({:.0}%)", digits(value.value), value.live * 100.0)
        }
        Ok(value) => match value.interval {
            Some(interval) => estimated(value.value, interval),
            None => digits(value.value),
        },
        Err(_) => "-".to_owned(),
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

/// Clocks are shown in milliseconds as perf does.
fn heading(column: &Column) -> String {
    match (&column.unit, column.clock) {
        (_, true) => format!("{} ms", column.name),
        (Some(unit), false) => format!("{} {unit}", column.name),
        (None, false) => column.name.clone(),
    }
}

pub(super) fn short(entity: &Entity) -> String {
    match entity {
        Entity::Container { id, pod } => {
            let id = id.get(..SHORT_ID).unwrap_or(id);
            match pod {
                Some(pod) => format!("container {id} (pod {pod})"),
                None => format!("container {id}"),
            }
        }
        Entity::Pod(uid) => format!("pod {uid}"),
        Entity::Command(name) => format!("command {name}"),
        _ => label(entity).1,
    }
}

fn line<L>(label: String, row: &Row<L>, columns: &[Column], metrics: Range<usize>) -> Vec<Cell> {
    let values = columns
        .iter()
        .zip(&row.values)
        .map(|(column, value)| match value {
            Some(Ok(value)) => number(column, value),
            None | Some(Err(_)) => "-".to_owned(),
        });
    // A socket has none of the metrics of entities.
    let metrics = row.metrics.get(metrics).unwrap_or_default();
    let metrics = metrics.iter().map(metric);
    cells(std::iter::once(label).chain(values).chain(metrics))
}

/// The first cell is the label, all others are numbers.
pub(super) fn cells(texts: impl IntoIterator<Item = String>) -> Vec<Cell> {
    let align = |(at, text): (usize, String)| if at == 0 { left(&text) } else { right(&text) };
    texts.into_iter().enumerate().map(align).collect()
}

fn left(text: &str) -> Cell {
    Cell::new(printable(text)).set_alignment(CellAlignment::Left)
}

fn right(text: &str) -> Cell {
    Cell::new(printable(text)).set_alignment(CellAlignment::Right)
}

/// A scaled value shows its share of running time, as perf does.
fn number(column: &Column, value: &Value) -> String {
    let text = if column.clock {
        format!("{:.2}", value.scaled / 1e6)
    } else if value.scaled.fract() == 0.0 || value.running < 1.0 {
        thousands(value.scaled)
    } else {
        format!("{:.2}", value.scaled)
    };
    if value.running < 1.0 {
        format!("{text} ({:.0}%)", value.running * 100.0)
    } else {
        text
    }
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
