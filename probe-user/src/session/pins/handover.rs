//! Taking over from a process that is gone. Its counters cannot be reached: on each CPU they are
//! replaced, as in a turn, by this process' own.

use std::collections::BTreeMap;

use probe_common::{CpuState, FlushMode, NO_GROUP};

use super::Continuity;
use crate::{
    session::{Object, Session, SessionError, flush},
    snapshot::{HandedOver, Refused},
    sys::clock::nanos,
};

/// A handover that is under way.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// By CPU: the programs' time of the last reading of the old counters.
    stopped: BTreeMap<u32, u64>,
}

impl Handover {
    /// Charges what the old counters of a CPU have gained, and stops counting there.
    pub(crate) fn stop(&mut self, object: &mut Object, cpu: u32) -> Result<(), SessionError> {
        if self.stopped.contains_key(&cpu) {
            return Ok(());
        }
        let state = |object: &Object| -> Result<Option<CpuState>, SessionError> {
            Ok(object.maps.state.get(0)?.get(&cpu).copied())
        };
        let before = state(object)?;
        // A process that was killed in a handover has stopped it: its gap began then.
        if before.is_none_or(|state| state.armed != 0) {
            // The group stays what it is.
            let live = before.map_or((NO_GROUP, 0), |state| (state.live, state.live_events));
            flush::run(object, cpu, FlushMode::Charge, live, false)?;
            flush::run(object, cpu, FlushMode::Disarm, (NO_GROUP, 0), false)?;
        }
        let read = state(object)?.map_or(0, |state| state.read);
        self.stopped.insert(cpu, read);
        Ok(())
    }

    /// Nanoseconds from there to the first reading of a CPU's new counters.
    fn gap(&self, object: &Object, cpu: u32) -> Result<u64, SessionError> {
        let states = object.maps.state.get(0)?;
        let read = states.get(&cpu).map_or(0, |state| state.read);
        // A CPU that was never read has counted nothing yet.
        let stopped = self.stopped.get(&cpu).filter(|stopped| **stopped > 0);
        Ok(stopped.map_or(0, |stopped| read.saturating_sub(*stopped)))
    }
}

impl Session {
    /// How this session began.
    #[must_use]
    pub fn continuity(&self) -> Continuity {
        self.pins
            .as_ref()
            .map_or(Continuity::New, |pins| pins.found)
    }

    /// The pins of this session stay when it ends, and programs go on counting: the next session
    /// with the same plan takes them over.
    pub fn keep_pins(&mut self) {
        if let Some(pins) = &mut self.pins {
            pins.keep();
        }
    }

    /// What was not counted between two processes, since counting into these maps began; None in a
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

    /// Stops a CPU before its counters are replaced, where a handover is under way.
    pub(crate) fn stop_before_arm(&mut self, cpu: u32) -> Result<(), SessionError> {
        match &mut self.handover {
            Some(handover) => handover.stop(&mut self.object, cpu),
            None => Ok(()),
        }
    }

    /// Notes at once for how long a CPU stood still: a start may be killed before its end.
    pub(crate) fn note_gap(&mut self, cpu: u32) -> Result<(), SessionError> {
        let Some(handover) = &self.handover else {
            return Ok(());
        };
        self.times.gap += handover.gap(&self.object, cpu)?;
        self.object.maps.clock.set(0, &self.times)
    }

    /// This session counts: the times of its maps are set, and its pins are complete.
    pub(crate) fn settle_pins(&mut self) -> Result<(), SessionError> {
        let now = nanos(self.clock.now());
        if self.handover.take().is_some() {
            let unattended = now.saturating_sub(self.times.pulled);
            self.times.handovers += 1;
            self.times.unattended += unattended;
            // What was refused to the process before is no news.
            self.refused = Refused::of(&self.sum_of_counts()?);
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
        self.object.programs.pins_moved(&directory);
        self.note_pull(now)
    }

    /// Notes for the next process when the maps were read last.
    pub(crate) fn note_pull(&mut self, at: u64) -> Result<(), SessionError> {
        if self.pins.is_none() {
            return Ok(());
        }
        self.times.pulled = at;
        self.object.maps.clock.set(0, &self.times)
    }
}
