//! Adapts the period to a budget of CPU time.

use std::time::Duration;

/// Minimum time between two steps of the period. A step is a factor of two.
const MINUTE: Duration = Duration::from_secs(60);

/// Minimum time over which a cost is measured.
const MIN_MEASUREMENT: Duration = Duration::from_secs(1);

/// The shortest period that a budget may lead to. With shorter periods sampling disturbs the
/// measured program, even if decoding costs little (NMO).
pub const LOWEST: u64 = 4096;

/// The longest period that a budget may lead to: 60 samples per second at a billion operations per
/// second and CPU.
const HIGHEST: u64 = 1 << 24;

/// Share of the budget that the expected cost after halving the period may reach.
const MAX_AFTER_HALVING: f64 = 0.9;

/// Watches the cost and proposes periods.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// The budget, as a share of a CPU's time.
    share: f64,
    /// The activity that takes the time, for messages.
    what: &'static str,
    lowest: u64,
    highest: u64,
    last_step: Option<Duration>,
    /// Start of the measurement of the current cost: the last step or check.
    recent: Option<CostMark>,
    /// Start of the measurement of the cost over a minute.
    minute: Option<CostMark>,
}

/// The nanoseconds that sampling had taken on each CPU at the time `at`.
#[derive(Clone, Debug)]
struct CostMark {
    at: Duration,
    nanos: Vec<u64>,
}

impl CostMark {
    /// The cost since this mark, as a share of the busiest CPU's time.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
    fn cost(&self, now: Duration, nanos: &[u64]) -> f64 {
        let before = self.nanos.iter().chain(std::iter::repeat(&0));
        let spent = nanos.iter().zip(before);
        let busiest = spent.map(|(now, before)| now.saturating_sub(*before)).max();
        busiest.unwrap_or(0) as f64 / now.saturating_sub(self.at).as_nanos() as f64
    }
}

/// A new period, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetStep {
    pub(crate) period: u64,
    pub(crate) reason: String,
}

impl Budget {
    /// A budget for SPE. `floor` is the shortest period that the hardware allows.
    pub(crate) fn new(share: f64, floor: u64) -> Self {
        Self {
            share,
            what: "decoding",
            lowest: floor.max(LOWEST),
            highest: HIGHEST,
            last_step: None,
            recent: None,
            minute: None,
        }
    }

    /// A budget for sampled events. In place of a period it adapts the factor by which events are
    /// sampled less often than requested.
    pub(crate) fn for_events(share: f64) -> Self {
        Self {
            what: "taking samples",
            lowest: 1,
            highest: 1024,
            ..Self::new(share, 0)
        }
    }

    /// The next period if `period` must change at `now`; None if it stays. `nanos` is the time that
    /// sampling has taken on each CPU since its start.
    pub(crate) fn step(&mut self, now: Duration, nanos: &[u64], period: u64) -> Option<BudgetStep> {
        let mark = || CostMark {
            at: now,
            nanos: nanos.to_vec(),
        };
        let (Some(recent), Some(minute)) = (&self.recent, &self.minute) else {
            self.recent = Some(mark());
            self.minute = Some(mark());
            return None;
        };
        let since = |then: Duration| now.saturating_sub(then);
        if since(recent.at) < MIN_MEASUREMENT
            || self.last_step.is_some_and(|last| since(last) < MINUTE)
        {
            return None;
        }
        let cost = recent.cost(now, nanos);
        let minute_cost = (since(minute.at) >= MINUTE).then(|| minute.cost(now, nanos));
        let (longer, shorter) = (period.saturating_mul(2), period / 2);
        let budget = self.share * 100.0;
        let step = if cost > self.share && longer <= self.highest {
            let percent = cost * 100.0;
            Some(BudgetStep {
                period: longer,
                reason: format!(
                    "{} took {percent:.3}% of the busiest CPU, above the budget of {budget}%",
                    self.what
                ),
            })
        } else if let Some(cost) = minute_cost
            && cost * 2.0 < self.share * MAX_AFTER_HALVING
            && shorter >= self.lowest
        {
            let percent = cost * 100.0;
            Some(BudgetStep {
                period: shorter,
                reason: format!(
                    "{} took {percent:.3}% of the busiest CPU for a minute, and twice that is \
                     within the budget of {budget}%",
                    self.what
                ),
            })
        } else {
            None
        };
        self.recent = Some(mark());
        if minute_cost.is_some() || step.is_some() {
            self.minute = Some(mark());
        }
        if step.is_some() {
            self.last_step = Some(now);
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// `percent` of `seconds`, in nanoseconds.
    fn cost(percent: f64, seconds: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small positive numbers of a test"
        )]
        let nanos = (percent * 1e7) as u64 * seconds;
        nanos
    }

    #[test]
    fn above_the_budget_the_period_doubles_once_a_minute() {
        let mut budget = Budget::new(0.005, 256);
        assert_eq!(budget.step(seconds(10), &[0, 0], 32_768), None);
        let step = budget
            .step(seconds(12), &[cost(0.1, 2), cost(0.6, 2)], 32_768)
            .unwrap();
        assert_eq!(step.period, 65_536);
        assert!(step.reason.contains("0.600%"), "{}", step.reason);
        let after = [cost(0.1, 2), cost(0.6, 2) + cost(0.6, 59)];
        assert_eq!(budget.step(seconds(71), &after, 65_536), None);
        assert!(budget.step(seconds(72), &after, 65_536).is_some());
    }

    #[test]
    fn below_the_budget_the_period_halves_down_to_the_floor() {
        let mut budget = Budget::new(0.005, 256);
        let mut period = 32_768;
        for minute in 0..20 {
            if let Some(step) = budget.step(seconds(60 * minute), &[0], period) {
                assert!(step.period * 2 == period || step.period == period * 2);
                period = step.period;
            }
        }
        assert_eq!(period, LOWEST);
        // Halving again would go below the hardware's floor.
        let mut budget = Budget::new(0.005, 20_000);
        budget.step(seconds(1), &[0], 32_768);
        assert_eq!(budget.step(seconds(100), &[0], 32_768), None);
    }

    /// `mem` and `stat` read every two seconds.
    #[test]
    fn readings_every_two_seconds_halve_the_period_after_a_quiet_minute() {
        let mut budget = Budget::new(0.005, 256);
        let mut steps = Vec::new();
        let mut period = 32_768;
        for second in (0..600).step_by(2) {
            let spent = [cost(0.01, second)];
            if let Some(step) = budget.step(seconds(second), &spent, period) {
                steps.push((second, step.period));
                period = step.period;
            }
        }
        assert_eq!(steps, [(60, 16_384), (120, 8192), (180, 4096)]);
    }

    #[test]
    fn near_the_budget_the_period_stays() {
        let mut budget = Budget::new(0.005, 256);
        budget.step(seconds(1), &[0], 32_768);
        for minute in 1..10 {
            let spent = [cost(0.3, 60 * minute)];
            assert_eq!(budget.step(seconds(1 + 60 * minute), &spent, 32_768), None);
        }
    }
}
