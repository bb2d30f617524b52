//! Measure: what the programs and the agent took in a window.

use std::{collections::BTreeMap, time::Duration};

use probe_common::SampledCost;

use super::Spent;
use crate::{
    pipeline::Pipeline,
    session::{CpuWork, SessionError},
    snapshot::{Health, ReadCost},
    sys::clock::{now, process_time, thread_time},
    window::float,
};

/// What had been taken at the end of a window.
pub(in crate::agent) struct Mark {
    at: Duration,
    work: BTreeMap<u32, CpuWork>,
    runs: Sampled,
    process: Duration,
    /// CPU time of this thread when the pull began that is at work.
    pull: Duration,
}

impl Mark {
    /// Measures from here on: what starting a session took is no part of any window.
    pub(in crate::agent) fn new(pipeline: &Pipeline) -> Result<Self, SessionError> {
        Ok(Self {
            at: now(),
            work: pipeline.work()?,
            runs: Sampled::of(&pipeline.snapshot().health),
            process: process_time(),
            pull: thread_time(),
        })
    }

    /// A pull begins.
    pub(in crate::agent) fn pulls(&mut self) {
        self.pull = thread_time();
    }

    /// What was taken since the last time; the window was published.
    pub(in crate::agent) fn window(&mut self, pipeline: &Pipeline) -> Result<Spent, SessionError> {
        let health = &pipeline.snapshot().health;
        let pull = nanos(thread_time().saturating_sub(self.pull));
        let after = Self::new(pipeline)?;
        let process = nanos(after.process.saturating_sub(self.process));
        let spent = Spent {
            seconds: after.at.saturating_sub(self.at).as_secs_f64(),
            pull,
            other: (process - pull).max(0.0),
            ..of_programs(
                &self.work,
                &after.work,
                after.runs.since(self.runs),
                health.cost.read,
            )
        };
        *self = after;
        Ok(spent)
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// The runs of the programs whose time was taken.
#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    changed: SampledCost,
    same: SampledCost,
}

impl Sampled {
    fn of(health: &Health) -> Self {
        Self {
            changed: health.sum.changed,
            same: health.sum.same,
        }
    }

    /// Those of a window; where it has none of a kind, all so far.
    fn since(self, before: Self) -> Self {
        let since = |now: SampledCost, before: SampledCost| {
            let window = SampledCost {
                samples: now.samples.saturating_sub(before.samples),
                nanos: now.nanos.saturating_sub(before.nanos),
            };
            match window.samples {
                0 => now,
                _ => window,
            }
        };
        Self {
            changed: since(self.changed, before.changed),
            same: since(self.same, before.same),
        }
    }
}

/// What the programs took on the CPU where they took most.
fn of_programs(
    before: &BTreeMap<u32, CpuWork>,
    now: &BTreeMap<u32, CpuWork>,
    runs: Sampled,
    read: ReadCost,
) -> Spent {
    let mean = |sampled: SampledCost| sampled.nanos.checked_div(sampled.samples);
    // One run in 1,024 is sampled: before the first of them the counters' own cost is known.
    let charge = mean(runs.changed).unwrap_or(0).max(read.all());
    let same = mean(runs.same).unwrap_or(0);
    let nothing = CpuWork::default();
    let of_cpu = |(cpu, now): (&u32, &CpuWork)| {
        let before = before.get(cpu).unwrap_or(&nothing);
        let gained = |now: u64, before: u64| float(now.saturating_sub(before));
        let charges = gained(now.charges, before.charges);
        let runs = gained(now.runs, before.runs);
        Spent {
            charges,
            charge: float(charge),
            reads: each(read),
            rest: (runs - charges).max(0.0) * float(same),
            samples: gained(now.sampling, before.sampling),
            ..Spent::default()
        }
    };
    let took = |it: &Spent| it.charges * it.charge + it.rest + it.samples;
    let cpus = now.iter().map(of_cpu);
    cpus.max_by(|a, b| took(a).total_cmp(&took(b)))
        .unwrap_or_default()
}

/// Nanoseconds to read one counter of hardware, and one of the kernel's own.
fn each(read: ReadCost) -> (f64, f64) {
    let each = |nanos: u64, count: u32| float(nanos) / f64::from(count.max(1));
    (
        each(read.hardware_nanos, read.hardware),
        each(read.software_nanos, read.software),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(runs: u64, charges: u64) -> CpuWork {
        CpuWork {
            runs,
            charges,
            sampling: 0,
        }
    }

    #[test]
    fn the_cpu_that_took_most_in_this_window_counts() {
        let read = ReadCost {
            hardware: 2,
            hardware_nanos: 400,
            software: 1,
            software_nanos: 50,
        };
        let runs = Sampled {
            same: SampledCost {
                samples: 10,
                nanos: 800,
            },
            ..Sampled::default()
        };
        // The first CPU did more since the session began, and less in the window.
        let before = [(0, work(9_000, 8_000)), (4, work(100, 50))].into();
        let now = [(0, work(9_010, 8_005)), (4, work(300, 150))].into();
        let spent = of_programs(&before, &now, runs, read);
        assert_eq!((spent.charges, spent.rest), (100.0, 100.0 * 80.0));
        // No charge was sampled: it takes what its counters take at least.
        assert_eq!((spent.charge, spent.reads), (450.0, (200.0, 50.0)));
    }

    /// A month at 300 ns does not hide that a charge takes 900 ns now.
    #[test]
    fn a_window_has_its_own_mean() {
        let sampled = |samples, nanos| Sampled {
            changed: SampledCost { samples, nanos },
            same: SampledCost { samples: 7, nanos },
        };
        let before = sampled(1_000_000, 300_000_000);
        let now = sampled(1_000_010, 300_009_000);
        let window = now.since(before);
        assert_eq!((window.changed.samples, window.changed.nanos), (10, 9_000));
        // Of the other kind none was sampled since: the mean of all stands for it.
        assert_eq!(window.same.nanos, 300_009_000);
    }
}
