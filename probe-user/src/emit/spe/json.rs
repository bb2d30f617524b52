//! Samples as one line of JSON.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::{Metric, of_class, of_page, of_source};
use crate::{
    derive::spe::{SpeReport, SpeReportRow, served_name},
    emit::{json::entity, printable::printable_json},
};

pub(super) fn write(out: &mut impl Write, report: &SpeReport, with_self: bool) -> io::Result<()> {
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let rows = report.rows.iter().map(|row| {
        let mut object = entity(&row.label);
        object.extend(classes(row));
        Json::Object(object)
    });
    let pages = report.pages.iter().map(|page| {
        let mut object = metrics(page.samples, &of_page(page));
        object.insert("pid".to_owned(), json!(page.tgid));
        let address = format!("{:#x}", page.address);
        object.insert("address".to_owned(), json!(address));
        Json::Object(object)
    });
    let mut line = json!({
        "elapsed_ns": nanos(report.elapsed),
        "duration_ns": nanos(report.length),
        "period": report.health.period,
        "rows": rows.collect::<Vec<_>>(),
        "total": classes(&report.total),
    });
    if !report.pages.is_empty() {
        line["pages"] = pages.collect();
    }
    if with_self {
        line["self"] = report
            .health
            .counts()
            .into_iter()
            .map(|(name, value)| (format!("spe_{name}"), json!(value)))
            .collect();
    }
    writeln!(out, "{}", printable_json(&line))
}

fn classes<L>(row: &SpeReportRow<L>) -> Map<String, Json> {
    let class = |class: &crate::derive::spe::Accesses| {
        let mut object = metrics(class.samples, &of_class(class));
        let sources = class.sources.iter().map(|source| {
            let values = metrics(source.samples, &of_source(source));
            (served_name(source.served), Json::Object(values))
        });
        object.insert("sources".to_owned(), Json::Object(sources.collect()));
        (class.class.name().to_owned(), Json::Object(object))
    };
    Map::from_iter([(
        "classes".to_owned(),
        Json::Object(row.classes.iter().map(class).collect()),
    )])
}

/// A value that could not be had is null.
fn metrics(samples: u64, metrics: &[Metric]) -> Map<String, Json> {
    let mut object = Map::from_iter([("spe_samples".to_owned(), json!(samples))]);
    for (name, estimate) in metrics {
        let value = estimate.map(|it| json!({"value": it.value, "low": it.low, "high": it.high}));
        object.insert((*name).to_owned(), json!(value));
    }
    object
}
