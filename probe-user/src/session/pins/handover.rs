//! Handover from an ended process. Its counters cannot be reached: on each CPU this process
//! replaces them by its own, as at an exchange of rotated groups.

use std::collections::BTreeMap;

use probe_common::{CpuState, FlushMode, NO_GROUP};

use super::Continuity;
use crate::{
    session::{EbpfObject, Session, SessionError, flush},
    snapshot::{HandedOver, Refused},
    sys::clock::nanos,
};

/// A handover in progress.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// By CPU: the programs' time of the last reading of the old counters.
    stopped: BTreeMap<u32, u64>,
}

impl Handover {
    /// Charges the last deltas of a CPU's old counters, and stops counting on it.
    pub(crate) fn stop(&mut self, object: &mut EbpfObject, cpu: u32) -> Result<(), SessionError> {
        if self.stopped.contains_key(&cpu) {
            return Ok(());
        }
        let state = |object: &EbpfObject| -> Result<Option<CpuState>, SessionError> {
            Ok(object.maps.state.get(0)?.get(&cpu).copied())
        };
        let before = state(object)?;
        // A process that was killed during a handover has stopped it already: the gap began then.
        if before.is_none_or(|state| state.armed != 0) {
            // The running group stays.
            let live = before.map_or((NO_GROUP, 0), |state| (state.live, state.live_events));
            flush::run(object, cpu, FlushMode::Charge, live, false)?;
            flush::run(object, cpu, FlushMode::Disarm, (NO_GROUP, 0), false)?;
        }
        let read = state(object)?.map_or(0, |state| state.read);
        self.stopped.insert(cpu, read);
        Ok(())
    }

    /// Nanoseconds from the last reading of a CPU's old counters to the first of its new ones.
    fn gap(&self, object: &EbpfObject, cpu: u32) -> Result<u64, SessionError> {
        let states = object.maps.state.get(0)?;
        let read = states.get(&cpu).map_or(0, |state| state.read);
        // A CPU that was never read has no gap: it has counted nothing yet.
        let stopped = self.stopped.get(&cpu).filter(|stopped| **stopped > 0);
        Ok(stopped.map_or(0, |stopped| read.saturating_sub(*stopped)))
    }
}

impl Session {
    /// Whether this session is new or continues an earlier one.
    #[must_use]
    pub fn continuity(&self) -> Continuity {
        self.pins
            .as_ref()
            .map_or(Continuity::New, |pins| pins.continuity)
    }

    /// Keeps the pins of this session when it ends. Its programs continue counting, and the next
    /// session with the same plan takes them over.
    pub fn keep_pins(&mut self) {
        if let Some(pins) = &mut self.pins {
            pins.keep();
        }
    }

    /// Handovers of these maps so far, with the time not counted and the time unattended; None in a
    /// session without pins.
    pub(crate) fn handed_over(&self) -> Option<HandedOver> {
        self.pins.as_ref()?;
        Some(HandedOver {
            times: self.times.handovers,
            gap: self.times.gap,
            unattended: self.times.unattended,
        })
    }

    /// Stops every CPU before its programs are replaced by those of this build.
    pub(crate) fn stop_for_handover(&mut self) -> Result<(), SessionError> {
        let Some(handover) = &mut self.handover else {
            return Ok(());
        };
        let mut cpus = self.counters.iter();
        cpus.try_for_each(|counters| handover.stop(&mut self.object, counters.cpu))
    }

    /// Stops a CPU before its counters are replaced, during a handover.
    pub(crate) fn stop_before_arm(&mut self, cpu: u32) -> Result<(), SessionError> {
        match &mut self.handover {
            Some(handover) => handover.stop(&mut self.object, cpu),
            None => Ok(()),
        }
    }

    /// Stores at once for how long a CPU did not count: this process may be killed before its start
    /// is complete.
    pub(crate) fn store_gap(&mut self, cpu: u32) -> Result<(), SessionError> {
        let Some(handover) = &self.handover else {
            return Ok(());
        };
        self.times.gap += handover.gap(&self.object, cpu)?;
        self.object.maps.clock.set(0, &self.times)
    }

    /// Completes the pins once this session counts, and sets the times of its maps.
    pub(crate) fn complete_pins(&mut self) -> Result<(), SessionError> {
        let now = nanos(self.clock.now());
        if self.handover.take().is_some() {
            let unattended = now.saturating_sub(self.times.pulled);
            self.times.handovers += 1;
            self.times.unattended += unattended;
            // Rows that were refused to the earlier process are not reported again.
            self.refused = Refused::from_counts(&self.sum_of_counts()?);
            tracing::info!(
                "took over the counts of an earlier process, which had read them {} ms ago; so far \
                 {} us of CPU time were counted for nobody at such handovers",
                unattended / 1_000_000,
                self.times.gap / 1000
            );
        }
        let Some(pins) = &mut self.pins else {
            return Ok(());
        };
        pins.complete()?;
        let directory = pins.directory();
        self.object.programs.set_pin_directory(&directory);
        self.store_pull_time(now)
    }

    /// Stores when the maps were last read, for the next process.
    pub(crate) fn store_pull_time(&mut self, at: u64) -> Result<(), SessionError> {
        if self.pins.is_none() {
            return Ok(());
        }
        self.times.pulled = at;
        self.object.maps.clock.set(0, &self.times)
    }
}
