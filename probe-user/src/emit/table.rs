//! A report as a table for people.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{label, self_values};
use crate::{
    derive::{Report, Row, Value},
    join::Entity,
    load::Column,
    pull::Health,
};

/// Digits of a container id that people use.
const SHORT_ID: usize = 12;

pub(super) fn write(
    out: &mut impl Write,
    report: &Report,
    health: Option<&Health>,
) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = report.columns.iter().map(heading);
    let ratios = report.ratios.iter().map(|ratio| ratio.name.to_owned());
    table.set_header(right(
        std::iter::once(String::new()).chain(names).chain(ratios),
    ));
    for row in &report.rows {
        table.add_row(line(short(&row.label), row, report));
    }
    for row in &report.sockets {
        table.add_row(line(format!("socket {}", row.label), row, report));
    }
    table.add_row(line("total".to_owned(), &report.total, report));
    let seconds = report.elapsed.as_secs_f64();
    writeln!(
        out,
        "{seconds:>11.3} s, window {:.3} s",
        report.length.as_secs_f64()
    )?;
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)?;
    if let Some(health) = health {
        for (name, value) in self_values(health) {
            writeln!(out, "  self {name:<24} {value:>16}")?;
        }
        writeln!(out)?;
    }
    Ok(())
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

fn line<L>(label: String, row: &Row<L>, report: &Report) -> Vec<Cell> {
    let values = report
        .columns
        .iter()
        .zip(&row.values)
        .map(|(column, value)| match value {
            Some(value) => number(column, value),
            None => "-".to_owned(),
        });
    let ratios = row.ratios.iter().map(|ratio| match ratio {
        Some(ratio) => format!("{ratio:.2}"),
        None => "-".to_owned(),
    });
    right(std::iter::once(label).chain(values).chain(ratios))
}

/// The first cell is the label, all others are numbers.
fn right(cells: impl Iterator<Item = String>) -> Vec<Cell> {
    let align = |(at, text)| {
        Cell::new(text).set_alignment(if at == 0 {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        })
    };
    cells.enumerate().map(align).collect()
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
