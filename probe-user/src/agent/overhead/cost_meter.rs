//! Measures the cost of counting in a window: the time of the programs and of the agent.

use std::{collections::BTreeMap, time::Duration};

use probe_common::{Field as _, SampledCost};

use super::WindowCost;
use crate::{
    pipeline::Pipeline,
    session::{CpuWork, SessionError},
    snapshot::{Health, ReadCost},
    sys::clock::{now, process_time, thread_time},
    window::float,
};

/// Measures the cost of windows, from the totals at the end of the last window.
pub(in crate::agent) struct CostMeter {
    at: Duration,
    work: BTreeMap<u32, CpuWork>,
    runs: TimedRuns,
    process: Duration,
    /// CPU time of this thread at the start of the current pull.
    pull: Duration,
}

impl CostMeter {
    /// Begins to measure. The start of a session belongs to no window.
    pub(in crate::agent) fn new(pipeline: &Pipeline) -> Result<Self, SessionError> {
        Ok(Self {
            at: now(),
            work: pipeline.work()?,
            runs: TimedRuns::from_health(&pipeline.snapshot().health),
            process: process_time(),
            pull: thread_time(),
        })
    }

    /// Begins to time a pull.
    pub(in crate::agent) fn begin_pull(&mut self) {
        self.pull = thread_time();
    }

    /// The cost since the last window. Called after the window is published.
    pub(in crate::agent) fn end_window(
        &mut self,
        pipeline: &Pipeline,
    ) -> Result<WindowCost, SessionError> {
        let health = &pipeline.snapshot().health;
        let pull = nanos(thread_time().saturating_sub(self.pull));
        let after = Self::new(pipeline)?;
        let process = nanos(after.process.saturating_sub(self.process));
        let cost = WindowCost {
            seconds: after.at.saturating_sub(self.at).as_secs_f64(),
            pull,
            other: (process - pull).max(0.0),
            ..program_cost(
                &self.work,
                &after.work,
                after.runs.since(self.runs),
                health.cost.read,
            )
        };
        *self = after;
        Ok(cost)
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// The timed runs of the programs: those with a change of owner, and those without.
#[derive(Clone, Copy, Debug, Default)]
struct TimedRuns {
    changed: SampledCost,
    same: SampledCost,
}

impl TimedRuns {
    fn from_health(health: &Health) -> Self {
        Self {
            changed: health.sum.changed,
            same: health.sum.same,
        }
    }

    /// The timed runs since `before`. A kind without timed runs since then keeps all its
    /// earlier ones.
    fn since(self, before: Self) -> Self {
        let since = |now: SampledCost, before: SampledCost| {
            let window = now.minus(&before);
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

/// The cost of the programs on the CPU where they took the most time.
fn program_cost(
    before: &BTreeMap<u32, CpuWork>,
    now: &BTreeMap<u32, CpuWork>,
    runs: TimedRuns,
    read: ReadCost,
) -> WindowCost {
    let mean = |sampled: SampledCost| sampled.nanos.checked_div(sampled.samples);
    // One run in 1,024 is timed. A charge costs at least the reads of its counters, even if no
    // charge was timed.
    let charge = mean(runs.changed).unwrap_or(0).max(read.all());
    let same = mean(runs.same).unwrap_or(0);
    let nothing = CpuWork::default();
    let cpu_cost = |(cpu, now): (&u32, &CpuWork)| {
        let before = before.get(cpu).unwrap_or(&nothing);
        let gained = |now: u64, before: u64| float(now.saturating_sub(before));
        let charges = gained(now.charges, before.charges);
        let runs = gained(now.runs, before.runs);
        WindowCost {
            charges,
            charge: float(charge),
            reads: nanos_per_read(read),
            uncharged: (runs - charges).max(0.0) * float(same),
            samples: gained(now.sampling, before.sampling),
            ..WindowCost::default()
        }
    };
    let took = |it: &WindowCost| it.charges * it.charge + it.uncharged + it.samples;
    let cpus = now.iter().map(cpu_cost);
    cpus.max_by(|a, b| took(a).total_cmp(&took(b)))
        .unwrap_or_default()
}

/// Nanoseconds to read one hardware counter, and one software counter.
fn nanos_per_read(read: ReadCost) -> (f64, f64) {
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
    fn the_cpu_with_the_highest_cost_in_the_window_counts() {
        let read = ReadCost {
            hardware: 2,
            hardware_nanos: 400,
            software: 1,
            software_nanos: 50,
        };
        let runs = TimedRuns {
            same: SampledCost {
                samples: 10,
                nanos: 800,
            },
            ..TimedRuns::default()
        };
        // The first CPU did more since the session began, and less in the window.
        let before = [(0, work(9_000, 8_000)), (4, work(100, 50))].into();
        let now = [(0, work(9_010, 8_005)), (4, work(300, 150))].into();
        let cost = program_cost(&before, &now, runs, read);
        assert_eq!((cost.charges, cost.uncharged), (100.0, 100.0 * 80.0));
        // No charge was timed: it costs at least the reads of its counters.
        assert_eq!((cost.charge, cost.reads), (450.0, (200.0, 50.0)));
    }

    /// A month of charges of 300 ns does not hide that a charge takes 900 ns now.
    #[test]
    fn a_window_has_its_own_mean() {
        let sampled = |samples, nanos| TimedRuns {
            changed: SampledCost { samples, nanos },
            same: SampledCost { samples: 7, nanos },
        };
        let before = sampled(1_000_000, 300_000_000);
        let now = sampled(1_000_010, 300_009_000);
        let window = now.since(before);
        assert_eq!((window.changed.samples, window.changed.nanos), (10, 9_000));
        // No run without a change of owner was timed since, so all timed ones count.
        assert_eq!(window.same.nanos, 300_009_000);
    }
}
