//! Converts SPE's timestamps, which are ticks of the generic timer, to the kernel's
//! `CLOCK_MONOTONIC`.

use probe_common::spe::SpeClock;

use crate::{
    session::KernelClock,
    sys::clock::{at_one_moment, nanos, timer, timer_frequency},
};

/// Both clocks at one moment, and their measured ratio.
pub(crate) struct TimerClock {
    kernel: KernelClock,
    pub(crate) current: SpeClock,
    /// Ticks and nanoseconds of the reference calibration: over a longer time the ratio is more
    /// exact.
    first: (u64, u64),
    /// Which of the two slots in the programs' map holds `current`.
    pub(crate) slot: u32,
}

/// Nanoseconds after which the measured ratio is better than the timer's stated frequency.
const LONG_ENOUGH: u64 = 1_000_000_000;

impl TimerClock {
    pub(crate) fn calibrate(kernel: KernelClock) -> Self {
        let (nanos, ticks) = read_clocks(kernel);
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

    /// Reads both clocks again, for the other one of the two slots in the programs' map.
    pub(crate) fn recalibrate(&mut self) {
        let (nanos, ticks) = read_clocks(self.kernel);
        let (first_ticks, first_nanos) = self.first;
        let (elapsed_ticks, elapsed_nanos) = (
            ticks.saturating_sub(first_ticks),
            nanos.saturating_sub(first_nanos),
        );
        if elapsed_nanos > LONG_ENOUGH && elapsed_ticks > 0 {
            let mult = (u128::from(elapsed_nanos) << SpeClock::SHIFT) / u128::from(elapsed_ticks);
            self.current.mult = u64::try_from(mult).unwrap_or(self.current.mult);
        }
        self.current.ticks = ticks;
        self.current.nanos = nanos;
        self.slot ^= 1;
        // The kernel adjusts its clock, so the ratio covers only the last minutes.
        if elapsed_nanos > 300 * LONG_ENOUGH {
            self.first = (ticks, nanos);
        }
    }
}

/// Nanoseconds of the kernel's clock and ticks of the timer.
fn read_clocks(kernel: KernelClock) -> (u64, u64) {
    let nanos = || nanos(kernel.now());
    // Other architectures have no SPE. On these the test PMU's timestamps are `CLOCK_MONOTONIC`.
    at_one_moment(nanos, || timer().unwrap_or_else(nanos))
}
