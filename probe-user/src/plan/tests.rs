//! Plans for the tests of the stages that follow.

use super::{Capacity, Plan, ResolvedRequest};
use crate::{
    catalogue::{Catalogue, Hardware, MetricSettings},
    machine::Pmus,
};

/// A plan of metrics alone, by the documented counters.
pub(crate) fn of_metrics(metrics: &str, machine: Hardware, pmus: &Pmus, cpus: usize) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let request = ResolvedRequest {
        events: &[],
        metrics: &catalogue.select(metrics, &machine).unwrap(),
        offered: &[],
        machine,
        cpus,
        settings: MetricSettings::default(),
    };
    let capacity = Capacity::documented(&catalogue, &machine, pmus, 0);
    Plan::packed(&request, pmus, &capacity).unwrap()
}
