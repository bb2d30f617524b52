//! Holds the frequency of events whose period the kernel leaves as it is ([`Held`]), with each round.

use std::os::fd::AsFd as _;

use super::open::Buffer;
use crate::{
    session::sampling::Held,
    sys::{
        clock::{nanos, now},
        perf,
    },
};

/// An event of a buffer that is held.
pub(super) struct Holder {
    /// Index into [`Buffer::spe`].
    event: usize,
    held: Held,
    /// What it had counted at a time, in nanoseconds; none before the first round.
    before: Option<(u64, u64)>,
}

impl Holder {
    pub(super) const fn new(event: usize, held: Held) -> Self {
        Self {
            event,
            held,
            before: None,
        }
    }
}

impl Buffer {
    /// Gives events another period where they sample too often, or too seldom. Of an event whose
    /// CPU is gone the period does not matter.
    pub(super) fn hold(&mut self) {
        for holder in &mut self.held {
            let event = self.spe[holder.event].as_fd();
            let Some(counted) = perf::counted(event) else {
                continue;
            };
            let at = nanos(now());
            let Some(before) = holder.before.replace((counted, at)) else {
                continue;
            };
            let gained = counted.saturating_sub(before.0);
            if let Some(period) = holder.held.step(gained, at.saturating_sub(before.1)) {
                let _gone = perf::set_period(event, period);
            }
        }
    }
}
