//! A report as one line of JSON.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::{label, self_values};
use crate::{
    derive::{Report, Row},
    join::Entity,
    pull::Health,
};

pub(super) fn write(
    out: &mut impl Write,
    report: &Report,
    health: Option<&Health>,
) -> io::Result<()> {
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let rows = report.rows.iter().map(|row| {
        let mut object = entity(&row.label);
        object.extend(values(report, row));
        Json::Object(object)
    });
    let sockets = report.sockets.iter().map(|row| {
        let mut object = Map::from_iter([("socket".to_owned(), json!(row.label))]);
        object.extend(values(report, row));
        Json::Object(object)
    });
    let mut line = json!({
        "elapsed_ns": nanos(report.elapsed),
        "duration_ns": nanos(report.length),
        "rows": rows.collect::<Vec<_>>(),
        "sockets": sockets.collect::<Vec<_>>(),
        "total": values(report, &report.total),
    });
    if let Some(health) = health {
        // Numbers as numbers; what was not measured is null.
        let parse = |text: String| match (text.as_str(), text.parse::<u64>()) {
            ("-", _) => Json::Null,
            (_, Ok(number)) => json!(number),
            (_, Err(_)) => json!(text),
        };
        line["self"] = self_values(health)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), parse(value)))
            .collect();
    }
    writeln!(out, "{line}")
}

pub(super) fn entity(entity: &Entity) -> Map<String, Json> {
    let (kind, name) = label(entity);
    let mut object = Map::from_iter([
        ("kind".to_owned(), json!(kind)),
        ("name".to_owned(), json!(name)),
    ]);
    match entity {
        Entity::Container { pod: Some(pod), .. } => {
            object.insert("pod_uid".to_owned(), json!(pod));
        }
        Entity::Process { tgid, .. } => {
            object.insert("pid".to_owned(), json!(tgid));
        }
        _ => {}
    }
    object
}

/// A value that could not be had is null.
fn values<L>(report: &Report, row: &Row<L>) -> Map<String, Json> {
    let events = report
        .columns
        .iter()
        .zip(&row.values)
        .map(|(column, value)| {
            let value = value.map(
                |value| json!({"value": value.scaled, "raw": value.raw, "running": value.running}),
            );
            (column.name.clone(), json!(value))
        });
    let ratios = report
        .ratios
        .iter()
        .zip(&row.ratios)
        .map(|(ratio, value)| (ratio.name.to_owned(), json!(value)));
    Map::from_iter([
        ("events".to_owned(), Json::Object(events.collect())),
        ("ratios".to_owned(), Json::Object(ratios.collect())),
    ])
}
