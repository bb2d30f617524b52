//! Measure: what the programs and the agent took in a window.

use std::time::Duration;

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
    work: Vec<CpuWork>,
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
            ..of_programs(&self.work, &after.work, health)
        };
        *self = after;
        Ok(spent)
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// What the programs took on the CPU where they took most.
fn of_programs(before: &[CpuWork], now: &[CpuWork], health: &Health) -> Spent {
    let mean = |sampled: &SampledCost| sampled.nanos.checked_div(sampled.samples);
    let read = health.cost.read;
    // One run in 1,024 is sampled: before the first of them the counters' own cost is known.
    let charge = mean(&health.sum.changed).unwrap_or(0).max(read.all());
    let same = mean(&health.sum.same).unwrap_or(0);
    let nothing = CpuWork::default();
    let of_cpu = |(at, now): (usize, &CpuWork)| {
        let before = before.get(at).unwrap_or(&nothing);
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
    let cpus = now.iter().enumerate().map(of_cpu);
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
    use crate::snapshot::CountingCost;

    fn work(runs: u64, charges: u64) -> CpuWork {
        CpuWork {
            runs,
            charges,
            sampling: 0,
        }
    }

    #[test]
    fn the_cpu_that_took_most_in_this_window_counts() {
        let mut health = Health {
            cost: CountingCost {
                read: ReadCost {
                    hardware: 2,
                    hardware_nanos: 400,
                    software: 1,
                    software_nanos: 50,
                },
                ..CountingCost::default()
            },
            ..Health::default()
        };
        health.sum.same = SampledCost {
            samples: 10,
            nanos: 800,
        };
        // The first CPU did more since the session began, and less in the window.
        let before = [work(9_000, 8_000), work(100, 50)];
        let now = [work(9_010, 8_005), work(300, 150)];
        let spent = of_programs(&before, &now, &health);
        assert_eq!((spent.charges, spent.rest), (100.0, 100.0 * 80.0));
        // No charge was sampled: it takes what its counters take at least.
        assert_eq!((spent.charge, spent.reads), (450.0, (200.0, 50.0)));
    }
}
