//! Whether resctrl's monitoring is read beside the counters.

use super::Uncore;
use crate::{
    catalogue::Platform,
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
    if told.is_some_and(|told| told.platform == Platform::Grace) {
        tracing::warn!(
            "kernels without the workaround T241-MPAM-6 show a 64th of what Grace's MPAM counted: take resctrl's \
             numbers as a lower bound, or compare them with a load that you know"
        );
    }
    Some(reader)
}
