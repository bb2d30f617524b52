//! A report as `OpenMetrics` text 1.0, one exposition for each window.
//!
//! Counters are totals since the session began; metrics are those of the last window, in base
//! units. What has no value is not there: `pmuscope_absent_values` counts it by reason. The
//! machine's own values, and accesses by where they were served, have names of their own, so that a
//! sum over a metric counts nothing twice.

mod family;
mod text;

use std::{collections::BTreeMap, io};

use self::{
    family::{Families, Level},
    text::Text,
};
use super::{
    Options,
    label::{label, pid, pod},
};
use crate::derive::{Attributes, Kind, Part, Report, Series, Subject, Value, served_name};

pub(super) fn write(out: &mut Vec<u8>, report: &Report, options: Options) -> io::Result<()> {
    let mut families = Families::new(report);
    let mut absent: BTreeMap<String, u64> = BTreeMap::new();
    // Series by family: all of one must stand together.
    let mut by_family: Vec<Vec<&Series>> = Vec::new();
    for group in report.groups() {
        let level = match group.part {
            Part::Own if !options.with_self => continue,
            Part::Own => Level::Own,
            Part::Total | Part::Missing => Level::Machine,
            Part::Sockets => Level::Sockets,
            Part::Rows | Part::Places | Part::Shares => Level::Rows,
        };
        for series in group.series {
            // Where a counter has a total, that the window has no value does not matter.
            if let (Err(reason), None) = (&series.value, series.total) {
                *absent.entry(reason.to_string()).or_default() += 1;
                continue;
            }
            let by_source = report.attributes(series).source.is_some();
            let family = families.of(series.metric, level, by_source);
            if by_family.len() <= family {
                by_family.resize_with(family + 1, Vec::new);
            }
            by_family[family].push(series);
        }
    }
    let subjects: Vec<String> = report.subjects.iter().map(subject).collect();
    let attributes: Vec<String> = report.attributes.iter().map(attributes).collect();
    let mut text = Text::new(out);
    for (family, series) in families.list().iter().zip(by_family) {
        text.head(&family.name, family.type_name(), &family.unit, &family.help);
        for series in series {
            let event = families.event(series.metric);
            let labels = [
                &*subjects[series.subject as usize],
                &attributes[series.attributes as usize],
                event,
            ];
            match &series.value {
                Ok(Value::Gauge(gauge)) => {
                    text.sample(&family.name, "", labels, gauge.value * family.factor);
                }
                Ok(Value::Histogram(histogram)) => {
                    text.histogram(&family.name, labels, histogram, family.factor);
                }
                Ok(Value::Info(texts)) => {
                    let texts = texts.iter().map(|(name, value)| text::label(name, value));
                    let texts = texts.collect::<Vec<_>>().join(",");
                    text.sample(&family.name, "_info", [labels[0], &texts, ""], 1.0);
                }
                Ok(Value::State(now, all)) => {
                    for state in *all {
                        let own = text::label(&family.name, state);
                        let is = f64::from(u8::from(state == now));
                        text.sample(&family.name, "", [labels[0], &own, ""], is);
                    }
                }
                Ok(Value::Counter(_)) | Err(_) => {
                    if let Some(total) = series.total {
                        text.sample(&family.name, "_total", labels, total * family.factor);
                    }
                }
            }
        }
    }
    if !absent.is_empty() {
        let name = "pmuscope_absent_values";
        text.head(name, "gauge", "", "Series without a value, by the reason");
        for (reason, count) in absent {
            let reason = text::label("reason", &reason);
            #[expect(clippy::cast_precision_loss, reason = "a number of series")]
            text.sample(name, "", [&reason, "", ""], count as f64);
        }
    }
    text.end();
    Ok(())
}

/// The labels of a subject.
fn subject(subject: &Subject) -> String {
    let mut labels = Vec::new();
    match subject {
        Subject::Machine | Subject::Pmuscope => {}
        Subject::Socket(socket) => labels.push(text::label("socket", &socket.to_string())),
        Subject::Place(place, devices) => {
            if let Some(socket) = place.socket {
                labels.push(text::label("socket", &socket.to_string()));
            }
            // The name of a whole socket says nothing more.
            let (kind, name) = label(subject);
            if kind == "device" || *name != format!("socket {}", place.socket.unwrap_or_default()) {
                labels.push(text::label("device", &name));
            }
            if !devices.is_empty() {
                labels.push(text::label("pci_devices", &devices.join(",")));
            }
        }
        Subject::Entity(_) | Subject::Io | Subject::Unattributed | Subject::Unknown => {
            let (kind, name) = label(subject);
            labels.extend([text::label("kind", kind), text::label("name", &name)]);
            labels.extend(pod(subject).map(|pod| text::label("pod_uid", pod)));
            labels.extend(pid(subject).map(|pid| text::label("pid", &pid.to_string())));
        }
    }
    labels.join(",")
}

fn attributes(attributes: &Attributes) -> String {
    let Attributes {
        socket,
        device,
        method,
        operation,
        source,
    } = attributes;
    let labels = [
        ("socket", socket.map(|socket| socket.to_string())),
        ("device", device.clone()),
        ("method", method.map(|method| method.to_string())),
        (
            "operation",
            operation.map(|operation| operation.name().to_owned()),
        ),
        ("source", source.map(served_name)),
    ];
    let labels = labels.into_iter();
    let labels = labels.filter_map(|(name, value)| Some(text::label(name, &value?)));
    labels.collect::<Vec<_>>().join(",")
}

/// What the type of a metric is called.
fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
        Kind::State => "stateset",
    }
}

#[cfg(test)]
mod tests;
