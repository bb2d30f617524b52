//! Converts timestamps: ticks of the generic timer to perf's clock, and perf's clock to the
//! kernel's `CLOCK_MONOTONIC`, which is that of the initial time namespace.

use std::path::Path;

use super::time_namespace;
use crate::sys::clock::{at_one_moment, nanos, now, timer};

/// Converts ticks to ns of perf's clock, by `time_zero`, `time_mult` and `time_shift` of the ring's
/// control page (see `linux/perf_event.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickClock {
    /// `time_zero`, ns.
    pub zero: u64,
    /// `time_mult`.
    pub mult: u32,
    /// `time_shift`, below 64.
    pub shift: u16,
}

impl TickClock {
    /// ns of perf's clock at a count of the timer.
    #[must_use]
    pub const fn nanos(self, ticks: u64) -> u64 {
        let mult = self.mult as u64;
        let shift = self.shift as u32 % 64;
        let (quotient, rest) = (ticks >> shift, ticks & ((1 << shift) - 1));
        self.zero
            .wrapping_add(quotient.wrapping_mul(mult))
            .wrapping_add(rest.wrapping_mul(mult) >> shift)
    }
}

/// Offset of `CLOCK_MONOTONIC` from perf's clock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    /// The moment, in ns of perf's clock.
    at: u64,
    /// By how many ns `CLOCK_MONOTONIC` is ahead of perf's clock.
    ahead: i64,
}

/// Converts ticks to perf's clock and to `CLOCK_MONOTONIC`. The two clocks run at different rates
/// (NTP slews only `CLOCK_MONOTONIC`), so their offset is measured at each drain and interpolated
/// between drains.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordClock {
    pub(super) ticks: TickClock,
    anchors: Option<[Anchor; 2]>,
    /// Offset of this process's `CLOCK_MONOTONIC` from the kernel's, in ns. If it is unknown,
    /// samples have no time.
    namespace: Option<i64>,
}

impl RecordClock {
    /// A clock without measurements; None if the timer that records use cannot be read.
    pub(super) fn new(ticks: TickClock, proc: &Path) -> Option<Self> {
        timer()?;
        let namespace = time_namespace::monotonic_offset(proc);
        if namespace.is_none() {
            tracing::warn!(
                "samples have no time_ns: /proc does not show the clock offset of this time \
                 namespace; mount it with `mount -t proc proc /proc`"
            );
        }
        Some(Self::unmeasured(ticks, namespace))
    }

    const fn unmeasured(ticks: TickClock, namespace: Option<i64>) -> Self {
        Self {
            ticks,
            anchors: None,
            namespace,
        }
    }

    /// A clock for replays, which is never measured: perf's clock and `CLOCK_MONOTONIC` are taken
    /// as equal.
    pub(super) fn fixed(ticks: TickClock) -> Self {
        let mut clock = Self::unmeasured(ticks, Some(0));
        clock.add(0, ticks.nanos(0));
        clock
    }

    /// Measures the offset of the clocks now.
    pub(super) fn anchor(&mut self) {
        let Some(namespace) = self.namespace else {
            return;
        };
        let ticks = || timer().unwrap_or_default();
        let (now, ticks) = at_one_moment(|| nanos(now()), ticks);
        self.add(ticks, now.wrapping_add_signed(namespace.wrapping_neg()));
    }

    /// Adds a measurement: the timer's count and `CLOCK_MONOTONIC` at one moment.
    fn add(&mut self, ticks: u64, monotonic: u64) {
        let at = self.ticks.nanos(ticks);
        let new = Anchor {
            at,
            ahead: monotonic.wrapping_sub(at).cast_signed(),
        };
        let old = self.anchors.map_or(new, |[_, last]| last);
        self.anchors = Some([old, new]);
    }

    /// perf's clock and `CLOCK_MONOTONIC` at a count of the timer.
    pub(super) fn times(&self, ticks: u64) -> ClockTimes {
        let perf = self.ticks.nanos(ticks);
        let monotonic = self.anchors.map(|anchors| monotonic(anchors, perf));
        ClockTimes { perf, monotonic }
    }
}

/// One moment, in perf's clock and in `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockTimes {
    /// ns of perf's clock.
    pub(super) perf: u64,
    /// ns of the kernel's `CLOCK_MONOTONIC`; None before the first anchor.
    pub(super) monotonic: Option<u64>,
}

/// `CLOCK_MONOTONIC` at a time of perf's clock, interpolated between two measurements.
fn monotonic([old, new]: [Anchor; 2], at: u64) -> u64 {
    let span = new.at.wrapping_sub(old.at);
    let inside = at.clamp(old.at, new.at.max(old.at)).wrapping_sub(old.at);
    let drift = new.ahead.wrapping_sub(old.ahead);
    let part = match (span, drift) {
        (0, _) | (_, 0) => 0,
        // Fast path, taken for nearly each sample: drift and time between two drains are small.
        _ => match (i64::try_from(span), i64::try_from(inside)) {
            (Ok(span), Ok(inside)) if drift.checked_mul(inside).is_some() => drift * inside / span,
            _ => {
                let part = i128::from(drift) * i128::from(inside) / i128::from(span);
                i64::try_from(part).unwrap_or(0)
            }
        },
    };
    at.wrapping_add_signed(old.ahead.wrapping_add(part))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 25 MHz: 40 ns a tick, as mult / 2^shift.
    const CLOCK: TickClock = TickClock {
        zero: 1000,
        mult: 40 << 20,
        shift: 20,
    };

    fn monotonic_at(clock: &RecordClock, ticks: u64) -> Option<u64> {
        clock.times(ticks).monotonic
    }

    #[test]
    fn ticks_become_ns_without_overflow() {
        assert_eq!(CLOCK.nanos(0), 1000);
        assert_eq!(CLOCK.nanos(25_000_000), 1_000_001_000);
        // After three years the product of ticks and mult would not fit 64 bits.
        let years = 25_000_000 * 3600 * 24 * 365 * 3;
        assert_eq!(CLOCK.nanos(years), years * 40 + 1000);
    }

    #[test]
    fn the_clock_offset_is_interpolated_between_drains() {
        let mut clock = RecordClock::unmeasured(CLOCK, Some(0));
        assert_eq!(monotonic_at(&clock, 5), None);
        clock.add(1_000, 41_000 + 500);
        assert_eq!(monotonic_at(&clock, 1_000), Some(41_500));
        assert_eq!(monotonic_at(&clock, 2_000), Some(81_500));
        // By the next drain the offset is 100 ns larger.
        clock.add(2_000, 81_000 + 600);
        assert_eq!(monotonic_at(&clock, 1_000), Some(41_500));
        assert_eq!(monotonic_at(&clock, 1_500), Some(61_550));
        assert_eq!(monotonic_at(&clock, 2_000), Some(81_600));
        // Before the first and after the last measurement, the nearest one applies.
        assert_eq!(monotonic_at(&clock, 500), Some(21_500));
        assert_eq!(monotonic_at(&clock, 3_000), Some(121_600));
    }

    proptest! {
        #[test]
        fn no_conversion_of_ticks_panics(
            zero: u64,
            mult: u32,
            shift in 0..64_u16,
            ticks: u64,
            anchors in prop::collection::vec(any::<(u64, u64)>(), 1..4),
        ) {
            let mut clock = RecordClock::unmeasured(TickClock { zero, mult, shift }, Some(0));
            for (ticks, monotonic) in anchors {
                clock.add(ticks, monotonic);
            }
            let _ = monotonic_at(&clock, ticks);
        }
    }
}
