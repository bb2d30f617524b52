//! Adjusts, in each round, the periods of events whose period the kernel does not adapt to their
//! frequency ([`FixedPeriod`]).

use std::os::fd::AsFd as _;

use super::open::Buffer;
use crate::{
    session::sampling::FixedPeriod,
    sys::{
        clock::{nanos, now},
        perf,
    },
};

/// Period control of one event of a buffer.
pub(super) struct PeriodControl {
    /// Index into [`Buffer::sampling_events`].
    event: usize,
    fixed_period: FixedPeriod,
    /// The event's count when it was last read, and the time of that (ns of `CLOCK_MONOTONIC`);
    /// None before the first round.
    last: Option<(u64, u64)>,
}

impl PeriodControl {
    pub(super) const fn new(event: usize, fixed_period: FixedPeriod) -> Self {
        Self {
            event,
            fixed_period,
            last: None,
        }
    }
}

impl Buffer {
    /// Changes the period of events that sample too often or too seldom. Skips events that cannot
    /// be read because their CPU went offline.
    pub(super) fn adjust_periods(&mut self) {
        for control in &mut self.period_controls {
            let event = self.sampling_events[control.event].as_fd();
            let Some(counted) = perf::counted(event) else {
                continue;
            };
            let at = nanos(now());
            let Some(last) = control.last.replace((counted, at)) else {
                continue;
            };
            let gained = counted.saturating_sub(last.0);
            if let Some(period) = control
                .fixed_period
                .adjust(gained, at.saturating_sub(last.1))
            {
                let _gone = perf::set_period(event, period);
            }
        }
    }
}
