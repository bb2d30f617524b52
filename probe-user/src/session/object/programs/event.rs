//! Programs at perf events: at cgroup switches of CPUs, and at overflows.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};

use aya::programs::{
    PerfEvent,
    perf_event::{PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent},
};

use super::{EbpfPrograms, EventProgram, OverflowProgram, attempts, find, label, refused};
use crate::{session::SessionError, sys::bpf};

/// The attachments of an [`EventProgram`].
pub(crate) struct EventLinks(Vec<PerfEventLinkId>);

impl EbpfPrograms {
    /// Attaches a program to the cgroup switches of these CPUs.
    pub(crate) fn attach_to_cgroup_switches(
        &mut self,
        program: EventProgram,
        cpus: &[u32],
    ) -> Result<EventLinks, SessionError> {
        let refused = |error| refused(label(program.name), &error);
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        attempts::load(|| loaded.load()).map_err(refused)?;
        let attach = |&cpu: &u32| {
            loaded.attach(
                PerfEventConfig::Software(SoftwareEvent::CgroupSwitches),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Period(1),
                false,
            )
        };
        let links: Result<_, _> = cpus.iter().map(attach).collect();
        links.map(EventLinks).map_err(refused)
    }

    /// Detaches a program from its events.
    pub(crate) fn detach(
        &mut self,
        program: EventProgram,
        EventLinks(links): EventLinks,
    ) -> Result<(), SessionError> {
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        links
            .into_iter()
            .try_for_each(|link| loaded.detach(link))
            .map_err(|error| refused(label(program.name), &error))
    }

    /// Loads a program that runs at overflows.
    pub(crate) fn load_at_overflow(
        &mut self,
        program: OverflowProgram,
    ) -> Result<(), SessionError> {
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        attempts::load(|| loaded.load()).map_err(|error| refused(label(program.name), &error))
    }

    /// Attaches a loaded program to the overflows of an event, until the link is closed. The
    /// program gets `cookie` (kernel 5.15).
    pub(crate) fn link(
        &mut self,
        program: OverflowProgram,
        event: BorrowedFd<'_>,
        cookie: u64,
    ) -> Result<OwnedFd, SessionError> {
        let failed = |error: &dyn std::error::Error| refused(label(program.name), error);
        let loaded: &mut PerfEvent = find(&mut self.ebpf, program.name)?;
        let fd = loaded.fd().map_err(|error| failed(&error))?;
        bpf::link_event(fd.as_fd(), event, cookie).map_err(|error| failed(&error))
    }

    /// Number and total duration of a program's runs at overflows while the kernel measured them
    /// (`kernel.bpf_stats_enabled`); None if the program is not loaded.
    pub(crate) fn overflow_stats(&self, program: OverflowProgram) -> Option<(u64, Duration)> {
        let info = self.ebpf.program(program.name)?.info().ok()?;
        Some((info.run_count(), info.run_time()))
    }
}
