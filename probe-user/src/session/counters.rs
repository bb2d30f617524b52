//! Opens the counters of each CPU, and puts them into the maps of the programs.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::{EbpfObject, SessionError};
use crate::{
    plan::{Plan, Planned},
    sys::{descriptors, perf},
};

/// The counters of one CPU. Closing them ends the counting on the CPU.
pub(crate) struct CpuCounters {
    pub(crate) cpu: u32,
    /// Open events by group of the plan; empty for a group of another kind of core. A scheduler
    /// event is None: only the programs count it.
    groups: Vec<Vec<Option<OwnedFd>>>,
    /// The multiplexed group that runs; None if no groups are multiplexed.
    pub(crate) running: Option<usize>,
}

impl CpuCounters {
    /// Opens every counter of the plan on one CPU. Groups that are not multiplexed count from here
    /// on.
    pub(crate) fn open(plan: &Plan, cpu: u32) -> Result<Self, SessionError> {
        let mut groups = Vec::with_capacity(plan.groups.len());
        for (at, group) in plan.groups.iter().enumerate() {
            let mut opened: Vec<Option<OwnedFd>> = Vec::new();
            if plan.counts_on(at, cpu) {
                for planned in group {
                    if planned.counter.is_of_scheduler() {
                        opened.push(None);
                        continue;
                    }
                    let leader = leader(&opened);
                    let event = perf::open(&planned.counter.attr(), planned.exclude, cpu, leader)
                        .map_err(|error| refused(plan, planned, cpu, &error))?;
                    opened.push(Some(event));
                }
                if at < plan.fixed()
                    && let Some(leader) = leader(&opened)
                {
                    perf::enable(leader).map_err(|error| refused(plan, &group[0], cpu, &error))?;
                }
            }
            groups.push(opened);
        }
        Ok(Self {
            cpu,
            groups,
            running: None,
        })
    }

    /// Puts the counters of the groups that are not multiplexed into the maps of their slots.
    pub(crate) fn insert_fixed(
        &self,
        object: &EbpfObject,
        plan: &Plan,
    ) -> Result<(), SessionError> {
        self.insert(object, 0, self.groups[..plan.fixed()].iter().flatten())
    }

    /// Puts the counters of a multiplexed group into the slots after those of the fixed groups.
    pub(crate) fn insert_rotated(
        &self,
        object: &EbpfObject,
        plan: &Plan,
        group: usize,
    ) -> Result<(), SessionError> {
        self.insert(object, plan.fixed_slots(), self.groups[group].iter())
    }

    /// Starts a multiplexed group.
    pub(crate) fn start(&self, plan: &Plan, group: usize) -> Result<(), SessionError> {
        leader(&self.groups[group])
            .map_or(Ok(()), perf::enable)
            .map_err(|error| refused(plan, &plan.groups[group][0], self.cpu, &error))
    }

    /// Stops a multiplexed group; its counts stay readable.
    pub(crate) fn stop(&self, group: usize) -> Result<(), SessionError> {
        leader(&self.groups[group])
            .map_or(Ok(()), perf::disable)
            .map_err(|source| SessionError::Map {
                what: "stop a counter group".into(),
                source,
            })
    }

    fn insert<'a>(
        &self,
        object: &EbpfObject,
        first_slot: usize,
        counters: impl Iterator<Item = &'a Option<OwnedFd>>,
    ) -> Result<(), SessionError> {
        for (slot, event) in (first_slot..).zip(counters) {
            if let Some(event) = event {
                object.maps.counters.set(slot, self.cpu, event.as_fd())?;
            }
        }
        Ok(())
    }
}

/// The first event of a group, which leads it; None if the group has only scheduler events.
fn leader(group: &[Option<OwnedFd>]) -> Option<BorrowedFd<'_>> {
    group.iter().flatten().next().map(|event| event.as_fd())
}

/// The error for an event that the kernel refused, with its meaning.
pub(crate) fn refused(plan: &Plan, planned: &Planned, cpu: u32, error: &io::Error) -> SessionError {
    let event = plan.columns[planned.column].name.clone();
    let reason = match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
            "this machine's PMU does not count it (a virtual machine may have no PMU at all); \
             software events such as task-clock and page-faults count everywhere"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            let level = perf::paranoid().unwrap_or_else(|| "unknown".to_owned());
            format!(
                "permission denied: CAP_PERFMON is needed to count all tasks of a CPU, and where \
                 kernel.perf_event_paranoid is above 2 (here {level}) some distributions' kernels \
                 want CAP_SYS_ADMIN instead: `sysctl kernel.perf_event_paranoid=2`"
            )
        }
        Some(libc::EINVAL) => "the PMU takes no such event, or not with the others of its group: \
             try it alone, and fewer events between the braces"
            .to_owned(),
        Some(libc::EBUSY) => "the PMU is in exclusive use by another program".to_owned(),
        errno => descriptors::exhausted(errno).unwrap_or_else(|| error.to_string()),
    };
    SessionError::Open { event, cpu, reason }
}
