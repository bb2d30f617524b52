//! Maintains the frequency of a sampled event, if the kernel does not adapt its period.
//!
//! The kernel adapts the period of an event with a frequency at each tick, and at overflows less
//! than two ticks apart (`perf_adjust_freq_unthr_context` and `perf_event_account_interrupt` of
//! `kernel/events/core.c`). Since Linux 6.9 the tick adapts only leaders of groups. So a member of
//! a group, such as Intel's loads after `mem-loads-aux`, keeps the long period of a busy phase in a
//! later quiet phase, in which its overflows are too far apart.
//!
//! Such an event is opened with a fixed period, which is adjusted by its count. The kernel starts
//! the new period at once and drops the incomplete old one (`__perf_event_period` sets
//! `period_left` to 0 and has the PMU reload). The count continues.

use crate::event::sampling::{Rate, SampledEvent};

/// Assumed number of loads per second whose latency a busy core measures. The event counts only
/// loads that the core tagged, and each takes at least four cycles (Intel SDM volume 3, "Load
/// Latency Performance Monitoring Facility"). So at 4 GHz the real number is at most ten times as
/// large.
const BUSY_LOADS: u64 = 100_000_000;

/// Factor by which a core that becomes busy may be sampled more often than requested, until the
/// next reading.
///
/// Readings are up to two seconds apart. For so long a busy CPU may be sampled with the period of
/// an idle CPU. 16 times 997 samples per second, at some 2 us each including the interrupt, take 3%
/// of its time; the kernel's own limit (`perf_event_max_sample_rate`) bounds higher rates. In
/// return, fewer loads per second than a sixteenth of [`BUSY_LOADS`] are sampled in proportion to
/// their number, not at the frequency.
const MAX_BURST: u64 = 16;

/// Number of samples that must be due before the rate is evaluated. With fewer samples the rate is
/// too inexact.
const MIN_DUE: u64 = 10;

/// Controls the fixed period of an event that is sampled by frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedPeriod {
    /// Samples per second.
    frequency: u64,
    period: u64,
    /// Count since the last evaluation.
    counted: u64,
    /// Nanoseconds on the PMU since the last evaluation.
    nanos: u64,
}

impl FixedPeriod {
    /// The control of the period of an event with this rate; None if the period is constant, or if
    /// the kernel adapts it.
    pub(crate) fn for_event(event: &SampledEvent, rate: Rate) -> Option<Self> {
        match rate {
            Rate::Frequency(frequency) if event.leader.is_some() => Some(Self {
                frequency,
                // Without a reading, the CPU is assumed to be idle.
                period: shortest_period(frequency),
                counted: 0,
                nanos: 0,
            }),
            Rate::Frequency(_) | Rate::Period(_) => None,
        }
    }

    /// The rate with which to open an event. If `fixed_period` controls its period, this is a
    /// period.
    pub(crate) fn open_rate(fixed_period: Option<&Self>, rate: Rate) -> Rate {
        fixed_period.map_or(rate, |fixed| Rate::Period(fixed.period))
    }

    /// Adds the event's count of `nanos` nanoseconds on the PMU. Returns a new period if the
    /// current period is wrong by a quarter or more.
    ///
    /// Each change drops the incomplete period, half a period on average. If the period was too
    /// short, the dropped part is less than one of many samples. If the period was too long, the
    /// dropped part may be the whole count. The samples of this reading, or the next sample if
    /// there are none, stand for the dropped part.
    pub(crate) fn adjust(&mut self, counted: u64, nanos: u64) -> Option<u64> {
        const SECOND: u128 = 1_000_000_000;
        self.counted += counted;
        self.nanos += nanos;
        let due = u128::from(self.nanos) * u128::from(self.frequency);
        if due < u128::from(MIN_DUE) * SECOND {
            return None;
        }
        let wanted = u64::try_from(u128::from(self.counted) * SECOND / due)
            .unwrap_or(u64::MAX)
            .max(shortest_period(self.frequency));
        (self.counted, self.nanos) = (0, 0);
        let (shorter, longer) = (wanted.min(self.period), wanted.max(self.period));
        if longer - shorter < shorter.div_ceil(4) {
            return None;
        }
        self.period = wanted;
        Some(wanted)
    }
}

/// The shortest period for a frequency.
const fn shortest_period(frequency: u64) -> u64 {
    let period = BUSY_LOADS / MAX_BURST.saturating_mul(frequency);
    if period == 0 { 1 } else { period }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{event::accesses::accesses, machine::Pmus};

    const SECOND: u64 = 1_000_000_000;

    fn fixed_period(frequency: u64) -> FixedPeriod {
        FixedPeriod {
            frequency,
            period: shortest_period(frequency),
            counted: 0,
            nanos: 0,
        }
    }

    #[test]
    fn only_a_frequency_event_with_a_leader_has_its_period_controlled() {
        let pmus = Pmus::read(&test_support::sysfs("spr")).unwrap();
        let events = accesses(&pmus, None, None).unwrap();
        let [loads, stores] = events.as_slice() else {
            panic!("{events:?}");
        };
        let frequency = Rate::Frequency(997);
        assert_eq!(
            FixedPeriod::for_event(loads, frequency).unwrap().period,
            6_268
        );
        assert_eq!(FixedPeriod::for_event(loads, Rate::Period(1000)), None);
        assert_eq!(FixedPeriod::for_event(stores, frequency), None);
        let mut alone = loads.clone();
        alone.leader = None;
        assert_eq!(FixedPeriod::for_event(&alone, frequency), None);
    }

    #[test]
    fn the_period_shrinks_after_a_burst() {
        let mut fixed_period = fixed_period(1000);
        assert_eq!(fixed_period.adjust(100_000_000, SECOND), Some(100_000));
        assert_eq!(
            fixed_period.adjust(110_000_000, SECOND),
            None,
            "near enough"
        );
        assert_eq!(fixed_period.adjust(10_000_000, SECOND), Some(10_000));
        // Without a load the period is the shortest, since the next burst may come at any time.
        assert_eq!(fixed_period.adjust(0, SECOND), Some(6_250));
        assert_eq!(fixed_period.adjust(0, SECOND), None);
    }

    #[test]
    fn short_readings_are_added_up() {
        let mut fixed_period = fixed_period(1000);
        assert_eq!(fixed_period.adjust(1_000_000, SECOND / 200), None);
        assert_eq!(fixed_period.adjust(0, SECOND / 200), Some(100_000));
        assert_eq!(fixed_period.adjust(0, 0), None, "its CPU is gone");
    }

    proptest! {
        /// From the second reading of a steady load on, samples come at the frequency, or in
        /// proportion to a light load. The load before does not matter.
        #[test]
        fn a_steady_load_is_sampled_at_the_frequency(
            frequency in 1..20_000_u64,
            before in prop::collection::vec((0..1_000_000_000_u64, 1..4 * SECOND), 0..8),
            rate in 0..1_000_000_000_u64,
        ) {
            let mut fixed_period = fixed_period(frequency);
            for (counted, nanos) in before {
                fixed_period.adjust(counted, nanos);
            }
            for _ in 0..2 {
                fixed_period.adjust(rate * 20, 20 * SECOND);
            }
            let samples = rate as f64 / fixed_period.period as f64;
            let least = (rate as f64 / shortest_period(frequency) as f64).min(frequency as f64);
            prop_assert!(samples >= least * 0.79 - 1.0, "{samples} of {least}");
            prop_assert!(samples <= frequency as f64 * 1.27 + 1.0, "{samples} of {frequency}");
            prop_assert!(fixed_period.period >= shortest_period(frequency));
        }

        /// A core that becomes busy is never sampled more often than the bound, however long it was
        /// idle.
        #[test]
        fn a_burst_is_bounded(frequency in 1..20_000_u64, idle in 1..1_000 * SECOND) {
            let mut fixed_period = fixed_period(frequency);
            fixed_period.adjust(0, idle);
            let samples = BUSY_LOADS / fixed_period.period;
            prop_assert!(samples <= MAX_BURST * frequency * 2, "{samples}");
        }

        /// No reading overflows.
        #[test]
        fn extreme_readings_do_not_overflow(
            frequency in 1..u64::MAX,
            counted in 0..u64::MAX / 2,
            nanos in 0..u64::MAX / 2,
        ) {
            let mut fixed_period = fixed_period(frequency);
            let _ = fixed_period.adjust(counted, nanos);
            prop_assert!(fixed_period.period > 0);
        }
    }
}
