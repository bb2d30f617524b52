//! Errors of sampled events.

use std::io;

use crate::{
    event::sampling::{Rate, SampledEvent},
    sys::{descriptors, perf},
};

/// Why sampling could not start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The kernel refused an event.
    #[error("cannot sample {event} on CPU {cpu}: {reason}")]
    Open {
        /// The event as the user wrote it.
        event: String,
        /// The CPU.
        cpu: u32,
        /// The meaning of the refusal, and what to do.
        reason: String,
    },
}

impl SampleError {
    /// The error for an event that the kernel refused on a CPU.
    pub(super) fn open(event: &SampledEvent, cpu: u32, error: &io::Error) -> Self {
        Self::Open {
            event: event.name.clone(),
            cpu,
            reason: refused(error, event),
        }
    }
}

/// The meaning of the kernel's refusal of an event.
pub(crate) fn refused(error: &io::Error, event: &SampledEvent) -> String {
    match error.raw_os_error() {
        Some(libc::EINVAL) if event.accesses.is_some() => {
            let limit = perf::max_sample_rate()
                .map_or_else(String::new, |limit| format!(" (here {limit})"));
            format!(
                "the kernel takes no samples of memory accesses at this rate: sample them less \
                 often (`--period`, for the agent `spe.frequency`), or raise \
                 kernel.perf_event_max_sample_rate{limit}"
            )
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT) if event.precise > 0 => {
            "the kernel has no precise samples of it at this rate: leave out the letters p (on \
             AMD, IBS samples cycles, r076 and r0C1 precisely, and nothing else)"
                .to_owned()
        }
        Some(libc::EOPNOTSUPP) => "its PMU raises no interrupt when a counter overflows, so the \
             event can only be counted (`pmuscope stat -e`); sample cpu-clock instead"
            .to_owned(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "this machine's PMU does not count it (a virtual machine may have no PMU at all); \
             sample cpu-clock instead"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            let level = perf::paranoid().unwrap_or_else(|| "unknown".to_owned());
            format!(
                "permission denied: CAP_PERFMON is needed to sample all tasks of a CPU and the \
                 kernel's own addresses, and where kernel.perf_event_paranoid is above 2 (here \
                 {level}) some distributions' kernels want CAP_SYS_ADMIN instead: `sysctl \
                 kernel.perf_event_paranoid=2`"
            )
        }
        Some(libc::EINVAL) => match event.rate {
            Rate::Period(period) => format!(
                "the PMU takes no such event, cannot sample it (`pmuscope stat -e` counts it), or \
                 takes no period as short as {period}: give a longer one"
            ),
            Rate::Frequency(rate) => format!(
                "the PMU takes no such event, cannot sample it (`pmuscope stat -e` counts it), or \
                 {rate} samples a second are more than kernel.perf_event_max_sample_rate allows: \
                 give freq= with less"
            ),
        },
        Some(libc::ENODATA) => {
            "the core samples the latency of loads only in a group that another \
             event leads (`mem-loads-aux`), and this machine's sysfs does not name that event: use \
             a newer kernel"
                .to_owned()
        }
        Some(libc::EBUSY) => "the PMU is in exclusive use by another program".to_owned(),
        errno => descriptors::exhausted(errno).unwrap_or_else(|| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::sampling::sampled, machine::Pmus};

    #[test]
    fn the_refusal_of_a_precise_event_names_its_precision() {
        let pmus = Pmus::read(&test_support::sysfs("spr")).unwrap();
        let text = |event: &str, errno| {
            let event = &sampled(event, &pmus, None).unwrap()[0];
            refused(&io::Error::from_raw_os_error(errno), event)
        };
        for errno in [libc::EOPNOTSUPP, libc::EINVAL, libc::ENOENT] {
            assert!(text("cycles:p", errno).contains("leave out the letters p"));
            assert!(!text("cycles", errno).contains("letters p"));
        }
    }
}
