//! Rotation: multiplexes groups that the PMU cannot count at once, so that the programs read only
//! the running one. On each CPU every group runs for one interval in a round. The CPUs are
//! staggered: at any moment every group runs somewhere, if there are as many CPUs as groups.
//!
//! docs/rotation.md has the cost of an exchange, and a comparison with the kernel's multiplexing.

use std::{collections::BTreeMap, time::Duration};

use probe_common::{CpuState, FlushMode, NO_GROUP};

use super::{CpuCounters, Session, SessionError, schedule::Schedule};
use crate::{
    snapshot::Hook,
    sys::clock::{now, thread_time},
};

/// The state of the rotation.
pub(crate) struct Rotation {
    /// Length of the multiplexing intervals.
    schedule: Schedule,
    /// `CLOCK_MONOTONIC` at the start of the current interval.
    started: Duration,
    /// Intervals since the start of the session.
    interval: u64,
    /// Exchanges of counters, over all CPUs.
    pub(crate) exchanges: u64,
    /// By CPU: charges at the start of the interval. A CPU without a charge since then was asleep.
    charges: BTreeMap<u32, u64>,
    random: u64,
    /// Added to the index of the group in this round, so that no periodic behaviour of a container
    /// falls into step with a group.
    offset: u64,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            started: Duration::ZERO,
            interval: 0,
            exchanges: 0,
            charges: BTreeMap::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            offset: 0,
        }
    }
}

impl Rotation {
    /// The index among `groups` of the group that is due on CPU `cpu`.
    fn group_index(&self, cpu: u32, groups: usize) -> usize {
        let position = u64::from(cpu) + self.interval + self.offset;
        usize::try_from(position % groups as u64).expect("less than groups")
    }

    /// Starts the next interval. A round of `groups` intervals starts at another group than the
    /// last round.
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

impl Session {
    /// Whether groups are multiplexed. If so, call [`Self::rotate_if_due`], and again after the
    /// time that it returns.
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.round() > 1
    }

    /// The largest number of groups that are multiplexed on one CPU.
    fn round(&self) -> usize {
        let groups =
            |counters: &CpuCounters| self.config.plan.multiplexed_groups(counters.cpu).count();
        self.counters.iter().map(groups).max().unwrap_or(0)
    }

    /// Switches to the next group if the current interval is over. Its length is `fixed`, or
    /// follows from the cost of exchanges. Returns the time until the next call.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to exchange the counters.
    pub fn rotate_if_due(&mut self, fixed: Option<Duration>) -> Result<Duration, SessionError> {
        let states = self.states()?;
        let cpus = u32::try_from(self.awake(&states).len()).unwrap_or(u32::MAX);
        let interval =
            |session: &Self| fixed.unwrap_or_else(|| session.rotation.schedule.interval(cpus));
        let left = (self.rotation.started + interval(self)).saturating_sub(now());
        if !left.is_zero() {
            return Ok(left);
        }
        self.exchange_all(&states)?;
        Ok(interval(self))
    }

    /// Switches to the next group on every CPU now. A CPU that has slept since the last exchange is
    /// not woken.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to exchange the counters.
    pub fn rotate(&mut self) -> Result<(), SessionError> {
        let states = self.states()?;
        self.exchange_all(&states)
    }

    fn exchange_all(&mut self, states: &BTreeMap<u32, CpuState>) -> Result<(), SessionError> {
        // CPU time: an exchange that waits for a CPU costs nothing.
        let before = (thread_time(), self.rotation.exchanges);
        let awake = self.awake(states);
        self.rotation.next(self.round().max(1));
        let charges = states
            .iter()
            .map(|(cpu, state)| (*cpu, state.counts.charges));
        self.rotation.charges = charges.collect();
        awake.into_iter().try_for_each(|at| self.exchange(at))?;
        self.rotation.started = now();
        let exchanges = self.rotation.exchanges - before.1;
        let took = thread_time().saturating_sub(before.0);
        let exchanges = u32::try_from(exchanges).unwrap_or(u32::MAX);
        self.rotation.schedule.exchanged(exchanges, took);
        Ok(())
    }

    /// CPUs with multiplexed groups on which a task ran since the last exchange, as indices into
    /// the counters.
    fn awake(&self, states: &BTreeMap<u32, CpuState>) -> Vec<usize> {
        let awake = |at: &usize| {
            let cpu = self.counters[*at].cpu;
            let before = self.rotation.charges.get(&cpu).copied();
            self.config.plan.multiplexed_groups(cpu).nth(1).is_some()
                && states.get(&cpu).is_some_and(|state| {
                    !is_idle(state) || before.unwrap_or(0) != state.counts.charges
                })
        };
        (0..self.counters.len()).filter(awake).collect()
    }

    /// The group that is due on a CPU; None if no group is rotated on it.
    fn due_group(&self, cpu: u32) -> Option<usize> {
        let groups: Vec<usize> = self.config.plan.multiplexed_groups(cpu).collect();
        let index = (!groups.is_empty()).then(|| self.rotation.group_index(cpu, groups.len()))?;
        groups.get(index).copied()
    }

    /// Exchanges the counters in the slots of one CPU. No group runs during the exchange: its time
    /// goes to the new group, without counts.
    fn exchange(&mut self, at: usize) -> Result<(), SessionError> {
        let counters = &self.counters[at];
        let cpu = counters.cpu;
        let (Some(old), Some(new)) = (counters.running, self.due_group(cpu)) else {
            return Ok(());
        };
        if old == new {
            return Ok(());
        }
        let mode = self.charge_mode();
        counters.stop(old)?;
        // Charges the counts of the old group since the last switch to their owner.
        self.flush(cpu, mode, (new as u64, 0))?;
        let plan = &self.config.plan;
        self.counters[at].insert_rotated(&self.object, plan, new)?;
        self.counters[at].running = Some(new);
        // The baseline is read while the group is stopped, so that all its events start at once.
        self.flush_as_is(at, mode)?;
        self.rotation.exchanges += 1;
        self.counters[at].start(&self.config.plan, new)
    }

    /// Arms every CPU. The hook returns at once on an unarmed CPU, so all counters of a CPU start
    /// at one instant.
    pub(super) fn arm_all(&mut self) -> Result<(), SessionError> {
        let mut took = Duration::ZERO;
        for at in 0..self.counters.len() {
            let cpu = self.counters[at].cpu;
            self.make_idle_rows(cpu)?;
            self.stop_before_arm(cpu)?;
            let before = thread_time();
            self.arm(at)?;
            took += thread_time().saturating_sub(before);
            self.store_gap(cpu)?;
        }
        // Arming does much the same as an exchange: its cost is assumed until one was measured.
        let cpus = u32::try_from(self.counters.len()).unwrap_or(u32::MAX);
        self.rotation.schedule = Schedule::new(took.checked_div(cpus).unwrap_or_default());
        self.rotation.started = now();
        Ok(())
    }

    /// Gives the programs the counters of a CPU, and starts the accounting on it.
    pub(super) fn arm(&mut self, at: usize) -> Result<(), SessionError> {
        let plan = &self.config.plan;
        let counters = &self.counters[at];
        counters.insert_fixed(&self.object, plan)?;
        let live = self.due_group(counters.cpu);
        if let Some(group) = live {
            counters.insert_rotated(&self.object, plan, group)?;
        }
        self.counters[at].running = live;
        self.flush_as_is(at, FlushMode::Arm)?;
        match live {
            Some(group) => self.counters[at].start(&self.config.plan, group),
            None => Ok(()),
        }
    }

    /// Flushes a CPU and keeps its running group.
    pub(crate) fn flush_as_is(&mut self, at: usize, mode: FlushMode) -> Result<(), SessionError> {
        let counters = &self.counters[at];
        let live = counters.running.map_or((NO_GROUP, 0), |group| {
            (group as u64, self.config.plan.groups[group].len() as u64)
        });
        self.flush(counters.cpu, mode, live)
    }

    /// The flush mode for the hook in use.
    pub(crate) fn charge_mode(&self) -> FlushMode {
        match self.hook() {
            Hook::SchedSwitch => FlushMode::Charge,
            Hook::CgroupSwitches => FlushMode::ChargeAndForget,
        }
    }
}

fn is_idle(state: &CpuState) -> bool {
    state.owner == probe_common::CgroupId::IDLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_one_turn_in_a_round_and_is_always_live_somewhere() {
        const GROUPS: usize = 5;
        let mut rotation = Rotation::default();
        for _ in 0..20 {
            let mut turns = vec![[0; GROUPS]; GROUPS];
            for _ in 0..GROUPS {
                let mut live = [0; GROUPS];
                for cpu in 0..5 {
                    let place = rotation.group_index(cpu, GROUPS);
                    live[place] += 1;
                    turns[cpu as usize][place] += 1;
                }
                assert_eq!(live, [1; GROUPS]);
                rotation.next(GROUPS);
            }
            assert_eq!(turns, vec![[1; GROUPS]; GROUPS]);
        }
    }
}
