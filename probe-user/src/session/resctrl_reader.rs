//! Whether resctrl's monitoring is read beside the counters.

use super::Uncore;
use crate::{
    machine::{Machine, cgroup::Hierarchy, resctrl},
    plan::Plan,
};

/// The groups that resctrl monitors, where a session shares out memory traffic.
pub(super) fn open(
    plan: &Plan,
    machine: &Machine,
    hierarchy: &Hierarchy,
    uncore: &Uncore,
) -> Option<resctrl::Reader> {
    let topology = uncore.topology().filter(|_| !plan.weights.is_empty())?;
    let reader = resctrl::Reader::new(machine, hierarchy, &topology)?;
    let told = plan.metrics.machine.as_ref();
    if let Some(warning) = told.and_then(|told| told.platform.spec().resctrl.as_ref()) {
        tracing::warn!("{warning}");
    }
    Some(reader)
}
