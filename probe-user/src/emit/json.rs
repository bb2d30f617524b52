//! A report as one line of JSON.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::{label, place, self_values, whose};
use crate::{
    derive::{
        Advice, CountValue, Finding, MetricHead, MetricValue, PlaceRow, Report, Row, ShareRow,
    },
    emit::printable::printable_json,
    join::Entity,
    snapshot::Health,
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
    let missing = report.missing.iter();
    let missing = missing.map(|(head, reason)| (head.name.clone(), json!(reason)));
    let mut line = json!({
        "elapsed_ns": nanos(report.elapsed),
        "duration_ns": nanos(report.length),
        "rows": rows.collect::<Vec<_>>(),
        "sockets": sockets.collect::<Vec<_>>(),
        "total": values(report, &report.total),
        "places": report.places.iter().map(place_row).collect::<Vec<_>>(),
        "shares": report.shares.iter().map(share_row).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "advice": report.advice.iter().map(advice).collect::<Vec<_>>(),
        "missing": missing.collect::<Map<_, _>>(),
    });
    if let Some(health) = health {
        // Numbers as numbers; what was not measured is null.
        let parse = |text: String| match (text.as_str(), text.parse::<u64>()) {
            ("-", _) => Json::Null,
            (_, Ok(number)) => json!(number),
            (_, Err(_)) => json!(text),
        };
        line["self"] = self_values(report, health)
            .into_iter()
            .map(|(name, value)| (name, parse(value)))
            .collect();
    }
    writeln!(out, "{}", printable_json(&line))
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

/// A value that could not be had is null, with its reason.
fn metric(head: &MetricHead, value: &MetricValue) -> Json {
    match value {
        Ok(value) => {
            let mut object =
                json!({"value": value.value, "unit": head.unit, "running": value.live});
            if let Some((low, high)) = value.interval {
                object["low"] = json!(low);
                object["high"] = json!(high);
            }
            if let Some(error) = value.rel_error() {
                object["rel_error"] = json!(error);
            }
            object
        }
        Err(reason) => {
            json!({"value": null, "unit": head.unit, "reason": reason.to_string()})
        }
    }
}

fn place_row(row: &PlaceRow) -> Json {
    let (kind, _) = place(row);
    let mut line = metric(&row.metric, &row.value);
    line["kind"] = json!(kind);
    line["name"] = json!(row.place.to_string());
    line["devices"] = json!(row.devices);
    line["metric"] = json!(row.metric.name);
    line["socket"] = json!(row.place.socket);
    line
}

fn finding(finding: &Finding) -> Json {
    json!({"socket": finding.socket, "text": finding.text})
}

fn advice(advice: &Advice) -> Json {
    json!({"what": advice.what, "lowers": advice.lowers})
}

/// A share that cannot be told is null, with the reason.
fn share_row(row: &ShareRow) -> Json {
    let mut line = match &row.share {
        Ok(share) => json!({
            "value": share.value,
            "running": share.live,
            "method": share.method.to_string(),
            "rel_error": share.rel_error,
            "resctrl_bytes_per_second": row.monitored,
        }),
        Err(reason) => json!({"value": null, "reason": reason}),
    };
    let (kind, name) = whose(&row.whose);
    line["kind"] = json!(kind);
    line["name"] = json!(name);
    line["metric"] = json!(row.metric.name);
    line["unit"] = json!(row.metric.unit);
    line["socket"] = json!(row.socket);
    line["device"] = json!(row.device);
    line
}

/// A count that could not be had is null, with its reason; null alone where the event is not counted for
/// such a row.
fn count(value: &CountValue) -> Json {
    match value {
        None => Json::Null,
        Some(Ok(value)) => {
            let mut object =
                json!({"value": value.scaled, "raw": value.raw, "running": value.running});
            if let Some(error) = value.rel_error() {
                object["rel_error"] = json!(error);
            }
            object
        }
        Some(Err(reason)) => json!({"value": null, "reason": reason.to_string()}),
    }
}

fn values<L>(report: &Report, row: &Row<L>) -> Map<String, Json> {
    let events = report
        .columns
        .iter()
        .zip(&row.values)
        .map(|(column, value)| (column.name.clone(), count(value)));
    let metrics = report.metrics.iter().zip(&row.metrics);
    let metrics = metrics.map(|(head, value)| (head.name.clone(), metric(head, value)));
    Map::from_iter([
        ("events".to_owned(), Json::Object(events.collect())),
        ("metrics".to_owned(), Json::Object(metrics.collect())),
    ])
}
