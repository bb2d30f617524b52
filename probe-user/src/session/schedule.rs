//! Schedule: how long a turn of a counter group lasts. The first turns are short, so that a short
//! command has values of many groups; they grow, and never cost more than a fixed share of one CPU.

use std::time::Duration;

/// Exchanges of all CPUs together take at most one part in so many of one CPU's time.
const SHARE: u32 = 100;

/// The turns of the first round, where exchanges cost next to nothing.
const FIRST: Duration = Duration::from_millis(4);

/// Longer turns would save next to nothing, and make values of a second less exact.
const LONGEST: Duration = Duration::from_millis(100);

/// How much a new measurement weighs in the cost of an exchange: one part in so many.
const MEMORY: u32 = 8;

/// How long turns last.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Rounds in which every group had its turn.
    rounds: u32,
    /// What an exchange of the counters of one CPU takes of this process.
    exchange: Duration,
}

impl Schedule {
    /// Turns where an exchange takes that long.
    pub(crate) fn new(exchange: Duration) -> Self {
        Self {
            rounds: 0,
            exchange,
        }
    }

    /// Every group had a turn.
    pub(crate) fn round_ends(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
    }

    /// That many exchanges took so long.
    pub(crate) fn exchanged(&mut self, cpus: u32, took: Duration) {
        if let Some(each) = took.checked_div(cpus) {
            self.exchange = (self.exchange * (MEMORY - 1) + each) / MEMORY;
        }
    }

    /// How long a turn lasts at whose end the counters of so many CPUs are exchanged: all turns of
    /// a round are equally long, but where there are more CPUs to pay for.
    pub(crate) fn turn(&self, cpus: u32) -> Duration {
        let growth = 1_u32.checked_shl(self.rounds).unwrap_or(u32::MAX);
        let growing = FIRST.saturating_mul(growth).min(LONGEST);
        growing.max(self.exchange.saturating_mul(cpus).saturating_mul(SHARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns on a machine where `cpus` are awake; what has run when each ended, and what exchanges
    /// took.
    fn turns(
        cpus: u32,
        exchange: Duration,
        groups: u32,
        until: Duration,
    ) -> Vec<(Duration, Duration)> {
        // The cost is known from the start on, as of the first opening.
        let mut schedule = Schedule::new(exchange);
        let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
        let mut ends = Vec::new();
        for turn in 1.. {
            now += schedule.turn(cpus);
            if now > until {
                break;
            }
            let took = exchange * cpus;
            spent += took;
            schedule.exchanged(cpus, took);
            ends.push((now, spent));
            if turn % groups == 0 {
                schedule.round_ends();
            }
        }
        ends
    }

    const MEASURED: Duration = Duration::from_micros(70);

    #[test]
    fn exchanges_never_take_more_than_a_hundredth_of_a_cpu() {
        for cpus in [1, 2, 144, 1024] {
            for exchange in [1, 70, 500, 4_000].map(Duration::from_micros) {
                let ends = turns(cpus, exchange, 12, Duration::from_secs(60));
                for (now, spent) in &ends {
                    assert!(
                        *spent * SHARE <= *now,
                        "{cpus} CPUs, {exchange:?}: {spent:?} of {now:?}"
                    );
                }
                assert!(exchange * cpus * SHARE > Duration::from_secs(60) || !ends.is_empty());
            }
        }
    }

    #[test]
    fn on_144_busy_cpus_a_turn_lasts_a_second_from_the_first_on() {
        let ends = turns(144, MEASURED, 12, Duration::from_secs(60));
        assert_eq!(ends[0].0, Duration::from_millis(1008));
        assert_eq!(ends.len(), 59);
    }

    #[test]
    fn a_command_of_100_ms_has_values_of_as_many_groups_as_fit_in_it() {
        let until = Duration::from_millis(100);
        // On one CPU, or on few of 144 whose others sleep.
        assert_eq!(turns(1, MEASURED, 12, until).len(), 14);
        assert_eq!(turns(2, MEASURED, 12, until).len(), 7);
        // Where exchanges cost less, turns are as short as they get.
        assert_eq!(turns(1, Duration::from_micros(20), 24, until).len(), 24);
    }

    #[test]
    fn turns_grow_to_the_long_term_period_round_by_round() {
        let ends = turns(1, Duration::from_micros(10), 3, Duration::from_secs(2));
        let mut before = Duration::ZERO;
        let lengths = ends
            .iter()
            .map(|(now, _)| now.saturating_sub(std::mem::replace(&mut before, *now)));
        let lengths: Vec<u128> = lengths.map(|length| length.as_millis()).collect();
        assert_eq!(lengths[..9], [4, 4, 4, 8, 8, 8, 16, 16, 16]);
        assert_eq!(lengths[15..], vec![100; lengths.len() - 15]);
    }

    #[test]
    fn a_cost_that_rises_is_paid_by_longer_turns() {
        let mut schedule = Schedule::new(MEASURED);
        assert_eq!(schedule.turn(2), Duration::from_millis(14));
        for _ in 0..64 {
            schedule.exchanged(2, Duration::from_micros(800));
        }
        let turn = schedule.turn(2);
        assert!(
            turn > Duration::from_millis(79) && turn <= Duration::from_millis(80),
            "{turn:?}"
        );
    }
}
