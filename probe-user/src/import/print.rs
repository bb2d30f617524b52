//! Derived metrics as text and as JSON.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value as Json, json};

use super::{Derived, Row};
use crate::{emit::printable::printable_json, formula::NoValue};

/// Values first, then each metric without one and why, then what was not used.
///
/// # Errors
/// Where the writer fails.
pub fn table(out: &mut impl Write, derived: &Derived<'_>) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["metric", "for", "value", "unit", "live"]);
    for (row, value) in derived
        .rows
        .iter()
        .filter_map(|row| Some((row, row.value.as_ref().ok()?)))
    {
        table.add_row([
            row.metric.name.clone(),
            label(row),
            number(value.value),
            row.metric.unit.clone(),
            format!("{:.0} %", 100.0 * value.live),
        ]);
    }
    for column in [2, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if table.row_count() == 0 {
        writeln!(out, "no metric has a value")?;
    } else {
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    let mut reasons = derived
        .rows
        .iter()
        .filter_map(|row| Some((row, row.value.as_ref().err()?)))
        .peekable();
    if reasons.peek().is_some() {
        writeln!(out, "\nwithout a value:")?;
    }
    for (row, reason) in reasons {
        let place = label(row);
        let place = if place.is_empty() {
            place
        } else {
            format!(" ({place})")
        };
        writeln!(out, "  {}{place}: {reason}", row.metric.name)?;
    }
    if !derived.unused.is_empty() {
        writeln!(out, "\nnot used:")?;
    }
    for (event, why) in &derived.unused {
        writeln!(out, "  {event}: {why}")?;
    }
    Ok(())
}

/// One object; a metric without a value is null with a reason.
///
/// # Errors
/// Where the writer fails.
pub fn json(out: &mut impl Write, derived: &Derived<'_>) -> io::Result<()> {
    let rows = derived.rows.iter().map(|row| {
        let Row {
            metric,
            set,
            place,
            value,
        } = row;
        let mut object = json!({
            "metric": metric.name,
            "family": metric.family.name,
            "unit": metric.unit,
            "formula": metric.formula.text(),
            "source": format!("{}: {}", metric.document, metric.section),
            "interval_end_ns": set.interval.map(|interval| interval.0),
            "scope": set.scope,
            "place": place,
            "value": value.as_ref().ok().map(|value| value.value),
            "live": value.as_ref().ok().map(|value| value.live),
        });
        if let Err(reason) = value {
            object["reason"] = json!(reason.to_string());
            if let NoValue::Missing(events) = reason {
                object["missing"] = json!(events);
            }
        }
        object
    });
    let rows: Vec<Json> = rows.collect();
    let unused = derived
        .unused
        .iter()
        .map(|(event, why)| json!({"event": event, "reason": why}));
    let unused: Vec<Json> = unused.collect();
    let object = json!({"metrics": rows, "unused": unused});
    writeln!(out, "{}", printable_json(&object))
}

fn label(row: &Row<'_>) -> String {
    let interval = row.set.interval.map(|interval| interval.to_string());
    let parts = [interval, row.set.scope.clone(), Some(row.place.clone())];
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(" ")
}

/// Six digits, which is more than any of these counts can carry.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100_000.0 {
        format!("{value:.0}")
    } else if magnitude >= 100.0 {
        format!("{value:.2}")
    } else if magnitude >= 0.01 || value == 0.0 {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}
