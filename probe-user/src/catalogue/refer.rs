//! References to metrics in formulas. A name that is not an event of the file stands for the
//! formula of the metric with that name, in the same file or in one that applies to all platforms
//! of the file.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Catalogue,
    error::MetricProblem,
    model::{Family, Metric, PmuSpec},
};
use crate::formula::Formula;

/// The formulas that a file's metrics may name.
pub(super) struct References<'a> {
    catalogue: &'a Catalogue,
    family: &'a Family,
    /// Formulas of the file's own metrics, as written.
    own: BTreeMap<&'a str, &'a str>,
}

/// A formula over events alone.
pub(super) struct Expanded {
    pub(super) formula: Formula,
    /// The PMUs of the metrics of other files that the formula named.
    pub(super) pmus: Vec<Arc<PmuSpec>>,
}

impl<'a> References<'a> {
    pub(super) fn new(
        catalogue: &'a Catalogue,
        family: &'a Family,
        own: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        Self {
            catalogue,
            family,
            own: own.collect(),
        }
    }

    /// The formula of metric `name`, with references replaced by the formulas of their metrics.
    pub(super) fn expand(&self, name: &str, text: &str) -> Result<Expanded, MetricProblem> {
        let mut pmus = Vec::new();
        let text = self.expanded_text(text, &mut vec![name.to_owned()], &mut pmus)?;
        let formula = Formula::parse(&text)?;
        Ok(Expanded { formula, pmus })
    }

    /// The text with its references expanded; the PMUs of metrics of other files are added to
    /// `pmus`. `open` has the metrics that are being expanded, outermost first.
    fn expanded_text(
        &self,
        text: &str,
        open: &mut Vec<String>,
        pmus: &mut Vec<Arc<PmuSpec>>,
    ) -> Result<String, MetricProblem> {
        let mut formulas = BTreeMap::new();
        for name in Formula::parse(text)?.events() {
            let mut own_pmus = self.family.pmus.iter();
            if own_pmus.any(|pmu| pmu.events.contains_key(name)) {
                continue;
            }
            if open.contains(name) {
                open.push(name.clone());
                return Err(MetricProblem::Cycle(open.join(" -> ")));
            }
            if let Some(text) = self.own.get(name.as_str()) {
                open.push(name.clone());
                formulas.insert(name.clone(), self.expanded_text(text, open, pmus)?);
                open.pop();
            } else if let Some(metric) = self.metric_of_other_file(name)? {
                formulas.insert(name.clone(), metric.formula.text().to_owned());
                pmus.push(Arc::clone(&metric.pmu));
            }
        }
        let text = replace_names(text, &formulas);
        // Checks the length at each step: metrics that name others twice grow exponentially.
        Formula::parse(&text)?;
        Ok(text)
    }

    /// The metric of another file; `None` if no file has one with this name.
    fn metric_of_other_file(&self, name: &str) -> Result<Option<&'a Metric>, MetricProblem> {
        let named = || {
            self.catalogue
                .metrics()
                .filter(|metric| metric.name == name)
        };
        let covers_platforms = |metric: &&Metric| {
            let platforms = &metric.family.platforms;
            self.family
                .platforms
                .iter()
                .all(|one| platforms.contains(one))
        };
        let is_specific = |metric: &&Metric| !metric.family.fallback;
        let best = named().filter(covers_platforms).find(is_specific);
        match best.or_else(|| named().find(covers_platforms)) {
            Some(metric) => Ok(Some(metric)),
            None if named().next().is_some() => Err(MetricProblem::Elsewhere(name.to_owned())),
            None => Ok(None),
        }
    }
}

/// The text with each name in `formulas` replaced by its formula in parentheses.
fn replace_names(text: &str, formulas: &BTreeMap<String, String>) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_in_name = rest.starts_with(is_name);
        let end = rest
            .find(|c| is_name(c) != is_in_name)
            .unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        match formulas.get(piece) {
            Some(formula) => {
                out.push('(');
                out.push_str(formula);
                out.push(')');
            }
            None => out.push_str(piece),
        }
        rest = after;
    }
    out
}
