//! The clock of SPE's timestamps, the generic timer, beside the kernel's `CLOCK_MONOTONIC`.

use probe_common::spe::SpeClock;

use crate::session::KernelClock;

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
        let (ticks, nanos) = both(kernel);
        Self {
            kernel,
            current: SpeClock {
                ticks,
                nanos,
                mult: (1_000_000_000 << SpeClock::SHIFT) / frequency(),
            },
            first: (ticks, nanos),
            slot: 0,
        }
    }

    /// Takes both clocks anew, for the other of the kernel's two places.
    pub(crate) fn again(&mut self) {
        let (ticks, nanos) = both(self.kernel);
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

/// Both clocks: the closest of a few readings.
fn both(kernel: KernelClock) -> (u64, u64) {
    let nanos = || u64::try_from(kernel.now().as_nanos()).unwrap_or(u64::MAX);
    let read = |_| {
        let before = nanos();
        let ticks = ticks(kernel);
        let after = nanos();
        (after - before, ticks, before + (after - before) / 2)
    };
    let closest = (0..8).map(read).min_by_key(|(distance, ..)| *distance);
    closest.map_or((0, 0), |(_, ticks, nanos)| (ticks, nanos))
}

/// The virtual count of the generic timer, which SPE stamps with (`pct_enable` off).
#[cfg(target_arch = "aarch64")]
fn ticks(_: KernelClock) -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter that Linux lets user space read.
    unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks) };
    ticks
}

#[cfg(target_arch = "aarch64")]
fn frequency() -> u64 {
    let frequency: u64;
    // SAFETY: as above.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency) };
    frequency.max(1)
}

/// Other architectures have no SPE. The test PMU stamps with `CLOCK_MONOTONIC` there.
#[cfg(not(target_arch = "aarch64"))]
fn ticks(kernel: KernelClock) -> u64 {
    u64::try_from(kernel.now().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(not(target_arch = "aarch64"))]
fn frequency() -> u64 {
    1_000_000_000
}
