//! The lines below a table: why a metric shows a dash, and what values mean.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{place, share_place, short};
use crate::{
    derive::{Report, Whose},
    emit::printable::printable,
    formula::NoValue,
};

/// Rows that are named; of more, their number.
const NAMED: usize = 3;

pub(super) fn write<'a>(out: &mut impl Write, report: &'a Report) -> io::Result<()> {
    // By event or metric, and reason, the rows; then those with the same rows and reason share a line.
    let mut notes: BTreeMap<(&'a str, String), Vec<String>> = BTreeMap::new();
    let mut note = |of: &'a str, reason: &NoValue, row: &str| {
        let rows = notes.entry((of, reason.to_string())).or_default();
        rows.push(row.to_owned());
    };
    let rows = report.rows.iter();
    let rows = rows.map(|row| (short(&row.label), &row.values, &row.metrics));
    let total = &report.total;
    let total = ("total".to_owned(), &total.values, &total.metrics);
    for (row, values, metrics) in rows.chain([total]) {
        for (column, value) in report.columns.iter().zip(values) {
            if let Some(Err(reason)) = value {
                note(&column.name, reason, &row);
            }
        }
        for (head, value) in report.metrics.iter().zip(metrics) {
            if let Err(reason) = value {
                note(&head.name, reason, &row);
            }
        }
    }
    for row in &report.sockets {
        for (column, value) in report.columns.iter().zip(&row.values) {
            if let Some(Err(reason)) = value {
                note(&column.name, reason, &format!("socket {}", row.label));
            }
        }
    }
    for row in &report.places {
        if let Err(reason) = &row.value {
            let key = (row.metric.name.as_str(), reason.to_string());
            notes.entry(key).or_default().push(place(row).1);
        }
    }
    for row in &report.shares {
        if let Err(reason) = &row.share {
            let key = (row.metric.name.as_str(), reason.clone());
            let row = match &row.whose {
                Whose::Entity(entity) => format!("{} on {}", short(entity), share_place(row)),
                _ => share_place(row),
            };
            notes.entry(key).or_default().push(row);
        }
    }
    for (head, reason) in &report.missing {
        notes.insert((&head.name, reason.clone()), Vec::new());
    }
    let mut lines: BTreeMap<(String, Vec<String>), Vec<&str>> = BTreeMap::new();
    for ((metric, reason), rows) in notes {
        lines.entry((reason, rows)).or_default().push(metric);
    }
    for ((reason, rows), metrics) in lines {
        let of = match rows.len() {
            0 => String::new(),
            1..=NAMED => format!(" ({})", rows.join(", ")),
            many => format!(" ({many} rows)"),
        };
        let note = format!("{}{of}: {reason}", metrics.join(", "));
        writeln!(out, " - {}", printable(&note))?;
    }
    Ok(())
}

/// What the values say in words. Advice does not change, so it is given once.
pub(super) fn findings(out: &mut impl Write, report: &Report, first: bool) -> io::Result<()> {
    for finding in &report.findings {
        writeln!(out, " ! {}", printable(&finding.text))?;
    }
    if first && !report.advice.is_empty() {
        writeln!(
            out,
            " What lowers misses of devices (DDIO paper, section 4), and what should fall:"
        )?;
        for advice in report.advice {
            writeln!(out, " * {}: {}", advice.what, advice.lowers.join(", "))?;
        }
    }
    Ok(())
}
