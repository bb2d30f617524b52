//! The clock of SPE's timestamps, the generic timer, beside the kernel's `CLOCK_MONOTONIC`.

use probe_common::spe::SpeClock;

use crate::{
    session::KernelClock,
    sys::clock::{at_one_moment, nanos, timer, timer_frequency},
};

/// Both clocks at one moment, and their ratio as it was measured.
pub(crate) struct Clock {
    kernel: KernelClock,
    pub(crate) current: SpeClock,
    /// The first calibration: over the longer time the ratio is more exact.
    first: (u64, u64),
    /// Which of the kernel's two places holds `current`.
    pub(crate) slot: u32,
}

/// Time that the ratio needs to be better than the timer's stated frequency, in ns.
const LONG_ENOUGH: u64 = 1_000_000_000;

impl Clock {
    pub(crate) fn calibrate(kernel: KernelClock) -> Self {
        let (nanos, ticks) = both(kernel);
        Self {
            kernel,
            current: SpeClock {
                ticks,
                nanos,
                mult: (1_000_000_000 << SpeClock::SHIFT)
                    / timer_frequency().unwrap_or(1_000_000_000),
            },
            first: (ticks, nanos),
            slot: 0,
        }
    }

    /// Reads both clocks again, for the other of the kernel's two places.
    pub(crate) fn again(&mut self) {
        let (nanos, ticks) = both(self.kernel);
        let (first_ticks, first_nanos) = self.first;
        let (gone, passed) = (
            ticks.saturating_sub(first_ticks),
            nanos.saturating_sub(first_nanos),
        );
        if passed > LONG_ENOUGH && gone > 0 {
            let mult = (u128::from(passed) << SpeClock::SHIFT) / u128::from(gone);
            self.current.mult = u64::try_from(mult).unwrap_or(self.current.mult);
        }
        self.current.ticks = ticks;
        self.current.nanos = nanos;
        self.slot ^= 1;
        // The kernel adjusts its clock: a ratio of the last minutes follows.
        if passed > 300 * LONG_ENOUGH {
            self.first = (ticks, nanos);
        }
    }
}

/// Nanoseconds of the kernel's clock and ticks of the timer.
fn both(kernel: KernelClock) -> (u64, u64) {
    let nanos = || nanos(kernel.now());
    // Other architectures have no SPE. The test PMU stamps with `CLOCK_MONOTONIC` there.
    at_one_moment(nanos, || timer().unwrap_or_else(nanos))
}
