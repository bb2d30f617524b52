//! Plans of the catalogue's metrics on this guest's PMUs.

use std::path::Path;

use probe_user::{
    catalogue::{Catalogue, Hardware, Metric, Settings},
    machine::Pmus,
    plan::{Capacity, Plan, Request},
};

use crate::support::online;

/// What `stat -M METRICS` counts, where they fit.
pub(crate) fn plan_of(machine: Hardware, metrics: &[&Metric]) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let capacity = Capacity::of_this_machine(&catalogue, &machine, &pmus, online(), 1);
    let request = Request {
        events: &[],
        metrics,
        offered: &[],
        machine,
        cpus: online().len(),
        settings: Settings::default(),
    };
    Plan::packed(&request, &pmus, &capacity).unwrap()
}
