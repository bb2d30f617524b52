//! Derived metrics as text and as JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{self, Write},
};

use serde::Serialize;
use serde_json::json;

use super::{Derived, DerivedRow};
use crate::{
    derive::{Advice, ddio_advice, ddio_finding},
    emit::{
        TextColumns,
        printable::{PrintableJson, printable},
    },
    formula::{FormulaValue, Implicit, NoValue},
};

/// The heading of values above the largest that the formula can have.
const ABOVE_BOUND: &str =
    "above the largest possible value, so that its events do not count the same things";

/// The beginning of the line of metrics with values that deserve attention.
const OVER_THRESHOLD: &str = "over their thresholds (`pmuscope list metrics NAME` has them)";

/// The heading of the advice.
const ADVICE: &str = "what lowers misses of devices (DDIO paper, section 4), and what should fall";

/// The note on events that were counted more than once.
const REPEATED: &str = "counted more than once, and perf does not print which events were a group: \
                        by their order and running times, a metric has its events of one group, \
                        and of several groups of the one that ran longest";

/// The note on metrics whose events have no group in common.
const MIXED: &str = "in no group together, so that each event is the one that ran longest";

/// Writes values, then metrics without a value and the reason, then events that were not used.
///
/// # Errors
/// If the writer fails.
pub fn table(out: &mut impl Write, derived: &Derived<'_>) -> io::Result<()> {
    write_values(out, derived)?;
    let mut above = rows_with_value(derived)
        .filter_map(|it| Some((it.0, it.1.value, it.1.exceeded_bound?)))
        .peekable();
    if above.peek().is_some() {
        writeln!(out, "\n{ABOVE_BOUND}:")?;
    }
    let mut place = String::new();
    for (row, value, bound) in above {
        place.clear();
        push_label(&mut place, row);
        let name = format!("{} {place}", row.metric.name);
        writeln!(out, "  {}: {value} of at most {bound}", name.trim_end())?;
    }
    let marked: BTreeSet<&str> = (derived.rows.iter())
        .filter(|row| row.over_threshold)
        .map(|row| row.metric.name.as_str())
        .collect();
    if !marked.is_empty() {
        let marked = Vec::from_iter(marked).join(", ");
        writeln!(out, "\n{OVER_THRESHOLD}: {marked}")?;
    }
    for text in findings(derived) {
        writeln!(out, "\n{text}")?;
    }
    let advice = advice(derived);
    if !advice.is_empty() {
        writeln!(out, "\n{ADVICE}:")?;
    }
    for Advice { what, lowers } in advice {
        writeln!(out, "  {what}: {}", lowers.join(", "))?;
    }
    if !derived.repeated.is_empty() {
        let repeated: Vec<&str> = derived.repeated.iter().map(String::as_str).collect();
        writeln!(out, "\n{}: {REPEATED}", printable(&repeated.join(", ")))?;
    }
    if !derived.mixed.is_empty() {
        let mixed: Vec<&str> = derived.mixed.iter().copied().collect();
        writeln!(out, "events of {}: {MIXED}", mixed.join(", "))?;
    }
    let mut reasons = derived
        .rows
        .iter()
        .filter_map(|row| Some((row, row.value.as_ref().err()?)))
        .peekable();
    if reasons.peek().is_some() {
        writeln!(out, "\nwithout a value:")?;
    }
    for (row, why) in reasons {
        place.clear();
        push_label(&mut place, row);
        if !place.is_empty() {
            place = format!(" ({place})");
        }
        writeln!(out, "  {}{place}: {}", row.metric.name, reason(why))?;
    }
    if !derived.unused.is_empty() {
        writeln!(out, "\nnot used:")?;
    }
    for (event, why) in &derived.unused {
        writeln!(out, "  {}: {why}", printable(event))?;
    }
    Ok(())
}

/// Writes the values in columns. An input may have a million: widths are measured in a first pass,
/// so that no line is kept.
fn write_values(out: &mut impl Write, derived: &Derived<'_>) -> io::Result<()> {
    let heading = ["metric", "for", "value", "unit", "live"].map(str::to_owned);
    let mut columns = TextColumns::new(|at| at == 2 || at == 4);
    columns.measure(&heading);
    let mut cells = heading.clone();
    for (row, value) in rows_with_value(derived) {
        fill_cells(&mut cells, row, value);
        columns.measure(&cells);
    }
    if rows_with_value(derived).next().is_none() {
        return writeln!(out, "no metric has a value");
    }
    let mut line = String::new();
    let mut write = |cells: &[String; 5]| {
        columns.draw(&mut line, cells.iter().map(String::as_str));
        line.push('\n');
        out.write_all(line.as_bytes())
    };
    write(&heading)?;
    for (row, value) in rows_with_value(derived) {
        fill_cells(&mut cells, row, value);
        write(&cells)?;
    }
    Ok(())
}

fn fill_cells(cells: &mut [String; 5], row: &DerivedRow<'_>, value: &FormulaValue) {
    let [metric, place, number, unit, live] = cells;
    row.metric.name.clone_into(metric);
    place.clear();
    push_label(place, row);
    number.clear();
    push_number(number, value.value);
    row.metric.unit.clone_into(unit);
    if value.running_ratio == 1.0 {
        // Most counters ran all the time.
        "100 %".clone_into(live);
        return;
    }
    live.clear();
    // Writing to a string does not fail.
    let _ = write!(live, "{:.0} %", 100.0 * value.running_ratio);
}

/// One object; a metric without a value is null with a reason.
///
/// # Errors
/// If the writer fails.
pub fn json(out: &mut impl Write, derived: &Derived<'_>) -> io::Result<()> {
    let advice = advice(derived).iter();
    let unused = derived.unused.iter();
    write!(out, "{{\"metrics\":")?;
    write_list(out, derived.rows.iter().map(MetricLine::from_row))?;
    write!(out, ",\"findings\":")?;
    write_list(out, findings(derived).into_iter())?;
    write!(out, ",\"advice\":")?;
    write_list(
        out,
        advice.map(|it| json!({"what": it.what, "lowers": it.lowers})),
    )?;
    write!(out, ",\"repeated\":")?;
    write_list(out, derived.repeated.iter())?;
    write!(out, ",\"of_several_groups\":")?;
    write_list(out, derived.mixed.iter())?;
    write!(out, ",\"unused\":")?;
    write_list(
        out,
        unused.map(|(event, why)| json!({"event": event, "reason": why})),
    )?;
    writeln!(out, "}}")
}

/// Writes values one by one, so that a long input has no second copy in memory.
fn write_list(
    out: &mut impl Write,
    values: impl Iterator<Item = impl Serialize>,
) -> io::Result<()> {
    let mut before = "[";
    for value in values {
        out.write_all(before.as_bytes())?;
        let mut json = serde_json::Serializer::with_formatter(&mut *out, PrintableJson);
        value.serialize(&mut json)?;
        before = ",";
    }
    // An empty list has no opening bracket yet.
    write!(out, "{}", if before == "[" { "[]" } else { "]" })
}

/// A row in JSON.
#[derive(Serialize)]
struct MetricLine<'a> {
    metric: &'a str,
    family: &'a str,
    unit: &'a str,
    formula: &'a str,
    source: String,
    interval_end_ns: Option<u64>,
    scope: Option<String>,
    place: &'a str,
    value: Option<f64>,
    live: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded_bound: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    over_threshold: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a [String]>,
}

impl<'a> MetricLine<'a> {
    fn from_row(row: &'a DerivedRow<'_>) -> Self {
        let DerivedRow {
            metric, set, place, ..
        } = row;
        let value = row.value.as_ref();
        Self {
            metric: &metric.name,
            family: &metric.family.name,
            unit: &metric.unit,
            formula: metric.formula.text(),
            source: format!("{}: {}", metric.document, metric.section),
            interval_end_ns: set.interval.map(|interval| interval.0),
            scope: Some(set.name()).filter(|name| !name.is_empty()),
            place,
            value: value.ok().map(|value| value.value),
            live: value.ok().map(|value| value.running_ratio),
            exceeded_bound: value.ok().and_then(|value| value.exceeded_bound),
            over_threshold: row.over_threshold,
            reason: value.err().map(reason),
            missing: match value {
                Err(NoValue::Missing(events)) => Some(events),
                _ => None,
            },
        }
    }
}

/// The reason in words; for an unknown time, also how to have perf print it.
fn reason(why: &NoValue) -> String {
    match why {
        NoValue::NotKnown(Implicit::Seconds | Implicit::DurationTime) => {
            format!("{why}: count with `-e duration_time` too, or add a line seconds=value")
        }
        _ => why.to_string(),
    }
}

/// Findings in words; of several intervals, the one with the largest value.
fn findings(derived: &Derived<'_>) -> Vec<String> {
    let mut largest: BTreeMap<(&str, String), f64> = BTreeMap::new();
    for (row, value) in rows_with_value(derived) {
        // Most metrics have no finding.
        if ddio_finding(&row.metric.name, value.value, "").is_some() {
            let parts = [row.set.name(), row.place.to_string()];
            let place = parts.join(" ").trim().to_owned();
            let largest = largest.entry((&row.metric.name, place)).or_default();
            *largest = largest.max(value.value);
        }
    }
    let findings = largest
        .into_iter()
        .filter_map(|((metric, place), value)| ddio_finding(metric, value, &printable(&place)));
    derived.times.iter().cloned().chain(findings).collect()
}

fn advice(derived: &Derived<'_>) -> &'static [Advice] {
    ddio_advice(
        rows_with_value(derived).map(|(row, value)| (row.metric.name.as_str(), value.value)),
    )
}

/// The rows that have a value, each with it.
fn rows_with_value<'d>(
    derived: &'d Derived<'_>,
) -> impl Iterator<Item = (&'d DerivedRow<'d>, &'d FormulaValue)> {
    let rows = derived.rows.iter();
    rows.filter_map(|row| Some((row, row.value.as_ref().ok()?)))
}

/// Appends the row's interval, scope and place.
fn push_label(text: &mut String, row: &DerivedRow<'_>) {
    if let Some(interval) = row.set.interval {
        let _ = write!(text, "{interval}");
    }
    let scope = row.set.name();
    for part in [&*printable(&scope), &*row.place] {
        if !part.is_empty() {
            let space = if text.is_empty() { "" } else { " " };
            text.extend([space, part]);
        }
    }
}

/// Appends a number with about six digits: no count is more precise.
fn push_number(text: &mut String, value: f64) {
    let magnitude = value.abs();
    let _ = if magnitude >= 100_000.0 {
        write!(text, "{value:.0}")
    } else if magnitude >= 100.0 {
        write!(text, "{value:.2}")
    } else if magnitude >= 0.01 || value == 0.0 {
        write!(text, "{value:.4}")
    } else {
        write!(text, "{value:.3e}")
    };
}
