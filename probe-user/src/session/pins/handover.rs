//! Handover from an ended process. The counters of that process cannot be reached: on each CPU this
//! process replaces them by its own, as at an exchange of rotated groups.

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
    /// Times of the maps, which a pinned map stores.
    times: ProgramClock,
    /// In a handover, by CPU: the programs' time of the last reading of the old counters.
    stopped: Option<BTreeMap<u32, u64>>,
}

impl Handover {
    /// Reads the times of the maps, and begins a handover if the maps are those of an earlier
    /// process (`resumes`). Returns when counting into the maps began, by this process's clock.
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

    /// Charges the last deltas of a CPU's old counters, and stops counting on it, in a handover.
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
        // A process that was killed during a handover has stopped this CPU already: the gap began
        // then.
        if before.is_none_or(|state| state.armed != 0) {
            flush::run(object, cpu, FlushMode::Disarm, (NO_GROUP, 0), false)?;
        }
        let read = state(object)?.map_or(0, |state| state.read);
        stopped.insert(cpu, read);
        Ok(())
    }

    /// Stores at once how long a CPU did not count: from the last reading of its old counters to
    /// the first of its new ones. This process may be killed before its start is complete.
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
        // A CPU that was never read has no gap: it has counted nothing yet.
        let stopped = stopped.get(&cpu).filter(|stopped| **stopped > 0);
        self.times.gap += stopped.map_or(0, |stopped| read.saturating_sub(*stopped));
        object.maps.clock.set(0, &self.times)
    }

    /// Ends a handover: this session counts now.
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

    /// Stores when the maps were last read, for the next process.
    pub(crate) fn store_pull_time(
        &mut self,
        object: &mut EbpfObject,
        at: u64,
    ) -> Result<(), SessionError> {
        self.times.pulled = at;
        object.maps.clock.set(0, &self.times)
    }

    /// Handovers of these maps so far, with the time not counted and the time unattended.
    pub(crate) fn counts(&self) -> HandedOver {
        HandedOver {
            times: self.times.handovers,
            gap: self.times.gap,
            unattended: self.times.unattended,
        }
    }
}
