//! Converts SPE's timestamps, which are ticks of the generic timer, to the kernel's
//! `CLOCK_MONOTONIC`.

use probe_common::spe::SpeClock;

use crate::{
    session::KernelClock,
    sys::clock::{at_one_moment, nanos, timer, timer_frequency},
};

/// The kernel's clock and the timer, read at one moment, and their measured ratio.
pub(crate) struct TimerClock {
    kernel: KernelClock,
    pub(crate) current: SpeClock,
    /// Ticks and nanoseconds from which on the ratio is measured. It is more exact over a longer
    /// time.
    reference: (u64, u64),
    /// Which of the two slots in the programs' map holds `current`.
    pub(crate) slot: u32,
}

/// Nanoseconds after which the measured ratio is better than the timer's stated frequency.
const MIN_MEASURED_NANOS: u64 = 1_000_000_000;

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
            reference: (ticks, nanos),
            slot: 0,
        }
    }

    /// Reads both clocks again. The result is for the slot in the programs' map that is not in use.
    pub(crate) fn recalibrate(&mut self) {
        let (nanos, ticks) = read_clocks(self.kernel);
        let (reference_ticks, reference_nanos) = self.reference;
        let (elapsed_ticks, elapsed_nanos) = (
            ticks.saturating_sub(reference_ticks),
            nanos.saturating_sub(reference_nanos),
        );
        if elapsed_nanos > MIN_MEASURED_NANOS && elapsed_ticks > 0 {
            let mult = (u128::from(elapsed_nanos) << SpeClock::SHIFT) / u128::from(elapsed_ticks);
            self.current.mult = u64::try_from(mult).unwrap_or(self.current.mult);
        }
        self.current.ticks = ticks;
        self.current.nanos = nanos;
        self.slot ^= 1;
        // The kernel adjusts its clock, so the ratio must cover only the last minutes.
        if elapsed_nanos > 300 * MIN_MEASURED_NANOS {
            self.reference = (ticks, nanos);
        }
    }
}

/// Nanoseconds of the kernel's clock and ticks of the timer.
fn read_clocks(kernel: KernelClock) -> (u64, u64) {
    let nanos = || nanos(kernel.now());
    // Only Arm has this timer. Elsewhere only a test PMU is sampled, with timestamps of
    // `CLOCK_MONOTONIC`.
    at_one_moment(nanos, || timer().unwrap_or_else(nanos))
}
