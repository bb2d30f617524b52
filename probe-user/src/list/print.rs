//! An inventory as text and as JSON.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde_json::{Value, json};

use super::{Availability, EventItem, EventSection, Inventory, MetricItem, PmuItem};
use crate::{
    emit::{printable::printable_json, table_lines},
    event::Counter,
    machine::PmuKind,
};

/// A part of the inventory that can be asked for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum InventoryPart {
    /// The PMUs, with the terms of their events
    Pmus,
    /// The events, with what to write for each
    Events,
    /// The PCI devices, with the uncore PMU that counts each
    Devices,
    /// The documented metrics, and why this machine cannot have the others
    Metrics,
}

impl InventoryPart {
    /// Whether to print this part, if `asked` is asked for; None asks for all parts.
    fn is_in(self, asked: Option<Self>) -> bool {
        asked.is_none_or(|asked| asked == self)
    }
}

impl Inventory {
    /// Writes text for people: one line for each PMU and event.
    ///
    /// # Errors
    ///
    /// If the writer fails.
    pub fn write_text(&self, part: Option<InventoryPart>, out: &mut impl Write) -> io::Result<()> {
        if InventoryPart::Pmus.is_in(part) {
            writeln!(out, "PMUs")?;
            write_rows(out, self.pmus.iter().map(pmu_line))?;
        }
        if InventoryPart::Events.is_in(part) {
            for (at, section) in self.sections.iter().enumerate() {
                if at > 0 || InventoryPart::Pmus.is_in(part) {
                    writeln!(out)?;
                }
                section_text(out, section)?;
            }
        }
        if InventoryPart::Devices.is_in(part) {
            if part.is_none() {
                writeln!(out)?;
            }
            self.devices.write_text(out)?;
        }
        if InventoryPart::Metrics.is_in(part) && !self.metrics.is_empty() {
            if part.is_none() {
                writeln!(out)?;
            }
            metrics_text(out, &self.metrics)?;
        }
        Ok(())
    }

    /// Writes JSON for programs: one object.
    ///
    /// # Errors
    ///
    /// If the writer fails.
    pub fn write_json(&self, part: Option<InventoryPart>, out: &mut impl Write) -> io::Result<()> {
        let mut object = serde_json::Map::new();
        if InventoryPart::Pmus.is_in(part) {
            let pmus = self.pmus.iter().map(pmu_json).collect();
            object.insert("pmus".to_owned(), Value::Array(pmus));
        }
        if InventoryPart::Events.is_in(part) {
            let events = self.sections.iter().flat_map(|section| {
                let events = section.events.iter();
                events.map(|event| event_json(section, event))
            });
            object.insert("events".to_owned(), Value::Array(events.collect()));
        }
        if InventoryPart::Devices.is_in(part) {
            object.insert("devices".to_owned(), self.devices.to_json());
        }
        if InventoryPart::Metrics.is_in(part) {
            let metrics = self.metrics.iter().map(metric_json).collect();
            object.insert("metrics".to_owned(), Value::Array(metrics));
        }
        writeln!(out, "{}", printable_json(&Value::Object(object)))
    }
}

/// Writes the help texts of these metrics, one after the other.
///
/// # Errors
///
/// If the writer fails.
pub fn write_metrics(out: &mut impl Write, metrics: &[&MetricItem]) -> io::Result<()> {
    for (at, metric) in metrics.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", metric.help)?;
        let names = &metric.aliases;
        if !names.is_empty() {
            writeln!(out, "Other names: {}", names.join(", "))?;
        }
        writeln!(out, "Group: {}", metric.group)?;
        match &metric.availability {
            Availability::Here => writeln!(out, "This machine can count it.")?,
            Availability::NotHere(reason) => writeln!(out, "Not here: {reason}")?,
            Availability::Untried(reason) => writeln!(out, "Not known whether here: {reason}")?,
        }
    }
    Ok(())
}

/// Writes rows of texts as aligned lines.
fn write_rows(out: &mut impl Write, rows: impl Iterator<Item = Vec<String>>) -> io::Result<()> {
    for line in table_lines(&[], rows, |_| false) {
        writeln!(out, " {line}")?;
    }
    Ok(())
}

fn pmu_line(item: &PmuItem) -> Vec<String> {
    let (kind, description) = (item.kind().to_owned(), item.description());
    let Ok(pmu) = &item.pmu else {
        return vec![item.name.clone(), kind, "-".to_owned(), description];
    };
    let terms: Vec<&str> = pmu.formats.keys().map(String::as_str).collect();
    let terms = if terms.is_empty() {
        String::new()
    } else {
        format!("; terms {}", terms.join(", "))
    };
    let events = format!("{} events", pmu.events.len());
    vec![
        item.name.clone(),
        kind,
        events,
        format!("{description}{terms}"),
    ]
}

fn section_text(out: &mut impl Write, section: &EventSection) -> io::Result<()> {
    writeln!(out, "{}", section.title)?;
    let shared: Vec<(&str, &str)> = ["no", "?"]
        .into_iter()
        .filter_map(|mark| Some((mark, shared_reason(section, mark)?)))
        .collect();
    for (mark, reason) in &shared {
        writeln!(out, "  {mark}: {reason}")?;
    }
    write_rows(
        out,
        section
            .events
            .iter()
            .map(|event| event_line(event, &shared)),
    )
}

/// Writes the metrics that can be counted or were not tried, then the other metrics, grouped by the
/// reason why this machine cannot count them.
fn metrics_text(out: &mut impl Write, metrics: &[MetricItem]) -> io::Result<()> {
    writeln!(out, "Metrics (stat -M NAME, group:GROUP or all)")?;
    let here = metrics
        .iter()
        .filter(|metric| !matches!(metric.availability, Availability::NotHere(_)));
    write_rows(out, here.map(metric_line))?;
    let mut reasons: BTreeMap<&str, Vec<&MetricItem>> = BTreeMap::new();
    for metric in metrics {
        if let Availability::NotHere(reason) = &metric.availability {
            reasons.entry(reason).or_default().push(metric);
        }
    }
    for (reason, metrics) in reasons {
        writeln!(out, "\nNot here: {reason}")?;
        write_rows(out, metrics.into_iter().map(metric_line))?;
    }
    Ok(())
}

fn metric_line(metric: &MetricItem) -> Vec<String> {
    let mut name = metric.name.clone();
    if !metric.aliases.is_empty() {
        name = format!("{name} ({})", metric.aliases.join(", "));
    }
    let mark = match metric.availability {
        Availability::Here => "",
        Availability::NotHere(_) => "no",
        Availability::Untried(_) => "?",
    };
    let group = format!("group:{}", metric.group);
    vec![
        mark.to_owned(),
        name,
        group,
        metric.unit.clone(),
        metric.title.clone(),
    ]
}

fn metric_json(metric: &MetricItem) -> Value {
    let (state, reason) = metric.availability.state();
    json!({
        "name": metric.name,
        "aliases": metric.aliases,
        "group": metric.group,
        "unit": metric.unit,
        "kind": metric.kind.to_string(),
        "title": metric.title,
        "help": metric.help,
        "state": state,
        "reason": reason,
    })
}

impl Availability {
    /// The state as words for programs, and the reason, if there is one.
    fn state(&self) -> (&'static str, Option<&String>) {
        match self {
            Self::Here => ("here", None),
            Self::NotHere(reason) => ("not here", Some(reason)),
            Self::Untried(reason) => ("not tried", Some(reason)),
        }
    }

    /// The mark of a line, and the reason; None if this machine counts the event.
    fn mark(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Here => None,
            Self::NotHere(reason) => Some(("no", reason)),
            Self::Untried(reason) => Some(("?", reason)),
        }
    }
}

/// The common reason of all events with this mark, if there are several.
fn shared_reason<'s>(section: &'s EventSection, mark: &str) -> Option<&'s str> {
    let marks = section
        .events
        .iter()
        .filter_map(|event| event.availability.mark());
    let mut reasons = marks.filter_map(|(own, reason)| (own == mark).then_some(reason));
    let first = reasons.next()?;
    let others: Vec<&str> = reasons.collect();
    let same = others.iter().all(|reason| *reason == first);
    (!others.is_empty() && same).then_some(first)
}

/// The columns of an event's line. `shared` has the marks whose reason was printed above the
/// events.
fn event_line(event: &EventItem, shared: &[(&str, &str)]) -> Vec<String> {
    let (usual, aliases) = event.names.split_at(1);
    let mut name = usual.concat();
    if !aliases.is_empty() {
        name = format!("{name} ({})", aliases.join(", "));
    }
    let mut remarks: Vec<String> = event.description.iter().cloned().collect();
    if let Some(counter) = &event.counter
        && event.description.is_none()
    {
        remarks.push(encoding(counter));
    }
    if let Some(scale) = event.scale {
        remarks.push(format!("one count is {scale}"));
    }
    let mark = event.availability.mark();
    if let Some((mark, reason)) = mark
        && shared.iter().all(|(shown, _)| *shown != mark)
    {
        remarks.push(reason.to_owned());
    }
    let mark = mark.map_or("", |(mark, _)| mark);
    let unit = event.unit.clone().unwrap_or_else(|| "count".to_owned());
    vec![mark.to_owned(), name, unit, remarks.join("; ")]
}

/// The word `config` of an event, and its other config words that are not zero.
fn encoding(counter: &Counter) -> String {
    let Counter {
        config,
        config1,
        config2,
        config3,
        config4,
        ..
    } = counter;
    let mut text = format!("config={config:#x}");
    for (name, word) in [
        ("config1", config1),
        ("config2", config2),
        ("config3", config3),
        ("config4", config4),
    ] {
        if *word != 0 {
            text.push_str(&format!(",{name}={word:#x}"));
        }
    }
    text
}

fn pmu_json(item: &PmuItem) -> Value {
    let mut json = json!({
        "name": item.name,
        "kind": item.kind(),
        "description": item.description(),
        "usable": item.pmu.is_ok(),
    });
    if let Ok(pmu) = &item.pmu {
        let terms = pmu
            .formats
            .iter()
            .map(|(name, format)| (name.clone(), json!(format.to_string())));
        json["type"] = json!(pmu.type_);
        json["events"] = json!(pmu.events.len());
        json["terms"] = Value::Object(terms.collect());
        json["identifier"] = json!(pmu.identifier);
        json["cpus"] = match &pmu.kind {
            PmuKind::Uncore { cpus } => json!(cpus.to_string()),
            PmuKind::Core | PmuKind::Other => {
                json!(pmu.cpus.as_ref().map(ToString::to_string))
            }
        };
    }
    json
}

fn event_json(section: &EventSection, event: &EventItem) -> Value {
    let (state, reason) = event.availability.state();
    let counter = event.counter.as_ref().map(|counter| {
        json!({
            "type": counter.type_,
            "config": counter.config,
            "config1": counter.config1,
            "config2": counter.config2,
            "config3": counter.config3,
            "config4": counter.config4,
        })
    });
    json!({
        "names": event.names,
        "section": section.title,
        "pmus": section.pmus,
        "unit": event.unit,
        "scale": event.scale,
        "description": event.description,
        "counter": counter,
        "state": state,
        "reason": reason,
    })
}
