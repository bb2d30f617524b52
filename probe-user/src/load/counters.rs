//! The counters of every CPU, opened and put where the programs find them.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{Ebpf, maps::Map};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{LoadError, Plan, Planned};
use crate::sys::{bpf, perf};

/// The counters of one CPU, one per slot; closing them ends the counting there.
pub(crate) struct CpuCounters {
    pub(crate) cpu: u32,
    pub(crate) slots: Vec<OwnedFd>,
}

/// Opens every counter of the plan on one CPU.
pub(crate) fn open(plan: &Plan, cpu: u32) -> Result<CpuCounters, LoadError> {
    let mut slots: Vec<OwnedFd> = Vec::new();
    for group in &plan.groups {
        let leader = slots.len();
        for planned in group {
            let event = perf::open(
                &planned.counter,
                planned.exclude,
                cpu,
                slots.get(leader).map(|fd| fd.as_fd()),
            )
            .map_err(|error| refused(plan, planned, cpu, &error))?;
            slots.push(event);
        }
        if let (Some(event), Some(planned)) = (slots.get(leader), group.first()) {
            perf::enable(event.as_fd()).map_err(|error| refused(plan, planned, cpu, &error))?;
        }
    }
    Ok(CpuCounters { cpu, slots })
}

/// Puts the counters of a CPU into the slots' maps.
pub(crate) fn insert(ebpf: &Ebpf, counters: &CpuCounters) -> Result<(), LoadError> {
    for (slot, event) in counters.slots.iter().enumerate() {
        let name = format!("COUNTER{slot}");
        let Some(Map::PerfEventArray(map)) = ebpf.map(&name) else {
            return Err(LoadError::Bpf {
                what: format!("map {name}"),
                reason: "the object has none".into(),
            });
        };
        bpf::set_perf_event(map.fd().as_fd(), counters.cpu, event.as_fd()).map_err(|source| {
            LoadError::Map {
                what: "hand a counter to the programs",
                source,
            }
        })?;
    }
    Ok(())
}

/// Events x CPUs descriptors are needed, whatever the number of containers: take what the hard limit gives.
pub(crate) fn allow_descriptors(needed: usize) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.current.unwrap_or(u64::MAX).max(needed as u64 + 256);
    let current = Some(limit.maximum.map_or(wanted, |maximum| wanted.min(maximum)));
    // Where this fails, opening fails with EMFILE and says what to do.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current,
            maximum: limit.maximum,
        },
    );
}

/// What the kernel means by refusing an event.
pub(crate) fn refused(plan: &Plan, planned: &Planned, cpu: u32, error: &io::Error) -> LoadError {
    let event = plan.columns[planned.column].name.clone();
    let reason = match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
            "this machine's PMU does not count it (a virtual machine may have no PMU at all); \
             software events such as task-clock and page-faults count everywhere"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let level =
                level.map_or_else(|_| "unknown".to_owned(), |value| value.trim().to_owned());
            format!(
                "permission denied: CAP_PERFMON is needed to count all tasks of a CPU, and where \
                 kernel.perf_event_paranoid is above 2 (here {level}) some distributions' kernels want \
                 CAP_SYS_ADMIN instead: `sysctl kernel.perf_event_paranoid=2`"
            )
        }
        Some(libc::EINVAL) => "the PMU takes no such event, or not with the others of its group: \
             try it alone, and fewer events between the braces"
            .to_owned(),
        Some(libc::EMFILE) => format!(
            "too many open files: {} events on every CPU need one descriptor each; raise the limit with `ulimit -n`",
            plan.slots().count()
        ),
        Some(libc::EBUSY) => "the PMU is in exclusive use by another program".to_owned(),
        _ => error.to_string(),
    };
    LoadError::Open { event, cpu, reason }
}
