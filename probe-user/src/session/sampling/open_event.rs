//! An event that is open on a CPU, and its deltas between readings.

use std::{
    io, mem,
    os::fd::{AsFd as _, OwnedFd},
};

use super::FixedPeriod;
use crate::{
    event::sampling::{Rate, SampledEvent},
    sys::perf::{self, CounterReading, SamplingOptions},
};

/// An event on a CPU. Closing it ends the sampling on the CPU.
pub(crate) struct OpenEvent {
    pub(crate) cpu: u32,
    /// Index into [`super::SamplingConfig::events`].
    pub(crate) event: usize,
    // Declared before `fd`, so that the program is detached before the event is closed.
    _link: OwnedFd,
    fd: OwnedFd,
    /// The event that leads its group, if it needs one.
    _leader: Option<OwnedFd>,
    /// The last reading.
    last: CounterReading,
    /// The control of the period, if the kernel does not maintain the event's frequency.
    fixed_period: Option<FixedPeriod>,
}

impl OpenEvent {
    /// Event number `event` on a CPU, with the link of its program and the leader of its group.
    pub(super) fn new(
        (event, cpu): (usize, u32),
        link: OwnedFd,
        (fd, leader): (OwnedFd, Option<OwnedFd>),
        fixed_period: Option<FixedPeriod>,
    ) -> Self {
        Self {
            cpu,
            event,
            _link: link,
            fd,
            _leader: leader,
            last: CounterReading::default(),
            fixed_period,
        }
    }

    /// Reads the event, and returns the delta since the last reading; zero if its CPU is offline.
    pub(crate) fn read_delta(&mut self) -> CounterReading {
        let Ok(now) = perf::read(self.fd.as_fd()) else {
            return CounterReading::default();
        };
        now.since(mem::replace(&mut self.last, now))
    }

    /// Count at the last reading.
    pub(crate) const fn count(&self) -> u64 {
        self.last.count
    }

    /// Adjusts the period to the event's frequency, by the last delta. Returns whether a new period
    /// has started.
    pub(crate) fn adjust_period(&mut self, delta: CounterReading) -> bool {
        let Some(fixed_period) = &mut self.fixed_period else {
            return false;
        };
        let new_period = fixed_period.adjust(delta.count, delta.running);
        // If the CPU is offline, setting the period fails, which does not matter.
        new_period.is_some_and(|period| perf::set_period(self.fd.as_fd(), period).is_ok())
    }
}

/// Opens an event on a CPU, and the leader of its group, without enabling them.
pub(super) fn open(
    event: &SampledEvent,
    rate: Rate,
    cpu: u32,
) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let leader = event
        .leader
        .as_ref()
        .map(|it| perf::open(&it.attr(), event.exclude, cpu, None))
        .transpose()?;
    let (rate, by_frequency) = match rate {
        Rate::Period(period) => (period, false),
        Rate::Frequency(frequency) => (frequency, true),
    };
    let overflows = SamplingOptions {
        rate,
        by_frequency,
        precise: event.precise,
        weighed: event.counter.is_hardware(),
    };
    let group = leader.as_ref().map(OwnedFd::as_fd);
    let counter = event.counter.attr();
    let fd = perf::open_overflowing(&counter, event.exclude, cpu, overflows, group)?;
    Ok((fd, leader))
}
