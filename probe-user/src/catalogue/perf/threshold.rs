//! Thresholds of metrics: conditions over values of metrics under which a value is marked.

use std::rc::Rc;

use super::{
    directory::Entry,
    encoding::text,
    expression,
    metrics::{JsonMetric, Names, with_names},
    node::{Node, Operator, binary, choice, formula},
};
use crate::formula::MAX_LENGTH;

/// A condition of a file.
pub(super) struct Threshold {
    /// As written in the file.
    pub(super) text: String,
    /// The condition over names of metrics, or why it cannot be parsed.
    pub(super) expression: Result<Rc<Node>, String>,
}

impl Threshold {
    /// The threshold of an entry; `None` if it has none.
    pub(super) fn from_entry(entry: &Entry) -> Option<Self> {
        if let Some(threshold) = text(entry, "MetricThreshold") {
            return Some(Self {
                text: threshold.to_owned(),
                expression: expression::parse(threshold),
            });
        }
        let threshold = entry.get("Threshold")?.as_object()?;
        let expression = expression::parse(text(threshold, "Formula")?);
        let metrics = threshold.get("ThresholdMetrics")?.as_array()?.iter();
        let metrics = metrics.filter_map(|metric| {
            let metric = metric.as_object()?;
            let name = Node::Name(text(metric, "Value")?.to_owned());
            Some((text(metric, "Alias")?.to_owned(), Ok(Rc::new(name))))
        });
        Some(Self {
            text: text(threshold, "BaseFormula")?.to_owned(),
            expression: expression.and_then(|it| with_names(&it, &metrics.collect(), 0)),
        })
    }
}

/// For each name of a metric in thresholds, the node that replaces it: the name in the catalogue
/// divided by the scale, since perf's thresholds are in perf's unit. `catalogue_names` has a name
/// for each of `metrics`.
pub(super) fn names(metrics: &[JsonMetric], catalogue_names: &[String]) -> Names {
    let names = metrics
        .iter()
        .zip(catalogue_names)
        .flat_map(|(metric, name)| {
            let name = Rc::new(Node::Name(name.clone()));
            let scale = Rc::new(Node::Number(metric.scale));
            let node = binary(Operator::Divide, name, scale);
            let perf_names = std::iter::once(&metric.name).chain(&metric.legacy_name);
            perf_names.map(move |name| (name.clone(), Ok(Rc::clone(&node))))
        });
    names.collect()
}

/// The metric's threshold as a formula over metrics; `None` if it has no threshold that can be
/// written as a formula.
pub(super) fn formula_of(metric: &JsonMetric, names: &Names) -> Option<String> {
    let expression = metric.threshold.as_ref()?.expression.as_ref().ok()?;
    let condition = with_names(expression, names, 0).ok()?;
    let [one, zero] = [1.0, 0.0].map(|number| Rc::new(Node::Number(number)));
    formula(&choice(one, condition, zero), MAX_LENGTH)
}
