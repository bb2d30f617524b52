//! An event that is open on a CPU, and its deltas between readings.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use super::FixedPeriod;
use crate::{
    event::sampling::{Rate, SampledEvent},
    sys::perf::{self, SamplingOptions},
};

/// An event on a CPU. Closing it ends the sampling on the CPU.
pub(crate) struct OpenEvent {
    pub(crate) cpu: u32,
    /// Index into [`super::SamplingConfig::events`].
    pub(crate) event: usize,
    // Before the event: the program is detached first.
    _link: OwnedFd,
    fd: OwnedFd,
    /// The leader of its group, if it needs one.
    _leader: Option<OwnedFd>,
    /// Count at the last reading.
    pub(crate) counted: u64,
    /// Nanoseconds enabled at the last reading ([`perf::CounterReading`]).
    enabled: u64,
    /// Nanoseconds on the PMU at the last reading.
    running: u64,
    /// Controls the period of an event whose frequency the kernel does not maintain.
    fixed_period: Option<FixedPeriod>,
}

/// Count and times of an event on a CPU between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventDelta {
    /// The count, not scaled.
    pub(crate) counted: u64,
    /// Nanoseconds for which it was enabled.
    pub(crate) enabled: u64,
    /// Nanoseconds for which it was on the PMU.
    pub(crate) running: u64,
}

impl EventDelta {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.counted += other.counted;
        self.enabled += other.enabled;
        self.running += other.running;
    }

    /// Factor by which the count is scaled if the event was multiplexed on the PMU.
    #[expect(
        clippy::cast_precision_loss,
        reason = "nanoseconds between two readings"
    )]
    pub(crate) fn scale(&self) -> f64 {
        match self.running {
            0 => 1.0,
            running => self.enabled.max(running) as f64 / running as f64,
        }
    }
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
            counted: 0,
            enabled: 0,
            running: 0,
            fixed_period,
        }
    }

    /// Reads the event, and returns the delta since the last reading; zero if its CPU is offline.
    pub(crate) fn read_delta(&mut self) -> EventDelta {
        let Ok(now) = perf::read(self.fd.as_fd()) else {
            return EventDelta::default();
        };
        let delta = EventDelta {
            counted: now.count.saturating_sub(self.counted),
            enabled: now.enabled.saturating_sub(self.enabled),
            running: now.running.saturating_sub(self.running),
        };
        self.counted = now.count;
        (self.enabled, self.running) = (now.enabled, now.running);
        delta
    }

    /// Adjusts the period to its frequency, by the last delta. Returns whether a new period has
    /// started.
    pub(crate) fn adjust_period(&mut self, delta: &EventDelta) -> bool {
        let Some(fixed_period) = &mut self.fixed_period else {
            return false;
        };
        let period = fixed_period.adjust(delta.counted, delta.running);
        // If the CPU is offline the period does not matter.
        period.is_some_and(|period| perf::set_period(self.fd.as_fd(), period).is_ok())
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
