//! What the samples of an event on a CPU stand for, by what the event itself counted there.
//!
//! Without a ring buffer nobody is told of samples that the kernel holds back (throttling, or a run
//! of the program while its CPU is in a bpf(2) call). The count tells: what is due by it and was
//! not shown is missed, and the samples that were shown stand for it too. Samples of a clock of one
//! level (`cpu-clock:u`) are not compared: its count is of all levels.
//!
//! A hardware counter is stopped while the kernel holds its samples back, on x86, on Arm, and from
//! Linux 6.16 on everywhere: then the count has no more than the samples, and its time goes on.
//! `SampleTotals::note_limit` tells where that may have been.

/// What is known of the periods of an event in a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Periods {
    /// All are the same, in all readings.
    Fixed,
    /// The one that is under way may be much longer than those before it.
    Adapted,
    /// The one that was under way was dropped at the end of this reading, for another one.
    Dropped,
}

/// The account of an event on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Scale {
    /// What was counted and no sample stands for yet.
    owed: f64,
    /// Samples that were missed.
    pub(crate) missed: u64,
}

impl Scale {
    /// How many events each event of the samples' periods stands for, where the event has counted
    /// `counted` since the last reading and was sampled `samples` times, with `periods` in all.
    ///
    /// A period that is under way is due to the next samples; one that was dropped to these. Where
    /// periods add up to more than was counted (they follow a frequency), samples stand for what
    /// was counted.
    ///
    /// Only of fixed periods is it known how many samples were missed.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts between two readings; a rounded number of samples"
    )]
    pub(crate) fn factor(
        &mut self,
        counted: u64,
        (samples, periods): (u64, u64),
        of: Periods,
    ) -> f64 {
        self.owed += counted as f64;
        if samples == 0 || periods == 0 {
            return 1.0;
        }
        let (seen, each) = (periods as f64, periods as f64 / samples as f64);
        let late = ((self.owed - seen) / each).floor().max(0.0);
        let stood_for = match of {
            Periods::Dropped => self.owed,
            Periods::Fixed | Periods::Adapted => (seen + late * each).min(self.owed),
        };
        self.owed -= stood_for;
        if of == Periods::Fixed {
            self.missed += late as u64;
        }
        stood_for / seen
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_shown_is_missed_and_made_up_for() {
        let mut scale = Scale::default();
        // 10 of 25 periods were shown; half a period is under way.
        assert_eq!(scale.factor(25_500, (10, 10_000), Periods::Fixed), 2.5);
        assert_eq!(scale.missed, 15);
        // It ends in the next reading.
        assert_eq!(scale.factor(9_500, (10, 10_000), Periods::Fixed), 1.0);
        assert_eq!(scale.missed, 15);
        // Nothing was shown at all: the next samples stand for it.
        assert_eq!(scale.factor(3_000, (0, 0), Periods::Fixed), 1.0);
        assert_eq!(scale.factor(1_000, (1, 1_000), Periods::Fixed), 4.0);
        assert_eq!(scale.missed, 18);
    }

    #[test]
    fn a_period_longer_than_the_count_stands_for_the_count() {
        let mut scale = Scale::default();
        assert_eq!(
            scale.factor(17_665, (1, 94_471), Periods::Fixed),
            17_665.0 / 94_471.0
        );
        assert_eq!(scale.missed, 0);
    }

    /// The kernel has made the period longer: the one under way is no sample that was missed.
    #[test]
    fn by_frequency_nobody_knows_what_was_missed() {
        let mut scale = Scale::default();
        assert_eq!(scale.factor(25_500, (10, 10_000), Periods::Adapted), 2.5);
        assert_eq!(scale.missed, 0);
    }

    /// A phase of few events does not stand for the period that a phase of many left.
    #[test]
    fn a_period_that_was_dropped_is_its_own_samples() {
        let mut scale = Scale::default();
        let many = scale.factor(1_090_000, (10, 1_000_000), Periods::Dropped);
        assert_eq!(many, 1.09);
        assert_eq!(
            scale.factor(1_000, (10, 1_000), Periods::Adapted),
            1.0,
            "of a thousand events with a period of 100"
        );
        // Nothing was shown: the next samples stand for it.
        assert_eq!(scale.factor(500, (0, 0), Periods::Dropped), 1.0);
        assert_eq!(scale.factor(1_500, (2, 2_000), Periods::Adapted), 1.0);
        assert_eq!(scale.missed, 0);
    }

    proptest! {
        /// Of changing periods samples stand for all that was counted when one is dropped.
        #[test]
        fn nothing_is_owed_after_a_change(
            steps in prop::collection::vec((0..100_000_u64, 1..50_u64, 1..5_000_u64), 1..60),
        ) {
            let mut scale = Scale::default();
            let (mut counted, mut stood_for) = (0.0, 0.0);
            for (rest, samples, period) in steps {
                let periods = samples * period;
                let count = periods + rest % period;
                counted += count as f64;
                stood_for += scale.factor(count, (samples, periods), Periods::Dropped) * periods as f64;
                prop_assert!((stood_for / counted - 1.0).abs() < 1e-9);
            }
        }

        /// Whatever is shown when: samples never stand for more than was counted, and but for the
        /// period under way for no less.
        #[test]
        fn the_sum_is_what_was_counted(
            steps in prop::collection::vec((0..100_000_u64, 0..50_u64), 1..60),
        ) {
            let mut scale = Scale::default();
            let (mut counted, mut stood_for, mut pending) = (0.0, 0.0, 0.0);
            for (count, samples) in steps {
                let periods = samples * 1000;
                counted += count as f64;
                let factor = scale.factor(count, (samples, periods), Periods::Fixed);
                stood_for += factor * periods as f64;
                pending = if samples == 0 { pending + count as f64 } else { 1000.0 };
                prop_assert!(stood_for <= counted + 1e-3, "{} {}", stood_for, counted);
                prop_assert!(stood_for + pending >= counted - 1e-3);
            }
        }
    }
}
