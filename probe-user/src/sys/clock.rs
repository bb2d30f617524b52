//! Clocks: the kernel's, and the timer that SPE stamps its records with.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` of this time namespace. Use it only for differences: the clock of the BPF
/// programs is `session::KernelClock`.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::try_from(time).expect("the monotonic clock starts at 0")
}

/// Unix time, by the wall clock.
pub(crate) fn wall() -> Duration {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    wall.unwrap_or_default()
}

/// CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// CPU time of this process.
pub(crate) fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A time in nanoseconds, saturating at 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The virtual count of Arm's generic timer, which SPE records carry if `pct_enable` is off. None
/// on other architectures, which have no SPE.
#[cfg(target_arch = "aarch64")]
#[expect(clippy::unnecessary_wraps, reason = "other architectures have none")]
pub(crate) fn timer() -> Option<u64> {
    let ticks: u64;
    // SAFETY: reads a counter that Linux lets user space read; the barrier keeps the read in its
    // place.
    unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks) };
    Some(ticks)
}

#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn timer() -> Option<u64> {
    None
}

/// Ticks per second of Arm's generic timer, as the firmware states them. None on other
/// architectures.
#[cfg(target_arch = "aarch64")]
#[expect(clippy::unnecessary_wraps, reason = "other architectures have none")]
pub(crate) fn timer_frequency() -> Option<u64> {
    let frequency: u64;
    // SAFETY: as above.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency) };
    Some(frequency.max(1))
}

#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn timer_frequency() -> Option<u64> {
    None
}

/// Time for which the time stamp counter is measured.
#[cfg(target_arch = "x86_64")]
const MEASURING_TIME: Duration = Duration::from_millis(20);

/// Frequency of x86's time stamp counter in Hz, measured by the monotonic clock. None on other
/// architectures.
#[cfg(target_arch = "x86_64")]
pub(crate) fn tsc_frequency() -> Option<f64> {
    // SAFETY: the instruction reads a counter, which Linux lets user space read.
    let tsc = || unsafe { std::arch::x86_64::_rdtsc() };
    let read = || at_one_moment(|| nanos(now()), tsc);
    let (began, first) = read();
    std::thread::sleep(MEASURING_TIME);
    let (ended, last) = read();
    let (time, ticks) = (ended.checked_sub(began)?, last.checked_sub(first)?);
    #[expect(clippy::cast_precision_loss, reason = "some 20 ms")]
    let frequency = ticks as f64 / (time as f64 / 1e9);
    Some(frequency)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn tsc_frequency() -> Option<f64> {
    None
}

/// Number of times that two clocks are read together: several, since an interrupt may separate two
/// readings.
const READINGS: usize = 8;

/// Reads two clocks at one moment: returns `(nanos, other)` of the readings that lie closest
/// together.
pub(crate) fn at_one_moment(nanos: impl Fn() -> u64, other: impl Fn() -> u64) -> (u64, u64) {
    let read = || {
        let before = nanos();
        let other = other();
        let gap = nanos().saturating_sub(before);
        (gap, before + gap / 2, other)
    };
    let mut closest = read();
    for _ in 1..READINGS {
        closest = closest.min(read());
    }
    (closest.1, closest.2)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each reading of `nanos` takes 10 ns, and each reading of `other` 1000 ns if interrupted.
    #[test]
    fn the_closest_of_several_readings_is_used() {
        let (time, reads) = (Cell::new(0), Cell::new(0));
        let nanos = || {
            time.set(time.get() + 10);
            time.get()
        };
        let other = || {
            // Only the third reading is not interrupted.
            reads.set(reads.get() + 1);
            let pause = if reads.get() == 3 { 0 } else { 1000 };
            time.set(time.get() + pause);
            time.get() + 7_000_000
        };
        let (nanos, other) = at_one_moment(nanos, other);
        assert_eq!(reads.get(), READINGS);
        // The result has the middle of two readings of `nanos`, which are 10 ns apart.
        assert_eq!(other - nanos, 7_000_000 - 5);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_time_stamp_counter_has_one_frequency() {
        let [a, b] = [(); 2].map(|()| tsc_frequency().unwrap());
        assert!((a / b - 1.0).abs() < 1e-3 && a > 1e8, "{a} {b}");
    }
}
