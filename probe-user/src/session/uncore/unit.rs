//! The counters of one unit of the hardware, read on one CPU.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
};

use super::super::{SessionError, counters};
use crate::{
    plan::Plan,
    sys::perf::{self, CounterReading},
};

/// The counters of a group on one CPU of the cpumask.
pub(super) struct UncoreUnit {
    pub(super) cpu: u32,
    pub(super) counters: Vec<UncoreCounter>,
}

/// One event of a unit.
pub(super) struct UncoreCounter {
    pub(super) event: Option<OwnedFd>,
    /// Total of the earlier events of this counter, which were closed.
    pub(super) base: CounterReading,
    /// Total at the last reading, including `base`.
    pub(super) last: CounterReading,
}

impl UncoreUnit {
    pub(super) fn enable(&self, plan: &Plan, events: &Range<usize>) -> Result<(), SessionError> {
        let Some(leader) = self.counters.first().and_then(|first| first.event.as_ref()) else {
            return Ok(());
        };
        let planned = &plan.uncore[events.start];
        perf::enable(leader.as_fd())
            .map_err(|error| counters::refused(plan, planned, self.cpu, &error))
    }

    /// Enabled time at the last reading, in nanoseconds.
    pub(super) fn enabled(&self) -> u64 {
        self.counters.first().map_or(0, |first| first.last.enabled)
    }

    /// Whether the counters still count, by a reading: the enabled time of a working event always
    /// grows.
    pub(super) fn is_counting(&mut self) -> bool {
        let before = self.enabled();
        self.read().is_ok() && self.enabled() > before
    }

    /// Reads the events a last time and closes them.
    pub(super) fn close(&mut self) {
        // Events that cannot be read any more keep their last reading.
        let _ = self.read();
        for counter in &mut self.counters {
            counter.event = None;
        }
    }

    /// Reads the totals since the session began, and stores them in the counters.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let readings = self.read_now()?;
        for (counter, reading) in self.counters.iter_mut().zip(readings) {
            counter.last = reading;
        }
        Ok(())
    }

    /// Reads the totals since the session began, at one moment if the events are one kernel group.
    pub(super) fn read_now(&self) -> io::Result<Vec<CounterReading>> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let leader = self
            .counters
            .first()
            .and_then(|first| first.event.as_ref())
            .ok_or_else(gone)?
            .as_fd();
        let mut readings = perf::read_group(leader, self.counters.len())?;
        for counter in &self.counters[readings.len()..] {
            let event = counter.event.as_ref().ok_or_else(gone)?;
            readings.push(perf::read(event.as_fd())?);
        }
        for (counter, reading) in self.counters.iter().zip(&mut readings) {
            reading.add(counter.base);
        }
        Ok(readings)
    }
}
