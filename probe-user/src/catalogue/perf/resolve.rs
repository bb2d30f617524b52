//! Replaces the names of an expression: metrics by their expressions, events by names that formulas
//! can use, literals by constants or quantities.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{
    encoding::{number, pattern},
    events::Events,
    metrics::JsonMetric,
    node::{Node, Operator, binary, choice},
    processor::Processor,
};
use crate::{
    catalogue::{EventSpec, Per, file::FilePmu},
    formula::{Formula, Implicit},
};

/// Maximum depth of an expression, with the expressions of the metrics that it names. Each level is
/// a recursive call.
pub(super) const MAX_DEPTH: usize = 160;

pub(super) fn too_deep() -> String {
    format!("its expression is deeper than {MAX_DEPTH} operations, with the metrics that it names")
}

/// The state of a translation.
pub(super) struct Resolver<'a> {
    pub(super) events: &'a Events,
    pub(super) processor: &'a Processor,
    metrics: BTreeMap<String, &'a JsonMetric>,
    /// By name in lower case.
    resolved: BTreeMap<String, Result<(Rc<Node>, usize), String>>,
    /// The metrics that are being resolved, outermost first.
    open: Vec<String>,
    /// The PMUs with the events that expressions name.
    pub(super) pmus: BTreeMap<String, FilePmu>,
    /// The name in formulas of each event, by perf's name.
    names: BTreeMap<String, String>,
    /// All values of `names`.
    taken: BTreeSet<String>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(
        events: &'a Events,
        processor: &'a Processor,
        metrics: &'a [JsonMetric],
    ) -> Self {
        let by_name = metrics.iter().map(|it| (it.name.to_ascii_lowercase(), it));
        Self {
            events,
            processor,
            metrics: by_name.collect(),
            resolved: BTreeMap::new(),
            open: Vec::new(),
            pmus: BTreeMap::new(),
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
        }
    }

    /// The resolved expression of a metric, and its own depth. `depth` is the depth at which the
    /// metric is named.
    pub(super) fn metric(&mut self, name: &str, depth: usize) -> Result<(Rc<Node>, usize), String> {
        let key = name.to_ascii_lowercase();
        if let Some(resolved) = self.resolved.get(&key) {
            return resolved.clone();
        }
        let Some(metric) = self.metrics.get(&key).copied() else {
            return Err(format!("{name} is no metric of the directory"));
        };
        if self.open.contains(&key) {
            let cycle = self.open.join(" -> ");
            return Err(format!(
                "its expression needs its own value: {cycle} -> {key}"
            ));
        }
        self.open.push(key.clone());
        let resolved = metric
            .expression
            .clone()
            .and_then(|node| self.node(&node, depth));
        self.open.pop();
        // An error may depend on where the metric is named: too deep there, or in a cycle.
        if resolved.is_ok() || self.open.is_empty() {
            self.resolved.insert(key, resolved.clone());
        }
        resolved
    }

    fn node(&mut self, node: &Node, depth: usize) -> Result<(Rc<Node>, usize), String> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut height_below = 0;
        let mut resolve_child = |this: &mut Self, node: &Node| {
            let (node, height) = this.node(node, depth + 1)?;
            height_below = height_below.max(height);
            Ok::<_, String>(node)
        };
        let resolved = match node {
            Node::Number(number) => Rc::new(Node::Number(*number)),
            Node::Name(name) => return self.name(name, depth),
            Node::Literal(name) => self.literal(name)?,
            // Always 1: without the event, the metric has no value, and the reason names the event.
            Node::HasEvent(_) => Rc::new(Node::Number(1.0)),
            Node::IsCpu(id) => {
                let midr = number(id).ok_or_else(|| format!("{id} is no MIDR of a CPU"))?;
                let matches = self.processor.is_at_least(midr);
                let matches = matches.ok_or("it depends on the unknown revision of the CPU")?;
                Rc::new(Node::Number(f64::from(u8::from(matches))))
            }
            Node::Min(nodes) => {
                let nodes = nodes.iter().map(|it| resolve_child(self, it));
                Rc::new(Node::Min(nodes.collect::<Result<_, _>>()?))
            }
            Node::Max(nodes) => {
                let nodes = nodes.iter().map(|it| resolve_child(self, it));
                Rc::new(Node::Max(nodes.collect::<Result<_, _>>()?))
            }
            Node::Binary(operator, a, b) => {
                let (a, b) = (resolve_child(self, a)?, resolve_child(self, b)?);
                self.operation(*operator, a, b)
            }
            Node::If(then, condition, otherwise) => {
                let condition = resolve_child(self, condition)?;
                // The branch that is not taken may name events that do not exist here.
                match &*condition {
                    Node::Number(0.0) => resolve_child(self, otherwise)?,
                    Node::Number(_) => resolve_child(self, then)?,
                    _ => choice(
                        resolve_child(self, then)?,
                        condition,
                        resolve_child(self, otherwise)?,
                    ),
                }
            }
        };
        match depth + height_below + 1 > MAX_DEPTH {
            true => Err(too_deep()),
            false => Ok((resolved, height_below + 1)),
        }
    }

    /// The operation. The number of units whose counts were summed is `source_count(X) *
    /// #num_packages` in perf's expressions. Here it is `num_units`, also for the counts of one
    /// socket.
    fn operation(&self, operator: Operator, a: Rc<Node>, b: Rc<Node>) -> Rc<Node> {
        let is_quantity = |node: &Node, quantity: Implicit| match node {
            Node::Name(name) => name == quantity.name(),
            _ => false,
        };
        let (units, sockets) = (Implicit::NumUnits, Implicit::NumSockets);
        if operator == Operator::Multiply && is_quantity(&a, units) && is_quantity(&b, sockets) {
            return a;
        }
        binary(operator, a, b)
    }

    fn literal(&self, name: &str) -> Result<Rc<Node>, String> {
        let quantity = |quantity: Implicit| Rc::new(Node::Name(quantity.name().to_owned()));
        let constant = |number: f64| Rc::new(Node::Number(number));
        let smt = || match self.processor.smt() {
            Some(smt) => constant(f64::from(u8::from(smt))),
            None => quantity(Implicit::SmtOn),
        };
        Ok(match name.to_ascii_lowercase().as_str() {
            "num_cpus" | "num_cpus_online" => quantity(Implicit::NumCpus),
            "slots" => quantity(Implicit::Slots),
            "num_packages" | "num_dies" | "socket_count" => quantity(Implicit::NumSockets),
            "source_count" | "chas_per_socket" => quantity(Implicit::NumUnits),
            "system_tsc_freq" => match self.processor.tsc_frequency() {
                Some(frequency) => constant(frequency),
                None => quantity(Implicit::TscFrequency),
            },
            "smt_on" | "hyperthreading_on" => smt(),
            "threads_per_core" => binary(Operator::Add, constant(1.0), smt()),
            "durationtimeinseconds" => quantity(Implicit::Seconds),
            "durationtimeinmilliseconds" => binary(
                Operator::Multiply,
                quantity(Implicit::Seconds),
                constant(1e3),
            ),
            // Always 1: without persistent memory, its events count nothing.
            "has_pmem" => constant(1.0),
            _ => return Err(format!("pmuscope does not have perf's #{name}")),
        })
    }

    fn name(&mut self, id: &str, depth: usize) -> Result<(Rc<Node>, usize), String> {
        // In perf's expressions, `duration_time` is in seconds.
        if id == "duration_time" {
            return Ok((Rc::new(Node::Name(Implicit::Seconds.name().to_owned())), 1));
        }
        if self.events.named(id).is_none() && self.metrics.contains_key(&id.to_ascii_lowercase()) {
            return self.metric(id, depth);
        }
        Ok((Rc::new(Node::Name(self.event(id)?)), 1))
    }

    /// Adds an event to its PMU, and returns its name in formulas.
    fn event(&mut self, id: &str) -> Result<String, String> {
        if let Some(name) = self.names.get(id) {
            return Ok(name.clone());
        }
        let event = self.events.find(id)?;
        check(&event.spec)?;
        let allowed = |c: char| match c.is_ascii_alphanumeric() || matches!(c, '_' | '.') {
            true => c,
            false => '_',
        };
        let mut name: String = id.chars().map(allowed).collect();
        name = name.trim_matches('_').to_owned();
        let is_event = |name: &str| {
            Formula::parse(name).is_ok_and(|formula| formula.events() == [name.to_owned()])
        };
        if !is_event(&name) {
            name = format!("event.{name}");
        }
        while self.taken.contains(&name) {
            name.push('_');
        }
        if !is_event(&name) {
            return Err(format!("{id} cannot be named in a formula"));
        }
        let counters = self.events.counters.get(&event.pmu).copied();
        let per = match event.pmu == super::encoding::CORE {
            true => Per::Cpu,
            false => Per::Socket,
        };
        let pmu = self
            .pmus
            .entry(event.pmu.clone())
            .or_insert_with(|| FilePmu {
                pattern: pattern(&event.pmu),
                product: None,
                per,
                mismatch: None,
                counters,
                slots: None,
                defaults: BTreeMap::new(),
                devices: None,
                events: BTreeMap::new(),
            });
        pmu.events.insert(name.clone(), event.spec);
        self.taken.insert(name.clone());
        self.names.insert(id.to_owned(), name.clone());
        Ok(name)
    }
}

/// Checks that perf's event syntax accepts the encoding.
fn check(spec: &EventSpec) -> Result<(), String> {
    let filled = crate::catalogue::template::fill(&spec.perf, |_| Some("0".to_owned()));
    crate::event::check(&filled).map_err(|error| error.to_string())
}
