//! Scales the samples of an event on a CPU to the count of the event itself.
//!
//! Without a ring buffer the kernel does not report samples that it drops (by throttling, or
//! because its CPU is in a bpf(2) call). The count shows them: samples that are due by the count
//! and did not come are missed, and the others also represent them. Samples of a clock at one
//! privilege level (`cpu-clock:u`) are not compared: its count covers all levels.
//!
//! On x86, on Arm, and everywhere from Linux 6.16 on, throttling stops a hardware counter. Then the
//! count matches the samples, and the running time continues. `SampleTotals::count_limited` counts
//! where this may have happened.

/// How the periods of an event may differ in a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeriodKind {
    /// All periods are equal, in all readings.
    Fixed,
    /// The current period may be much longer than the completed ones.
    Adapted,
    /// The current period was dropped at the end of this reading, and a new one was set.
    Dropped,
}

/// Compares counts and samples of an event on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Scale {
    /// Counted events that no sample represents yet.
    owed: f64,
    /// Samples that were missed.
    pub(crate) missed: u64,
}

impl Scale {
    /// Number of events that each event of the samples' periods represents. Since the last reading
    /// the event has counted `counted`, and there were `samples` samples with a sum of `periods`.
    ///
    /// The current period belongs to the next samples; a dropped one belongs to these. If periods
    /// add up to more than the count (with a frequency they may), samples represent the count.
    ///
    /// The number of missed samples is known only for fixed periods.
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
        kind: PeriodKind,
    ) -> f64 {
        self.owed += counted as f64;
        if samples == 0 || periods == 0 {
            return 1.0;
        }
        let (sampled, each) = (periods as f64, periods as f64 / samples as f64);
        let missed = ((self.owed - sampled) / each).floor().max(0.0);
        let represented = match kind {
            PeriodKind::Dropped => self.owed,
            PeriodKind::Fixed | PeriodKind::Adapted => (sampled + missed * each).min(self.owed),
        };
        self.owed -= represented;
        if kind == PeriodKind::Fixed {
            self.missed += missed as u64;
        }
        represented / sampled
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_shown_is_missed_and_made_up_for() {
        let mut scale = Scale::default();
        // 10 of 25 periods were sampled; half a period is not complete.
        assert_eq!(scale.factor(25_500, (10, 10_000), PeriodKind::Fixed), 2.5);
        assert_eq!(scale.missed, 15);
        // It ends in the next reading.
        assert_eq!(scale.factor(9_500, (10, 10_000), PeriodKind::Fixed), 1.0);
        assert_eq!(scale.missed, 15);
        // No sample at all: the next samples represent the count.
        assert_eq!(scale.factor(3_000, (0, 0), PeriodKind::Fixed), 1.0);
        assert_eq!(scale.factor(1_000, (1, 1_000), PeriodKind::Fixed), 4.0);
        assert_eq!(scale.missed, 18);
    }

    #[test]
    fn a_period_longer_than_the_count_stands_for_the_count() {
        let mut scale = Scale::default();
        assert_eq!(
            scale.factor(17_665, (1, 94_471), PeriodKind::Fixed),
            17_665.0 / 94_471.0
        );
        assert_eq!(scale.missed, 0);
    }

    /// The kernel has made the period longer: the incomplete period is no missed sample.
    #[test]
    fn by_frequency_nobody_knows_what_was_missed() {
        let mut scale = Scale::default();
        assert_eq!(scale.factor(25_500, (10, 10_000), PeriodKind::Adapted), 2.5);
        assert_eq!(scale.missed, 0);
    }

    /// The samples of a phase with few events do not represent the long period that a busy phase
    /// left.
    #[test]
    fn a_period_that_was_dropped_is_its_own_samples() {
        let mut scale = Scale::default();
        let many = scale.factor(1_090_000, (10, 1_000_000), PeriodKind::Dropped);
        assert_eq!(many, 1.09);
        assert_eq!(
            scale.factor(1_000, (10, 1_000), PeriodKind::Adapted),
            1.0,
            "of a thousand events with a period of 100"
        );
        // No sample: the next samples represent the count.
        assert_eq!(scale.factor(500, (0, 0), PeriodKind::Dropped), 1.0);
        assert_eq!(scale.factor(1_500, (2, 2_000), PeriodKind::Adapted), 1.0);
        assert_eq!(scale.missed, 0);
    }

    proptest! {
        /// When a period is dropped, the samples represent the whole count.
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
                let factor = scale.factor(count, (samples, periods), PeriodKind::Dropped);
                stood_for += factor * periods as f64;
                prop_assert!((stood_for / counted - 1.0).abs() < 1e-9);
            }
        }

        /// Samples never represent more than the count, and never less than the count without the
        /// incomplete period.
        #[test]
        fn the_sum_is_what_was_counted(
            steps in prop::collection::vec((0..100_000_u64, 0..50_u64), 1..60),
        ) {
            let mut scale = Scale::default();
            let (mut counted, mut stood_for, mut pending) = (0.0, 0.0, 0.0);
            for (count, samples) in steps {
                let periods = samples * 1000;
                counted += count as f64;
                let factor = scale.factor(count, (samples, periods), PeriodKind::Fixed);
                stood_for += factor * periods as f64;
                pending = if samples == 0 { pending + count as f64 } else { 1000.0 };
                prop_assert!(stood_for <= counted + 1e-3, "{} {}", stood_for, counted);
                prop_assert!(stood_for + pending >= counted - 1e-3);
            }
        }
    }
}
