//! Opens the reader of resctrl's monitoring groups, for sessions that divide memory traffic.

use super::Uncore;
use crate::{
    machine::{Machine, cgroup::Hierarchy, resctrl},
    plan::Plan,
};

/// The reader of resctrl's monitoring groups, if the session divides memory traffic.
pub(super) fn open(
    plan: &Plan,
    machine: &Machine,
    hierarchy: &Hierarchy,
    uncore: &Uncore,
) -> Option<resctrl::Reader> {
    let topology = uncore.topology().filter(|_| !plan.weights.is_empty())?;
    let reader = resctrl::Reader::new(machine, hierarchy, &topology)?;
    let machine = plan.metrics.machine.as_ref();
    if let Some(warning) = machine.and_then(|machine| machine.platform.spec().resctrl.as_ref()) {
        tracing::warn!("{warning}");
    }
    Some(reader)
}
