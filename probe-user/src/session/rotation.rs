//! Rotation: multiplexes groups that the PMU cannot count at once. The programs read only the group
//! that runs. On each CPU every group runs for one interval in a round. The CPUs are staggered: at
//! any moment every group runs on some CPU, if there are as many CPUs as groups.
//!
//! docs/benchmarks.md has the cost of an exchange, and docs/how-it-works/multiplexing.md a
//! comparison with the kernel's multiplexing.

use std::{collections::BTreeMap, time::Duration};

use probe_common::{CgroupId, CpuState};

use super::schedule::Schedule;
use crate::{plan::Plan, sys::clock::now};

/// The state of the rotation.
pub(crate) struct Rotation {
    /// Length of the multiplexing intervals.
    schedule: Schedule,
    /// `CLOCK_MONOTONIC` at the start of the current interval.
    started: Duration,
    /// Number of intervals since the start of the session.
    interval: u64,
    /// Number of exchanges of counters on all CPUs.
    pub(crate) exchanges: u64,
    /// By CPU: number of runs of the hook at the start of the interval. Exchanges do not change it.
    /// An idle CPU without a run since then was asleep.
    runs_at_start: BTreeMap<u32, u64>,
    /// State of the random generator.
    random: u64,
    /// A random number that is added to the index of the group in this round, so that no periodic
    /// behaviour of a container falls into step with a group.
    offset: u64,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            started: Duration::ZERO,
            interval: 0,
            exchanges: 0,
            runs_at_start: BTreeMap::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            offset: 0,
        }
    }
}

impl Rotation {
    /// Length of the current interval, given how many CPUs must switch at its end.
    pub(super) fn interval(&self, cpus: usize) -> Duration {
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        self.schedule.interval(cpus)
    }

    /// Time until an interval of this length is over.
    pub(super) fn left(&self, interval: Duration) -> Duration {
        (self.started + interval).saturating_sub(now())
    }

    /// Starts the first interval. Arming `cpus` CPUs took this CPU time.
    pub(super) fn start(&mut self, cpus: usize, took: Duration) {
        // Arming does much the same as an exchange, so its cost is assumed until an exchange was
        // measured.
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        self.schedule = Schedule::new(took.checked_div(cpus).unwrap_or_default());
        self.started = now();
    }

    /// Starts the next interval, in a round of `groups` intervals.
    pub(super) fn begin(&mut self, groups: usize, states: &BTreeMap<u32, CpuState>) {
        self.next(groups);
        let runs = states.iter().map(|(cpu, state)| (*cpu, state.counts.runs));
        self.runs_at_start = runs.collect();
    }

    /// Notes that the exchanges since number `before` took this CPU time, from which the next
    /// interval's length follows. The interval begins here.
    pub(super) fn exchanged(&mut self, before: u64, took: Duration) {
        self.started = now();
        let exchanges = u32::try_from(self.exchanges - before).unwrap_or(u32::MAX);
        self.schedule.exchanged(exchanges, took);
    }

    /// Whether a task ran on a CPU since the start of the interval.
    pub(super) fn was_awake(&self, cpu: u32, state: &CpuState) -> bool {
        let before = self.runs_at_start.get(&cpu).copied().unwrap_or(0);
        state.owner != CgroupId::IDLE || before != state.counts.runs
    }

    /// The group that is due on a CPU; None if no group is multiplexed on it.
    pub(super) fn due_group(&self, plan: &Plan, cpu: u32) -> Option<usize> {
        let groups: Vec<usize> = plan.multiplexed_groups(cpu).collect();
        let index = (!groups.is_empty()).then(|| self.group_index(cpu, groups.len()))?;
        groups.get(index).copied()
    }

    /// The index among `groups` of the group that is due on CPU `cpu`.
    fn group_index(&self, cpu: u32, groups: usize) -> usize {
        let position = u64::from(cpu) + self.interval + self.offset;
        usize::try_from(position % groups as u64).expect("less than groups")
    }

    /// Starts the next interval. Each round of `groups` intervals starts at a random group.
    fn next(&mut self, groups: usize) {
        self.interval += 1;
        if self.interval.is_multiple_of(groups as u64) {
            self.schedule.end_round();
            // xorshift64: any sequence without a short period will do.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.offset = self.random >> 32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_runs_once_a_round_on_each_cpu_and_always_on_one_cpu() {
        const GROUPS: usize = 5;
        let mut rotation = Rotation::default();
        for _ in 0..20 {
            let mut intervals = vec![[0; GROUPS]; GROUPS];
            for _ in 0..GROUPS {
                let mut running = [0; GROUPS];
                for cpu in 0..5 {
                    let index = rotation.group_index(cpu, GROUPS);
                    running[index] += 1;
                    intervals[cpu as usize][index] += 1;
                }
                assert_eq!(running, [1; GROUPS]);
                rotation.next(GROUPS);
            }
            assert_eq!(intervals, vec![[1; GROUPS]; GROUPS]);
        }
    }
}
