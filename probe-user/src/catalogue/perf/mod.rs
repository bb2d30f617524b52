//! Directories of perf's JSON events and metrics (tools/perf/pmu-events, intel/perfmon): another
//! syntax for a catalogue file.
//!
//! 1. `directory` reads the files of the CPU's model, which `mapfile` chooses;
//! 2. `encoding` and `metrics` read the files' entries, `expression` parses an expression into the
//!    tree of `node`;
//! 3. `resolve` replaces the names of an expression, with the events that `events` finds;
//! 4. `threshold` writes the condition, over values of metrics, under which a value is marked;
//! 5. [`translate`] makes a catalogue file of all that, and lists what it refused.
//!
//! What perf can express and the catalogue cannot is refused with the reason, metric by metric.

mod directory;
mod encoding;
mod events;
mod expression;
mod mapfile;
mod metrics;
mod node;
mod processor;
mod resolve;
#[cfg(test)]
mod tests;
mod threshold;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
};

pub use self::processor::Processor;
use self::{
    directory::{Directory, Entry},
    encoding::{JsonEvent, number, text},
    events::Events,
    metrics::JsonMetric,
    node::{Node, Operator, binary, formula},
    resolve::Resolver,
};
use super::{
    Catalogue, RefusedMetric,
    error::{CatalogueError, Problem},
    file::{File, FileMetric},
    hardware::Hardware,
    load,
    model::{Apportion, MetricKind},
};
use crate::formula::MAX_LENGTH;

/// The group of metrics without one.
const UNGROUPED: &str = "perf";

/// The prefix of a metric's name if the catalogue already has a metric of that name, or if the name
/// does not begin with a letter.
const PREFIX: &str = "perf_";

/// The catalogue file of a directory, and the metrics that were refused.
struct Translated {
    file: File,
    refused: Vec<RefusedMetric>,
}

/// Adds the metrics of a directory of perf's files. Metrics that cannot be used are refused, each
/// with the reason.
pub(super) fn merge(
    catalogue: &mut Catalogue,
    path: &Path,
    hardware: &Hardware,
    processor: &Processor,
) -> Result<(), CatalogueError> {
    let Translated { file, mut refused } = translate(catalogue, path, hardware, processor)?;
    let source = file.document.clone();
    let loaded = load::load(catalogue, file, |name, title, group, problem| {
        refused.push(RefusedMetric {
            name,
            title,
            group,
            source: source.clone(),
            reason: problem.to_string(),
        });
        Ok(())
    });
    let (family, metrics) = loaded.map_err(|problem| CatalogueError {
        file: path.display().to_string().into(),
        line: None,
        problem,
    })?;
    catalogue.families.push(family);
    catalogue.metrics.extend(metrics);
    catalogue.refused.extend(refused);
    Ok(())
}

/// Translates the files of the CPU's model to a catalogue file for the hardware.
///
/// # Errors
/// The directory has no files for this CPU, or one of them cannot be read.
fn translate(
    catalogue: &Catalogue,
    path: &Path,
    hardware: &Hardware,
    processor: &Processor,
) -> Result<Translated, CatalogueError> {
    let directory = directory::read(path, processor)?;
    let (events, metrics) = parse_entries(&directory);
    let source = directory.path.display().to_string();
    let model = directory.path.file_name().map_or_else(
        || "perf".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let names = (
        format!("perf-{model}"),
        format!("perf's metrics of {model}"),
    );
    let mut file = File::empty(names, vec![hardware.platform], source.clone());
    let here = catalogue.on(hardware);
    let metric_names: Vec<String> = metrics
        .iter()
        .map(|metric| {
            let name = snake_case(&metric.name);
            match here.iter().any(|other| other.answers_to(&name)) {
                true => format!("{PREFIX}{name}"),
                false => name,
            }
        })
        .collect();
    let threshold_names = threshold::names(&metrics, &metric_names);
    let mut used_names = BTreeSet::new();
    let mut refused = Vec::new();
    let mut resolver = Resolver::new(&events, processor, &metrics);
    for (metric, name) in metrics.iter().zip(metric_names) {
        let formula = match used_names.insert(name.clone()) {
            true => formula_of(&mut resolver, metric),
            false => Err(format!("another metric of {model} has the same name")),
        };
        match formula {
            Ok(formula) => file.metric.push(FileMetric {
                threshold: threshold::formula_of(metric, &threshold_names),
                ..file_metric(metric, name, formula, &mut file.notes)
            }),
            Err(reason) => refused.push(RefusedMetric {
                name,
                title: metric.title.clone(),
                group: group(metric),
                source: source.clone(),
                reason,
            }),
        }
    }
    file.pmu = resolver.pmus;
    if file.metric.is_empty() && refused.is_empty() {
        return Err(directory::error(path, Problem::NoMetrics(model)));
    }
    Ok(Translated { file, refused })
}

/// The events and metrics of the entries. Of two events or metrics with the same name, the first is
/// taken; the files have perf's order.
fn parse_entries(directory: &Directory) -> (Events, Vec<JsonMetric>) {
    let standard_entry = |name: &str| {
        directory.standard.iter().find(|entry| {
            let mut names = ["EventName", "MetricName"].iter();
            let is_named =
                |key: &&str| text(entry, key).is_some_and(|it| it.eq_ignore_ascii_case(name));
            names.any(is_named)
        })
    };
    let mut events = Vec::new();
    let mut metrics: Vec<JsonMetric> = Vec::new();
    let mut counters = BTreeMap::new();
    let mut metric_names = BTreeSet::new();
    for (file, entry) in &directory.entries {
        let entry: Entry = match text(entry, "ArchStdEvent").and_then(standard_entry) {
            Some(standard) => {
                let mut merged = standard.clone();
                merged.extend(entry.clone());
                merged
            }
            None => entry.clone(),
        };
        if let (Some(unit), Some(number)) = (
            text(&entry, "Unit"),
            text(&entry, "CountersNumGeneric").and_then(number),
        ) {
            counters.extend(u32::try_from(number).map(|it| (encoding::key(unit), it)));
        }
        if let Some(metric) = JsonMetric::from_entry(file, &entry) {
            if metric_names.insert(metric.name.to_ascii_lowercase()) {
                metrics.push(metric);
            }
        } else if let Some(event) = JsonEvent::from_entry(&entry) {
            events.push(event);
        }
    }
    (Events::new(events, counters), metrics)
}

/// The metric's formula over events, in its unit.
fn formula_of(resolver: &mut Resolver<'_>, metric: &JsonMetric) -> Result<String, String> {
    let (node, _) = resolver.metric(&metric.name, 0)?;
    let scale = Rc::new(Node::Number(metric.scale));
    let scaled = binary(Operator::Multiply, scale, node);
    formula(&scaled, MAX_LENGTH).ok_or_else(|| {
        format!(
            "its formula has more than {MAX_LENGTH} characters, with those of the metrics that \
             it names"
        )
    })
}

fn file_metric(
    metric: &JsonMetric,
    name: String,
    formula: String,
    notes: &mut BTreeMap<String, String>,
) -> FileMetric {
    let constraint = metric.constraint.as_deref().map(|constraint| {
        format!(
            "perf does not count its events in one group ({constraint}): they may not fit the \
             counters at once."
        )
    });
    let threshold = metric.threshold.as_ref();
    let threshold = threshold.map(|it| format!("A value is marked if {}.", it.text));
    let note_keys = [constraint, threshold].into_iter().flatten().map(|text| {
        let key = format!("n{}", notes.len());
        notes.insert(key.clone(), text);
        key
    });
    FileMetric {
        aliases: Vec::new(),
        title: metric.title.trim_end_matches('.').to_owned(),
        unit: metric.unit.clone(),
        kind: kind(&metric.unit, &formula),
        group: group(metric),
        also_in: metric.groups.iter().skip(1).cloned().collect(),
        document: None,
        section: format!("{}, {}", metric.file, metric.name),
        apportion: Apportion::None,
        from_sockets: None,
        from_each_socket: None,
        other_memory: None,
        not_shared_on: Vec::new(),
        io: Vec::new(),
        bound: None,
        threshold: None,
        requires: None,
        notes: note_keys.collect(),
        not_on: BTreeMap::new(),
        name,
        formula,
    }
}

fn group(metric: &JsonMetric) -> String {
    let first = metric.groups.first();
    first.map_or(UNGROUPED, String::as_str).to_owned()
}

fn kind(unit: &str, formula: &str) -> MetricKind {
    match unit {
        "ns" => MetricKind::Latency,
        unit if unit.ends_with("/s") || unit.ends_with("Hz") => MetricKind::Rate,
        _ if formula.contains(['/', '+', '*']) => MetricKind::Ratio,
        _ => MetricKind::Counter,
    }
}

/// The name in the catalogue's form: lower-case letters, digits and `_`. A name that would not
/// begin with a letter gets the prefix.
fn snake_case(name: &str) -> String {
    let allowed = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '_',
    };
    let name: String = name.chars().map(allowed).collect();
    match name.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => name,
        false => format!("{PREFIX}{name}"),
    }
}
