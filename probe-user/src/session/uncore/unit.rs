//! The counters of one unit of the hardware, read on one CPU.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
};

use super::super::{SessionError, counters};
use crate::{
    plan::Plan,
    sys::perf::{self, Reading},
};

/// A group on one CPU of the cpumask.
pub(super) struct Unit {
    pub(super) cpu: u32,
    pub(super) counters: Vec<Counter>,
}

/// One event of it.
pub(super) struct Counter {
    pub(super) event: Option<OwnedFd>,
    /// What was counted before the event was opened again.
    pub(super) base: Reading,
    pub(super) last: Reading,
}

impl Unit {
    pub(super) fn enable(&self, plan: &Plan, events: &Range<usize>) -> Result<(), SessionError> {
        let Some(leader) = self.counters.first().and_then(|first| first.event.as_ref()) else {
            return Ok(());
        };
        let planned = &plan.uncore[events.start];
        perf::enable(leader.as_fd())
            .map_err(|error| counters::refused(plan, planned, self.cpu, &error))
    }

    /// For how long it was enabled when it was last read.
    pub(super) fn enabled(&self) -> u64 {
        self.counters.first().map_or(0, |first| first.last.enabled)
    }

    /// Whether its counters still count: the enabled time of an event of the kernel's always grows.
    pub(super) fn lives(&mut self) -> bool {
        let before = self.enabled();
        self.read().is_ok() && self.enabled() > before
    }

    /// Reads for the last time and closes the events.
    pub(super) fn end(&mut self) {
        // Events that cannot be read any more keep what they were last read to hold.
        let _ = self.read();
        for counter in &mut self.counters {
            counter.event = None;
        }
    }

    /// Reads all that was counted since the session began.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let readings = self.now()?;
        for (counter, reading) in self.counters.iter_mut().zip(readings) {
            counter.last = reading;
        }
        Ok(())
    }

    /// What its counters hold at one moment, where they are a group of the kernel's.
    pub(super) fn now(&self) -> io::Result<Vec<Reading>> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let leader = self.counters.first().and_then(|first| first.event.as_ref());
        let leader = leader.ok_or_else(gone)?.as_fd();
        let mut readings = perf::read_group(leader, self.counters.len())?;
        for counter in &self.counters[readings.len()..] {
            let event = counter.event.as_ref().ok_or_else(gone)?;
            readings.push(perf::read(event.as_fd())?);
        }
        for (counter, reading) in self.counters.iter().zip(&mut readings) {
            reading.count += counter.base.count;
            reading.enabled += counter.base.enabled;
            reading.running += counter.base.running;
        }
        Ok(readings)
    }
}
