//! Schedule: the length of the multiplexing intervals of counter groups. The first intervals are
//! short, so that a short command has values of many groups. Later intervals are longer. Exchanges
//! never cost more than a fixed share of one CPU.

use std::time::Duration;

/// Exchanges on all CPUs together take at most 1/`COST_DIVISOR` of one CPU's time.
const COST_DIVISOR: u32 = 100;

/// Length of the intervals of the first round, if exchanges cost next to nothing.
const FIRST_INTERVAL: Duration = Duration::from_millis(4);

/// Maximum length of an interval by growth. Longer intervals would save next to nothing, and make
/// values of one second less exact.
const MAX_GROWN_INTERVAL: Duration = Duration::from_millis(100);

/// A new measurement has a weight of 1/`AVERAGE_OVER` in the average cost of an exchange.
const AVERAGE_OVER: u32 = 8;

/// Computes multiplexing intervals.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Number of completed rounds, in which every group had its interval.
    rounds: u32,
    /// Average CPU time of this process for an exchange of the counters of one CPU.
    exchange_cost: Duration,
}

impl Schedule {
    /// A schedule for exchanges that take this CPU time.
    pub(crate) fn new(exchange_cost: Duration) -> Self {
        Self {
            rounds: 0,
            exchange_cost,
        }
    }

    /// Ends a round, in which every group had its interval.
    pub(crate) fn end_round(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
    }

    /// Updates the average cost of an exchange: exchanges on `cpus` CPUs took this CPU time
    /// together.
    pub(crate) fn exchanged(&mut self, cpus: u32, took: Duration) {
        if let Some(each) = took.checked_div(cpus) {
            self.exchange_cost = (self.exchange_cost * (AVERAGE_OVER - 1) + each) / AVERAGE_OVER;
        }
    }

    /// Length of a multiplexing interval, given how many CPUs must switch at its end. All intervals
    /// of a round are equally long, unless more CPUs must switch.
    pub(crate) fn interval(&self, cpus: u32) -> Duration {
        let growth = 1_u32.checked_shl(self.rounds).unwrap_or(u32::MAX);
        let grown = FIRST_INTERVAL
            .saturating_mul(growth)
            .min(MAX_GROWN_INTERVAL);
        grown.max(
            self.exchange_cost
                .saturating_mul(cpus)
                .saturating_mul(COST_DIVISOR),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The intervals until the time `until`, on a machine with `cpus` awake CPUs: the end of each,
    /// and the time that exchanges took by then.
    fn intervals(
        cpus: u32,
        exchange: Duration,
        groups: u32,
        until: Duration,
    ) -> Vec<(Duration, Duration)> {
        // The cost is known from the start: arming the CPUs measures it.
        let mut schedule = Schedule::new(exchange);
        let (mut now, mut spent) = (Duration::ZERO, Duration::ZERO);
        let mut ends = Vec::new();
        for interval in 1.. {
            now += schedule.interval(cpus);
            if now > until {
                break;
            }
            let took = exchange * cpus;
            spent += took;
            schedule.exchanged(cpus, took);
            ends.push((now, spent));
            if interval % groups == 0 {
                schedule.end_round();
            }
        }
        ends
    }

    /// Cost of an exchange as docs/benchmarks.md states it.
    const MEASURED: Duration = Duration::from_micros(70);

    #[test]
    fn exchanges_never_take_more_than_a_hundredth_of_a_cpu() {
        for cpus in [1, 2, 144, 1024] {
            for exchange in [1, 70, 500, 4_000].map(Duration::from_micros) {
                let ends = intervals(cpus, exchange, 12, Duration::from_secs(60));
                for (now, spent) in &ends {
                    assert!(
                        *spent * COST_DIVISOR <= *now,
                        "{cpus} CPUs, {exchange:?}: {spent:?} of {now:?}"
                    );
                }
                assert!(
                    exchange * cpus * COST_DIVISOR > Duration::from_secs(60) || !ends.is_empty()
                );
            }
        }
    }

    #[test]
    fn on_144_busy_cpus_every_interval_lasts_a_second() {
        let ends = intervals(144, MEASURED, 12, Duration::from_secs(60));
        assert_eq!(ends[0].0, Duration::from_millis(1008));
        assert_eq!(ends.len(), 59);
    }

    #[test]
    fn a_command_of_100_ms_counts_many_groups() {
        let until = Duration::from_millis(100);
        // On one CPU; then on two of 144 CPUs, while 142 sleep.
        assert_eq!(intervals(1, MEASURED, 12, until).len(), 14);
        assert_eq!(intervals(2, MEASURED, 12, until).len(), 7);
        // With cheaper exchanges, intervals have their minimum length.
        assert_eq!(intervals(1, Duration::from_micros(20), 24, until).len(), 24);
    }

    #[test]
    fn intervals_grow_round_by_round_up_to_the_longest() {
        let ends = intervals(1, Duration::from_micros(10), 3, Duration::from_secs(2));
        let mut before = Duration::ZERO;
        let lengths: Vec<u128> = ends
            .iter()
            .map(|(now, _)| now.saturating_sub(std::mem::replace(&mut before, *now)))
            .map(|length| length.as_millis())
            .collect();
        assert_eq!(lengths[..9], [4, 4, 4, 8, 8, 8, 16, 16, 16]);
        assert_eq!(lengths[15..], vec![100; lengths.len() - 15]);
    }

    #[test]
    fn intervals_grow_with_the_cost_of_an_exchange() {
        let mut schedule = Schedule::new(MEASURED);
        assert_eq!(schedule.interval(2), Duration::from_millis(14));
        for _ in 0..64 {
            schedule.exchanged(2, Duration::from_micros(800));
        }
        let interval = schedule.interval(2);
        assert!(
            interval > Duration::from_millis(79) && interval <= Duration::from_millis(80),
            "{interval:?}"
        );
    }
}
