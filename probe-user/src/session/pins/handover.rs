//! Handover from an ended process. The counters of the ended process cannot be reached. So on each
//! CPU this process replaces them by its own, as at an exchange of multiplexed groups.

use std::{collections::BTreeMap, time::Duration};

use probe_common::{CpuState, FlushMode, NO_GROUP, ProgramClock};

use crate::{
    session::{EbpfObject, KernelClock, SessionError, flush},
    snapshot::HandedOver,
    sys::clock::{nanos, now},
};

/// The times of pinned maps, and the handover in progress.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// The times of the pinned maps. A pinned map stores them.
    times: ProgramClock,
    /// By CPU that is stopped: the programs' time of the last reading of its old counters. None
    /// outside of a handover.
    stopped: Option<BTreeMap<u32, u64>>,
}

impl Handover {
    /// Reads the times of the maps, and begins a handover if the maps are those of an earlier
    /// process (`resumes`). Returns the time at which counting into the maps began, by this
    /// process's clock.
    pub(crate) fn begin(
        &mut self,
        object: &EbpfObject,
        clock: KernelClock,
        resumes: bool,
    ) -> Result<Duration, SessionError> {
        self.times = object.maps.clock.get(0)?;
        self.stopped = resumes.then(BTreeMap::new);
        let at = nanos(clock.now());
        if !resumes {
            self.times.began = at;
        }
        let counted = at.saturating_sub(self.times.began);
        Ok(now().saturating_sub(Duration::from_nanos(counted)))
    }

    /// In a handover, charges the last deltas of a CPU's old counters, and stops counting on the
    /// CPU. Does nothing otherwise.
    pub(crate) fn stop(&mut self, object: &mut EbpfObject, cpu: u32) -> Result<(), SessionError> {
        let Some(stopped) = &mut self.stopped else {
            return Ok(());
        };
        if stopped.contains_key(&cpu) {
            return Ok(());
        }
        let state = |object: &EbpfObject| -> Result<Option<CpuState>, SessionError> {
            Ok(object.maps.state.get(0)?.get(&cpu).copied())
        };
        let before = state(object)?;
        // A process that was killed during its handover may have stopped this CPU already. Then the
        // gap began at that stop.
        if before.is_none_or(|state| state.armed != 0) {
            flush::run(object, cpu, FlushMode::Disarm, (NO_GROUP, 0), false)?;
        }
        let read = state(object)?.map_or(0, |state| state.read);
        stopped.insert(cpu, read);
        Ok(())
    }

    /// Stores how long a CPU did not count: from the last reading of its old counters to the first
    /// reading of its new ones. Stores it at once, since this process may be killed before its
    /// start is complete.
    pub(crate) fn store_gap(
        &mut self,
        object: &mut EbpfObject,
        cpu: u32,
    ) -> Result<(), SessionError> {
        let Some(stopped) = &self.stopped else {
            return Ok(());
        };
        let states = object.maps.state.get(0)?;
        let read = states.get(&cpu).map_or(0, |state| state.read);
        // A CPU whose counters were never read had counted nothing, and has no gap.
        let stopped = stopped.get(&cpu).filter(|stopped| **stopped > 0);
        self.times.gap += stopped.map_or(0, |stopped| read.saturating_sub(*stopped));
        object.maps.clock.set(0, &self.times)
    }

    /// Ends a handover, if one is in progress: this session counts now.
    pub(crate) fn end(&mut self, now: u64) {
        if self.stopped.take().is_none() {
            return;
        }
        let unattended = now.saturating_sub(self.times.pulled);
        self.times.handovers += 1;
        self.times.unattended += unattended;
        tracing::info!(
            "took over the counts of an earlier process, which had read them {} ms ago; so far {} \
             us of CPU time were counted for nobody at such handovers",
            unattended / 1_000_000,
            self.times.gap / 1000
        );
    }

    /// Stores the time at which the maps were last read, for the next process.
    pub(crate) fn store_pull_time(
        &mut self,
        object: &mut EbpfObject,
        at: u64,
    ) -> Result<(), SessionError> {
        self.times.pulled = at;
        object.maps.clock.set(0, &self.times)
    }

    /// The handovers of these maps so far, and their gaps.
    pub(crate) fn counts(&self) -> HandedOver {
        HandedOver {
            times: self.times.handovers,
            gap: self.times.gap,
            unattended: self.times.unattended,
        }
    }
}
