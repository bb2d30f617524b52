//! Holds the frequency of a sampled event whose period the kernel leaves as it is.
//!
//! The kernel adapts the period of an event by frequency at its tick, and where overflows are less
//! than two ticks apart at those (`perf_adjust_freq_unthr_context` and `perf_event_account_interrupt`
//! of `kernel/events/core.c`). Since Linux 6.9 the tick looks at the leaders of groups alone. So a
//! member of a group, as Intel's loads are behind `mem-loads-aux`, keeps the period of a phase of
//! many loads in a phase of few: its overflows are too far apart then.
//!
//! Such an event is opened with a fixed period, and gets another one by what it counted. The kernel
//! begins the new period at once and drops the part of the old one that was under way
//! (`__perf_event_period` sets `period_left` to 0 and has the PMU reload); its count goes on.

use crate::event::sampling::{Rate, SampledEvent};

/// Loads that a busy core is taken to time in a second. The event counts those loads alone that the
/// core tagged, and each takes four cycles or more (Intel SDM volume 3, "Load Latency Performance
/// Monitoring Facility"): at 4 GHz there are no more than ten times as many.
const BUSY: u64 = 100_000_000;

/// How many times more often than asked for a busy core may be sampled up to the next reading.
///
/// That is up to two seconds after the last one, and a CPU may be busy for so long with the period
/// of an idle one. 16 times 997 samples in a second, at some 2 us each with their interrupts, are 3%
/// of its time; the kernel's own limits (`perf_event_max_sample_rate`) bound what is beyond. The
/// price is paid where there is little to sample: loads that are fewer than a sixteenth of [`BUSY`]
/// in a second are not sampled at the frequency, but in proportion to their number.
const BURST: u64 = 16;

/// So many samples are due between two looks at the rate: by fewer it is not known.
const DUE: u64 = 10;

/// An event by frequency that has a fixed period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Samples per second.
    frequency: u64,
    period: u64,
    /// Since the period was looked at.
    counted: u64,
    nanos: u64,
}

impl Held {
    /// Of an event that is sampled so often; None where its period stays, or the kernel adapts it.
    pub(crate) fn of(event: &SampledEvent, rate: Rate) -> Option<Self> {
        match rate {
            Rate::Frequency(frequency) if event.leader.is_some() => Some(Self {
                frequency,
                // Nothing is known yet: as on an idle CPU.
                period: shortest(frequency),
                counted: 0,
                nanos: 0,
            }),
            Rate::Frequency(_) | Rate::Period(_) => None,
        }
    }

    /// The rate by which the kernel is to open an event that may be held.
    pub(crate) fn opened_at(held: Option<&Self>, rate: Rate) -> Rate {
        held.map_or(rate, |held| Rate::Period(held.period))
    }

    /// Takes in what the event counted in so many nanoseconds. Returns its new period where the old
    /// one is off by a quarter or more.
    ///
    /// With each change a part of a period is lost, half of one on average. Where the period was too
    /// short that is less than one sample of many. Where it was too long it may be all that was
    /// counted, which the next samples stand for (`Scale`).
    pub(crate) fn step(&mut self, counted: u64, nanos: u64) -> Option<u64> {
        const SECOND: u128 = 1_000_000_000;
        self.counted += counted;
        self.nanos += nanos;
        let due = u128::from(self.nanos) * u128::from(self.frequency);
        if due < u128::from(DUE) * SECOND {
            return None;
        }
        let wanted = u128::from(self.counted) * SECOND / due;
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let wanted = wanted.max(shortest(self.frequency));
        (self.counted, self.nanos) = (0, 0);
        let (less, more) = (wanted.min(self.period), wanted.max(self.period));
        if more - less < less.div_ceil(4) {
            return None;
        }
        self.period = wanted;
        Some(wanted)
    }
}

/// The shortest period for a frequency.
const fn shortest(frequency: u64) -> u64 {
    let period = BUSY / BURST.saturating_mul(frequency);
    if period == 0 { 1 } else { period }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::{event::accesses::accesses, machine::Pmus};

    const SECOND: u64 = 1_000_000_000;

    fn held(frequency: u64) -> Held {
        Held {
            frequency,
            period: shortest(frequency),
            counted: 0,
            nanos: 0,
        }
    }

    #[test]
    fn loads_behind_a_leader_are_held_by_frequency_alone() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/sysfs/spr");
        let pmus = Pmus::read(Path::new(fixture)).unwrap();
        let events = accesses(&pmus, None, None).unwrap();
        let [loads, stores] = events.as_slice() else {
            panic!("{events:?}");
        };
        let frequency = Rate::Frequency(997);
        assert_eq!(Held::of(loads, frequency).unwrap().period, 6_268);
        assert_eq!(Held::of(loads, Rate::Period(1000)), None);
        assert_eq!(Held::of(stores, frequency), None);
        let mut alone = loads.clone();
        alone.leader = None;
        assert_eq!(Held::of(&alone, frequency), None);
    }

    #[test]
    fn after_a_burst_comes_the_period_of_a_slow_phase() {
        let mut held = held(1000);
        assert_eq!(held.step(100_000_000, SECOND), Some(100_000));
        assert_eq!(held.step(110_000_000, SECOND), None, "near enough");
        assert_eq!(held.step(10_000_000, SECOND), Some(10_000));
        // Nobody knows when the next burst comes.
        assert_eq!(held.step(0, SECOND), Some(6_250));
        assert_eq!(held.step(0, SECOND), None);
    }

    #[test]
    fn readings_that_are_near_to_each_other_are_taken_together() {
        let mut held = held(1000);
        assert_eq!(held.step(1_000_000, SECOND / 200), None);
        assert_eq!(held.step(0, SECOND / 200), Some(100_000));
        assert_eq!(held.step(0, 0), None, "its CPU is gone");
    }

    proptest! {
        /// Whatever was before: by the second reading of a steady load samples come at the
        /// frequency, or in proportion to the load where it is light.
        #[test]
        fn a_steady_load_is_sampled_at_the_frequency(
            frequency in 1..20_000_u64,
            before in prop::collection::vec((0..1_000_000_000_u64, 1..4 * SECOND), 0..8),
            rate in 0..1_000_000_000_u64,
        ) {
            let mut held = held(frequency);
            for (counted, nanos) in before {
                held.step(counted, nanos);
            }
            for _ in 0..2 {
                held.step(rate * 20, 20 * SECOND);
            }
            let samples = rate as f64 / held.period as f64;
            let least = (rate as f64 / shortest(frequency) as f64).min(frequency as f64);
            prop_assert!(samples >= least * 0.79 - 1.0, "{samples} of {least}");
            prop_assert!(samples <= frequency as f64 * 1.27 + 1.0, "{samples} of {frequency}");
            prop_assert!(held.period >= shortest(frequency));
        }

        /// A busy core is never sampled more often than the bound, however idle it was.
        #[test]
        fn a_burst_is_bounded(frequency in 1..20_000_u64, idle in 1..1_000 * SECOND) {
            let mut held = held(frequency);
            held.step(0, idle);
            let samples = BUSY / held.period;
            prop_assert!(samples <= BURST * frequency * 2, "{samples}");
        }

        /// No reading overflows.
        #[test]
        fn any_reading_is_taken(frequency in 1..u64::MAX, counted in 0..u64::MAX / 2, nanos in 0..u64::MAX / 2) {
            let mut held = held(frequency);
            let _ = held.step(counted, nanos);
            prop_assert!(held.period > 0);
        }
    }
}
