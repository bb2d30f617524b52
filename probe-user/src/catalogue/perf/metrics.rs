//! Metrics of the JSON files, in perf's form or in that of intel/perfmon with aliases of events.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    directory::Entry,
    encoding::{number, text},
    expression,
    node::Node,
    threshold::Threshold,
};

/// A metric of a file.
pub(super) struct JsonMetric {
    /// As in the file.
    pub(super) name: String,
    /// The name of the file.
    pub(super) file: String,
    /// The expression, or why it cannot be parsed.
    pub(super) expression: Result<Rc<Node>, String>,
    /// The factor from the value of the expression to the unit.
    pub(super) scale: f64,
    pub(super) unit: String,
    pub(super) title: String,
    pub(super) groups: Vec<String>,
    /// The condition under which its value is marked.
    pub(super) threshold: Option<Threshold>,
    /// intel/perfmon's other name, which its thresholds use.
    pub(super) legacy_name: Option<String>,
    /// perf's `MetricConstraint`.
    pub(super) constraint: Option<String>,
}

/// For each name, the node that it stands for, or why it cannot be used.
pub(super) type Names = BTreeMap<String, Result<Rc<Node>, String>>;

impl JsonMetric {
    /// The metric of an entry; `None` if the entry is no metric.
    pub(super) fn from_entry(file: &str, entry: &Entry) -> Option<Self> {
        let name = text(entry, "MetricName")?.to_owned();
        let (expression, scale, unit) = match text(entry, "MetricExpr") {
            Some(expression) => {
                let (scale, unit) = scale_and_unit(text(entry, "ScaleUnit").unwrap_or("1"));
                (expression::parse(expression), scale, unit)
            }
            None => {
                let parsed = expression::parse(text(entry, "Formula")?);
                let aliases = aliases(entry);
                let named = parsed.and_then(|it| with_names(&it, &aliases, 0));
                let unit = text(entry, "UnitOfMeasure").unwrap_or_default();
                (named, 1.0, unit_of_measure(unit))
            }
        };
        let groups = text(entry, "MetricGroup").unwrap_or_default().split(';');
        let groups = groups.map(str::trim).filter(|group| !group.is_empty());
        let title = text(entry, "BriefDescription").unwrap_or(&name);
        Some(Self {
            title: title.split('\n').next().unwrap_or_default().to_owned(),
            file: file.to_owned(),
            expression,
            scale,
            unit,
            groups: groups.map(|group| group.replace(',', "_")).collect(),
            threshold: Threshold::from_entry(entry),
            legacy_name: text(entry, "LegacyName").map(str::to_owned),
            constraint: text(entry, "MetricConstraint").map(str::to_owned),
            name,
        })
    }
}

/// `100%` is a factor of 100 and the unit %; `1per_instr` is 1 and `per instr`.
fn scale_and_unit(text: &str) -> (f64, String) {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = number.parse().ok().filter(|scale: &f64| scale.is_finite());
    let unit = match unit.trim() {
        "" => "1".to_owned(),
        unit => unit.replace('_', " "),
    };
    (scale.unwrap_or(1.0), unit)
}

fn unit_of_measure(unit: &str) -> String {
    match unit {
        "" => "1".to_owned(),
        "percent" => "%".to_owned(),
        "MB/sec" => "MB/s".to_owned(),
        "per second" => "1/s".to_owned(),
        other => other.to_owned(),
    }
}

/// The nodes that the letters of an intel/perfmon formula stand for.
fn aliases(entry: &Entry) -> Names {
    let mut aliases = BTreeMap::new();
    for (list, is_event) in [("Events", true), ("Constants", false)] {
        let all = entry.get(list).and_then(serde_json::Value::as_array);
        for one in all.into_iter().flatten().filter_map(|it| it.as_object()) {
            let (Some(alias), Some(name)) = (text(one, "Alias"), text(one, "Name")) else {
                continue;
            };
            let node = match is_event {
                true => perf_name(name).map(Node::Name),
                false => constant(name),
            };
            aliases.insert(alias.to_owned(), node.map(Rc::new));
        }
    }
    aliases
}

/// What intel/perfmon writes for the number of CPUs.
const ALL_CPUS: &str = "system.sockets[0].cpus.count * system.socket_count";

fn constant(name: &str) -> Result<Node, String> {
    match name.parse() {
        Ok(number) => Ok(Node::Number(number)),
        Err(_) if name == ALL_CPUS => Ok(Node::Literal("num_cpus".to_owned())),
        Err(_) if name.contains(['.', '[', ' ']) => {
            Err(format!("its constant {name} is not known"))
        }
        Err(_) => Ok(Node::Literal(name.to_owned())),
    }
}

/// `NAME:c1:e1` in perf's form, `cpu/NAME,cmask=1,edge=1/`.
fn perf_name(name: &str) -> Result<String, String> {
    let mut parts = name.split(':');
    let event = parts.next().unwrap_or_default();
    let (mut terms, mut modifiers) = (Vec::new(), String::new());
    let is_uncore = event.starts_with("UNC_");
    for part in parts {
        let value = |prefix: &str| part.strip_prefix(prefix).and_then(number);
        if part == "perf_metrics" {
        } else if part == "SUP" {
            modifiers.push('k');
        } else if part == "USER" {
            modifiers.push('u');
        } else if part == "one_unit" && event == "UNC_CHA_CLOCKTICKS" {
            return Ok("uncore_cha_0/event=0x1/".to_owned());
        } else if part == "retire_latency" {
            return Err(format!(
                "it needs the retirement latency of {event}, which is sampled and not counted"
            ));
        } else if let Some(value) = value("ocr_msr_val=") {
            terms.push(format!("offcore_rsp={value:#x}"));
        } else if let Some(value) = value("c") {
            let term = if is_uncore { "thresh" } else { "cmask" };
            terms.push(format!("{term}={value}"));
        } else if let Some(value) = value("e") {
            terms.push(format!("edge={value}"));
        } else if let Some(value) = value("u") {
            terms.push(format!("umask={value:#x}"));
        } else {
            return Err(format!(
                "{name} has the modifier {part}, which perf does not have"
            ));
        }
    }
    Ok(match (terms.is_empty(), is_uncore, modifiers.is_empty()) {
        (true, _, true) => event.to_owned(),
        (true, _, false) => format!("{event}:{modifiers}"),
        (false, true, _) => format!("{event}/{}/{modifiers}", terms.join(",")),
        (false, false, _) => format!("cpu/{event},{}/{modifiers}", terms.join(",")),
    })
}

/// The expression with its names replaced by the nodes that they stand for. Other names become
/// literals.
pub(super) fn with_names(node: &Rc<Node>, names: &Names, depth: usize) -> Result<Rc<Node>, String> {
    if depth > super::resolve::MAX_DEPTH {
        return Err(super::resolve::too_deep());
    }
    let each = |node: &Rc<Node>| with_names(node, names, depth + 1);
    let all = |nodes: &[Rc<Node>]| nodes.iter().map(each).collect::<Result<Vec<_>, _>>();
    Ok(match &**node {
        Node::Name(name) => match names.get(name) {
            Some(node) => return node.clone(),
            None => Rc::new(Node::Literal(name.clone())),
        },
        Node::Min(nodes) => Rc::new(Node::Min(all(nodes)?)),
        Node::Max(nodes) => Rc::new(Node::Max(all(nodes)?)),
        Node::Binary(operator, a, b) => Rc::new(Node::Binary(*operator, each(a)?, each(b)?)),
        Node::If(a, b, c) => Rc::new(Node::If(each(a)?, each(b)?, each(c)?)),
        Node::HasEvent(event) => Rc::new(Node::HasEvent(each(event)?)),
        Node::Number(_) | Node::Literal(_) | Node::IsCpu(_) => node.clone(),
    })
}
