//! Programs at perf events: the cgroup switches of CPUs, and overflows.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};

use aya::programs::{
    PerfEvent,
    perf_event::{PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent},
};

use super::{AtEvent, AtOverflow, Programs, find, of, refused};
use crate::{
    session::SessionError,
    sys::{bpf, signals::uninterrupted},
};

/// The attachments of an [`AtEvent`].
pub(crate) struct Links(Vec<PerfEventLinkId>);

impl Programs {
    /// Attaches a program to the cgroup switches of these CPUs.
    pub(crate) fn attach_to_cgroup_switches(
        &mut self,
        program: AtEvent,
        cpus: &[u32],
    ) -> Result<Links, SessionError> {
        let refused = |error| refused(of(program.name), &error);
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        uninterrupted(|| loaded.load()).map_err(refused)?;
        let attach = |&cpu: &u32| {
            loaded.attach(
                PerfEventConfig::Software(SoftwareEvent::CgroupSwitches),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Period(1),
                false,
            )
        };
        let links: Result<_, _> = cpus.iter().map(attach).collect();
        links.map(Links).map_err(refused)
    }

    /// Takes a program off its events.
    pub(crate) fn detach(
        &mut self,
        program: AtEvent,
        Links(links): Links,
    ) -> Result<(), SessionError> {
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        links
            .into_iter()
            .try_for_each(|link| loaded.detach(link))
            .map_err(|error| refused(of(program.name), &error))
    }

    /// Loads a program that runs at overflows.
    pub(crate) fn load_at_overflow(&mut self, program: AtOverflow) -> Result<(), SessionError> {
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        uninterrupted(|| loaded.load()).map_err(|error| refused(of(program.name), &error))
    }

    /// Has a loaded program run at the overflows of an event, until the link is closed. It finds
    /// `cookie` there (kernel 5.15).
    pub(crate) fn link(
        &mut self,
        program: AtOverflow,
        event: BorrowedFd<'_>,
        cookie: u64,
    ) -> Result<OwnedFd, SessionError> {
        let failed = |error: &dyn std::error::Error| refused(of(program.name), error);
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        let fd = loaded.fd().map_err(|error| failed(&error))?;
        bpf::link_event(fd.as_fd(), event, cookie).map_err(|error| failed(&error))
    }

    /// Runs of a program at overflows, and the time that they took, as far as the kernel has
    /// measured (`kernel.bpf_stats_enabled`).
    pub(crate) fn overflow_stats(&self, program: AtOverflow) -> Option<(u64, Duration)> {
        let info = self.ebpf.program(program.name)?.info().ok()?;
        Some((info.run_count(), info.run_time()))
    }
}
