//! Whether resctrl's monitoring is read beside the counters.

use std::path::Path;

use super::Uncore;
use crate::{
    catalogue::Platform,
    machine::{cgroup::Hierarchy, resctrl},
    plan::Plan,
};

/// The groups that resctrl monitors, where a session shares out memory traffic.
pub(super) fn open(
    plan: &Plan,
    sysfs: &Path,
    hierarchy: &Hierarchy,
    uncore: &Uncore,
) -> Option<resctrl::Reader> {
    let topology = uncore.topology().filter(|_| !plan.weights.is_empty())?;
    let reader = resctrl::Reader::new(sysfs, Path::new("/proc"), hierarchy, &topology)?;
    let machine = plan.metrics.machine.as_ref();
    if machine.is_some_and(|machine| machine.platform == Platform::Grace) {
        tracing::warn!(
            "kernels without the workaround T241-MPAM-6 show a 64th of what Grace's MPAM counted: take resctrl's \
             numbers as a lower bound, or compare them with a load that you know"
        );
    }
    Some(reader)
}
