//! The governor on machines with other costs than the model's.

use proptest::prelude::*;

use super::*;

const FULL: Level = Level {
    hardware: 6,
    software: 3,
    widened: 1,
    samples: true,
};

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn ladder() -> Ladder {
    Ladder::new(FULL, TEN_SECONDS, true)
}

/// The real costs of counting on a machine.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// Charges per second.
    rate: f64,
    /// Nanoseconds of a charge without its reads.
    base: f64,
    /// Nanoseconds to read a hardware counter, and a software counter.
    reads: (f64, f64),
    /// The measured read time, as a part of the real one.
    measured: f64,
    /// Nanoseconds of a pull, and additional nanoseconds per counter, which the model leaves out.
    pull: (f64, f64),
    /// Share of a CPU that samples take.
    samples: f64,
    /// Share of a CPU that scrapes take.
    other: f64,
}

impl Machine {
    fn cost(&self, level: Level, noise: f64) -> WindowCost {
        let seconds = interval(TEN_SECONDS, level).as_secs_f64();
        let counters = (level.hardware as f64, level.software as f64);
        let charge = self.base + counters.0 * self.reads.0 + counters.1 * self.reads.1;
        WindowCost {
            seconds,
            charges: self.rate * seconds * noise,
            charge,
            reads: (self.reads.0 * self.measured, self.reads.1 * self.measured),
            // For each charge there is a run that charges nothing and takes 80 ns.
            uncharged: self.rate * seconds * noise * 80.0,
            samples: match level.samples {
                true => self.samples * seconds * 1e9 * noise,
                false => 0.0,
            },
            pull: (self.pull.0 + self.pull.1 * (counters.0 + counters.1)) * noise,
            other: self.other * seconds * 1e9,
        }
    }

    fn share(&self, level: Level) -> f64 {
        self.cost(level, 1.0).share()
    }
}

fn machines() -> impl Strategy<Value = Machine> {
    let reads = (20.0..5_000.0, 10.0..200.0);
    let pull = (1e5..3e7, 0.0..3e6);
    (
        0.0..30_000.0,
        100.0..3_000.0,
        reads,
        0.2..2.0,
        pull,
        0.0..0.006,
        0.0..0.002,
    )
        .prop_map(
            |(rate, base, reads, measured, pull, samples, other)| Machine {
                rate,
                base,
                reads,
                measured,
                pull,
                samples,
                other,
            },
        )
}

/// The result of many windows.
struct Run {
    governor: Governor,
    changes: usize,
    /// The shares of the windows.
    shares: Vec<f64>,
    decisions: Vec<Decision>,
}

fn run(mut governor: Governor, windows: usize, machine: impl Fn(usize) -> (Machine, f64)) -> Run {
    let mut shares = Vec::new();
    let mut decisions = Vec::new();
    for window in 0..windows {
        let (machine, noise) = machine(window);
        let cost = machine.cost(governor.level(), noise);
        shares.push(cost.share());
        match governor.on_window(cost) {
            Decision::Stay => {}
            decision => decisions.push(decision),
        }
    }
    let changes = decisions
        .iter()
        .filter(|it| matches!(it, Decision::Change(_)));
    Run {
        changes: changes.count(),
        governor,
        shares,
        decisions,
    }
}

/// The number of windows of ten seconds in four hours.
const FOUR_HOURS: usize = 4 * 360;

const BUDGET: f64 = 0.01;

fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// Noise of the load: most windows near the mean, some far above.
fn noises() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(
        prop_oneof![8 => 0.5_f64..1.5, 1 => 0.0_f64..0.2, 1 => 1.5_f64..4.0],
        FOUR_HOURS,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Under a constant load the level converges, within the budget if any level is.
    #[test]
    fn a_constant_load_is_brought_into_the_budget(machine in machines()) {
        let run = run(Governor::new(BUDGET, ladder()), FOUR_HOURS, |_| (machine, 1.0));
        let ladder = ladder();
        let fits = (0..ladder.len()).any(|at| machine.share(ladder[at]) <= BUDGET);
        let level = run.governor.number();
        prop_assert!(run.changes <= ladder.len() + 8, "{} changes", run.changes);
        if fits {
            let second_half = mean(&run.shares[FOUR_HOURS / 2..]);
            prop_assert!(second_half <= BUDGET * 1.02, "{second_half} at level {level}");
            prop_assert!(!run.governor.is_exceeded());
        } else {
            prop_assert_eq!(level, ladder.len() - 1);
            prop_assert!(run.governor.is_exceeded());
            let exceeded = run.decisions.iter().filter(|it| matches!(it, Decision::Exceeded(_)));
            prop_assert_eq!(exceeded.count(), 1);
        }
        if machine.share(FULL) <= BUDGET {
            prop_assert_eq!(run.changes, 0);
        }
    }

    /// A noisy load neither makes the level flap nor keeps the cost above the budget.
    #[test]
    fn a_noisy_load_does_not_make_the_level_flap(machine in machines(), noise in noises()) {
        let run = run(Governor::new(BUDGET, ladder()), FOUR_HOURS, |at| (machine, noise[at]));
        prop_assert!(run.changes <= 2 * ladder().len(), "{} changes", run.changes);
        let ladder = ladder();
        let fits = (0..ladder.len()).any(|at| machine.share(ladder[at]) <= BUDGET * 0.9);
        let second_half = mean(&run.shares[FOUR_HOURS / 2..]);
        prop_assert!(!fits || second_half <= BUDGET * 1.05, "{second_half}");
    }

    /// A load in bursts does not make the level flap, whatever the period of the bursts: a step up
    /// that had to be reverted delays the next one.
    #[test]
    fn a_bursty_load_does_not_make_the_level_flap(
        machine in machines(),
        quiet in 1_usize..200,
        busy in 1_usize..50,
    ) {
        let idle = Machine { rate: machine.rate / 50.0, ..machine };
        let load = |at: usize| match at % (quiet + busy) < busy {
            true => (machine, 1.0),
            false => (idle, 1.0),
        };
        let run = run(Governor::new(BUDGET, ladder()), FOUR_HOURS, load);
        prop_assert!(run.changes <= 4 * ladder().len(), "{} changes", run.changes);
    }

    /// After the load ends, everything is counted again, step by step.
    #[test]
    fn everything_is_counted_again_step_by_step(machine in machines()) {
        let idle = Machine { rate: 1.0, samples: 0.0, pull: (1e5, 0.0), other: 0.0, ..machine };
        let load = |at: usize| match at < 100 {
            true => (machine, 1.0),
            false => (idle, 1.0),
        };
        let run = run(Governor::new(BUDGET, ladder()), 20_000, load);
        prop_assert_eq!(run.governor.number(), 0);
        let ladder = ladder();
        for decision in &run.decisions {
            if let Decision::Change(LevelChange { from, to, .. }) = decision {
                let at = |level| (0..ladder.len()).find(|at| ladder[*at] == level).unwrap();
                prop_assert!(at(*to) > at(*from) || at(*to) + 1 == at(*from));
            }
        }
    }
}

/// The order that the documentation states.
#[test]
fn events_go_first_then_short_windows_then_samples() {
    let ladder = ladder();
    let levels: Vec<_> = (0..ladder.len())
        .map(|at| ladder[at])
        .map(|it| (it.hardware, it.software, it.widened, it.samples))
        .collect();
    assert_eq!(
        levels,
        [
            (6, 3, 1, true),
            (3, 3, 1, true),
            (1, 3, 1, true),
            (0, 3, 1, true),
            (0, 1, 1, true),
            (0, 1, 2, true),
            (0, 1, 4, true),
            (0, 1, 8, true),
            (0, 1, 8, false),
        ]
    );
    // If the events cannot change any more, only windows get longer, up to 5 minutes.
    let fixed = Ladder::new(FULL, Duration::from_mins(2), false);
    assert_eq!(fixed.len(), 2);
    // One counter always stays.
    let only_hardware = Level {
        software: 0,
        ..FULL
    };
    let ladder = Ladder::new(only_hardware, TEN_SECONDS, true);
    assert!((0..ladder.len()).all(|at| ladder[at].hardware > 0));
}

/// A hypervisor that emulates counters: 4.2 us for each read, 1,000 charges a second.
#[test]
fn a_step_down_goes_to_the_first_level_within_the_budget() {
    let machine = Machine {
        rate: 1_000.0,
        base: 600.0,
        reads: (4_200.0, 60.0),
        measured: 1.0,
        pull: (1e7, 0.0),
        samples: 0.0,
        other: 0.0,
    };
    // 2.7% with six counters, 1.5% with three, 0.7% with one.
    let run = run(Governor::new(BUDGET, ladder()), 20, |_| (machine, 1.0));
    assert_eq!(run.changes, 1);
    assert_eq!(run.governor.level().hardware, 1);
}
