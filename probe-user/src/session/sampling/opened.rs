//! An event that is open on a CPU, and what it does there.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use super::Held;
use crate::{
    event::sampling::{Rate, SampledEvent},
    sys::perf::{self, Overflows},
};

/// An event on a CPU; closing it ends the sampling there.
pub(crate) struct OpenEvent {
    pub(crate) cpu: u32,
    /// Index into [`super::SamplingConfig::events`].
    pub(crate) event: usize,
    // Before the event: the program is taken off it first.
    _link: OwnedFd,
    fd: OwnedFd,
    /// Of its group, where it must have one.
    _leader: Option<OwnedFd>,
    /// What it had counted when it was read last.
    pub(crate) counted: u64,
    /// Nanoseconds of [`perf::Reading`], as of that time.
    enabled: u64,
    running: u64,
    /// Of an event whose frequency the kernel does not hold.
    held: Option<Held>,
}

/// What an event did on a CPU between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gain {
    /// Not scaled.
    pub(crate) counted: u64,
    /// Nanoseconds for which it was enabled.
    pub(crate) enabled: u64,
    /// Nanoseconds for which it was on the PMU.
    pub(crate) running: u64,
}

impl Gain {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.counted += other.counted;
        self.enabled += other.enabled;
        self.running += other.running;
    }

    /// What each event that was counted stands for, where others took turns with it on the PMU.
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
    /// Event number `event` on a CPU, with the link of its program, and what leads its group.
    pub(super) fn new(
        (event, cpu): (usize, u32),
        link: OwnedFd,
        (fd, leader): (OwnedFd, Option<OwnedFd>),
        held: Option<Held>,
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
            held,
        }
    }

    /// What it did since it was read last. Of an event whose CPU is gone that is nothing.
    pub(crate) fn gained(&mut self) -> Gain {
        let Ok(now) = perf::read(self.fd.as_fd()) else {
            return Gain::default();
        };
        let gained = Gain {
            counted: now.count.saturating_sub(self.counted),
            enabled: now.enabled.saturating_sub(self.enabled),
            running: now.running.saturating_sub(self.running),
        };
        self.counted = now.count;
        (self.enabled, self.running) = (now.enabled, now.running);
        gained
    }

    /// Holds its frequency, by what it did since it was read last. Returns whether another period
    /// has begun.
    pub(crate) fn hold(&mut self, gained: &Gain) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        let period = held.step(gained.counted, gained.running);
        // Of an event whose CPU is gone the period does not matter.
        period.is_some_and(|period| perf::set_period(self.fd.as_fd(), period).is_ok())
    }
}

/// Opens an event on a CPU, with what must lead its group. It is not enabled.
pub(super) fn open(
    event: &SampledEvent,
    rate: Rate,
    cpu: u32,
) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let leader = event.leader.as_ref();
    let leader = leader.map(|it| perf::open(&it.attr(), event.exclude, cpu, None));
    let leader = leader.transpose()?;
    let (rate, by_frequency) = match rate {
        Rate::Period(period) => (period, false),
        Rate::Frequency(frequency) => (frequency, true),
    };
    let overflows = Overflows {
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
