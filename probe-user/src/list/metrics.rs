//! The documented metrics, and which of them this machine can count.

use super::Availability;
use crate::{
    catalogue::{Catalogue, Hardware, Metric, MetricKind, MetricSettings},
    machine::Pmus,
    plan::{Capacity, Plan, ResolvedRequest},
};

/// One metric of this machine's catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricItem {
    /// What to write after `-M`.
    pub name: String,
    /// Other names that it answers to.
    pub aliases: Vec<String>,
    /// The group that `group:NAME` selects.
    pub group: String,
    /// Unit of its values.
    pub unit: String,
    /// What kind of value it is, such as a ratio.
    pub kind: MetricKind,
    /// A description in one line.
    pub title: String,
    /// Formula, source and every caveat.
    pub help: String,
    /// Whether this machine counts it.
    pub availability: Availability,
}

/// Metrics that apply to `machine`, and metrics of perf's JSON files that could not be loaded. Each
/// metric is planned alone, so that none takes the counters of another. `permitted`: this process
/// may open counters.
pub(super) fn items(
    catalogue: &Catalogue,
    machine: &Hardware,
    pmus: &Pmus,
    capacity: &Capacity,
    permitted: bool,
) -> Vec<MetricItem> {
    let item = |metric: &Metric| MetricItem {
        name: metric.name.clone(),
        aliases: metric.aliases.clone(),
        group: metric.group.clone(),
        unit: metric.unit.clone(),
        kind: metric.kind,
        title: metric.title.clone(),
        help: metric.help(),
        availability: match refusal(metric, machine, pmus, capacity) {
            Some(reason) => Availability::NotHere(reason),
            None if permitted => Availability::Here,
            None => Availability::Untried("not tried: that needs CAP_PERFMON, or root".to_owned()),
        },
    };
    let refused = catalogue.refused().iter().map(|refused| MetricItem {
        name: refused.name.clone(),
        aliases: Vec::new(),
        group: refused.group.clone(),
        unit: String::new(),
        kind: MetricKind::Ratio,
        title: refused.title.clone(),
        help: format!("{}\nSource: {}", refused.title, refused.source),
        availability: Availability::NotHere(refused.reason.clone()),
    });
    let here = catalogue.on(machine).into_iter().map(item);
    here.chain(refused).collect()
}

/// Why this machine cannot count a metric; None if it can.
fn refusal(
    metric: &Metric,
    machine: &Hardware,
    pmus: &Pmus,
    capacity: &Capacity,
) -> Option<String> {
    let request = ResolvedRequest {
        events: &[],
        metrics: &[metric],
        offered: &[],
        machine: *machine,
        cpus: 1,
        settings: MetricSettings::default(),
    };
    match Plan::packed(&request, pmus, capacity) {
        Ok(plan) => plan
            .metrics
            .list
            .into_iter()
            .find_map(|planned| planned.sources.err()),
        Err(error) => Some(error.to_string()),
    }
}
