//! Uncore counters: opened once per CPU that the PMU's cpumask lists, shown per socket.

use std::{
    fs,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use super::{LoadError, Plan, counters};
use crate::{event::Scope, sys::perf};

/// One uncore event on one socket.
pub(crate) struct UncoreCounter {
    /// Index into [`Plan::uncore`].
    pub(crate) at: usize,
    /// Physical package of the CPU that the kernel counts it on.
    pub(crate) socket: u32,
    pub(crate) event: OwnedFd,
}

/// Opens every uncore event of the plan.
pub(crate) fn open(plan: &Plan, sysfs: &Path) -> Result<Vec<UncoreCounter>, LoadError> {
    let mut opened = Vec::new();
    for (at, planned) in plan.uncore.iter().enumerate() {
        let Scope::Uncore { cpus } = &planned.counter.scope else {
            continue;
        };
        for cpu in cpus.iter() {
            let event = perf::open(&planned.counter, planned.exclude, cpu, None)
                .and_then(|event| perf::enable(event.as_fd()).map(|()| event))
                .map_err(|error| counters::refused(plan, planned, cpu, &error))?;
            opened.push(UncoreCounter {
                at,
                socket: socket(sysfs, cpu),
                event,
            });
        }
    }
    Ok(opened)
}

/// The physical package of a CPU; 0 where the machine does not tell, which has one.
fn socket(sysfs: &Path, cpu: u32) -> u32 {
    let path = sysfs.join(format!(
        "devices/system/cpu/cpu{cpu}/topology/physical_package_id"
    ));
    // Some virtual machines say -1.
    fs::read_to_string(path)
        .ok()
        .and_then(|id| id.trim().parse().ok())
        .unwrap_or(0)
}
