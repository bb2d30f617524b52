//! Plans of the catalogue's metrics on this guest's PMUs.

use std::path::Path;

use probe_user::{
    catalogue::{Catalogue, Hardware, Metric, MetricSettings},
    machine::Pmus,
    plan::{Capacity, Plan, ResolvedRequest},
};
use test_harness::online;

/// The plan of `stat -M METRICS`.
pub(crate) fn metric_plan(machine: Hardware, metrics: &[&Metric]) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let capacity = Capacity::of_this_machine(&catalogue, &machine, &pmus, online(), 1);
    let request = ResolvedRequest {
        events: &[],
        metrics,
        offered: &[],
        machine,
        cpus: online().len(),
        settings: MetricSettings::default(),
    };
    Plan::packed(&request, &pmus, &capacity).unwrap()
}
