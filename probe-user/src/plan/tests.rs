//! Plans for the tests of the stages that follow.

use super::{Capacity, Plan, Request};
use crate::{
    catalogue::{Catalogue, Hardware, Settings},
    machine::Pmus,
};

/// A plan of metrics alone, by what the documents say of the counters.
pub(crate) fn of_metrics(metrics: &str, machine: Hardware, pmus: &Pmus, cpus: usize) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let request = Request {
        events: &[],
        metrics: &catalogue.select(metrics, &machine).unwrap(),
        offered: &[],
        machine,
        cpus,
        settings: Settings::default(),
    };
    let capacity = Capacity::documented(&catalogue, &machine, pmus, 0);
    Plan::packed(&request, pmus, &capacity).unwrap()
}
