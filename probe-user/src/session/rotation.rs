//! Rotation: groups that the PMU cannot count at once take turns, so that the programs read only
//! the live one. On each CPU every group has one turn in a round; the CPUs are staggered, so that
//! at any moment every group is live somewhere (where there are as many CPUs as groups).
//!
//! docs/rotation.md has what a turn costs, and how this compares with the kernel's multiplexing.

use std::{collections::BTreeMap, time::Duration};

use probe_common::{CpuState, FlushMode, NO_GROUP};

use super::{CpuCounters, Session, SessionError, schedule::Schedule};
use crate::{
    snapshot::Hook,
    sys::clock::{now, thread_time},
};

/// Where the rotation stands.
pub(crate) struct Rotation {
    /// How long turns last.
    schedule: Schedule,
    /// `CLOCK_MONOTONIC` when the present turn began.
    began: Duration,
    /// Turns taken since the start.
    turn: u64,
    /// Exchanges of counters, over all CPUs.
    pub(crate) exchanges: u64,
    /// What a CPU had charged at its last turn: one that charged nothing since was asleep.
    charges: BTreeMap<u32, u64>,
    random: u64,
    /// Added to the place of a group in this round, so that no rhythm of a container meets a
    /// group's.
    offset: u64,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            began: Duration::ZERO,
            turn: 0,
            exchanges: 0,
            charges: BTreeMap::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            offset: 0,
        }
    }
}

impl Rotation {
    /// The place of the group among `groups` whose turn it is on CPU `cpu`.
    fn place(&self, cpu: u32, groups: usize) -> usize {
        let place = u64::from(cpu) + self.turn + self.offset;
        usize::try_from(place % groups as u64).expect("less than groups")
    }

    /// The next turn; a round of `groups` turns begins at another group than the one before.
    fn next(&mut self, groups: usize) {
        self.turn += 1;
        if self.turn.is_multiple_of(groups as u64) {
            self.schedule.round_ends();
            // xorshift64: any sequence without a short period will do.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.offset = self.random >> 32;
        }
    }
}

impl Session {
    /// True where groups take turns: call [`Self::take_turn`] then, and again after as long as it
    /// says.
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.round() > 1
    }

    /// The most groups that take turns on a CPU.
    fn round(&self) -> usize {
        let turns = |counters: &CpuCounters| self.config.plan.turns(counters.cpu).count();
        self.counters.iter().map(turns).max().unwrap_or(0)
    }

    /// Gives the next group its turn where the present turn has lasted for as long as it should:
    /// `fixed`, or by what exchanges cost. Returns when to look again.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses to exchange the counters.
    pub fn take_turn(&mut self, fixed: Option<Duration>) -> Result<Duration, SessionError> {
        let states = self.states()?;
        let cpus = u32::try_from(self.awake(&states).len()).unwrap_or(u32::MAX);
        let turn = |session: &Self| fixed.unwrap_or_else(|| session.rotation.schedule.turn(cpus));
        let left = (self.rotation.began + turn(self)).saturating_sub(now());
        if !left.is_zero() {
            return Ok(left);
        }
        self.exchange_all(&states)?;
        Ok(turn(self))
    }

    /// Gives the next group its turn on every CPU, at once. A CPU that has slept since its last
    /// turn is left asleep.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses to exchange the counters.
    pub fn rotate(&mut self) -> Result<(), SessionError> {
        let states = self.states()?;
        self.exchange_all(&states)
    }

    fn exchange_all(&mut self, states: &BTreeMap<u32, CpuState>) -> Result<(), SessionError> {
        // Of CPU time: an exchange that waits for a CPU costs nothing.
        let before = (thread_time(), self.rotation.exchanges);
        let awake = self.awake(states);
        self.rotation.next(self.round().max(1));
        let charges = states.iter();
        let charges = charges.map(|(cpu, state)| (*cpu, state.counts.charges));
        self.rotation.charges = charges.collect();
        awake.into_iter().try_for_each(|at| self.exchange(at))?;
        self.rotation.began = now();
        let exchanges = self.rotation.exchanges - before.1;
        let took = thread_time().saturating_sub(before.0);
        let exchanges = u32::try_from(exchanges).unwrap_or(u32::MAX);
        self.rotation.schedule.exchanged(exchanges, took);
        Ok(())
    }

    /// Where groups take turns, and something ran since the last one; indices into the counters.
    fn awake(&self, states: &BTreeMap<u32, CpuState>) -> Vec<usize> {
        let awake = |at: &usize| {
            let cpu = self.counters[*at].cpu;
            let before = self.rotation.charges.get(&cpu).copied();
            self.config.plan.turns(cpu).nth(1).is_some()
                && states.get(&cpu).is_some_and(|state| {
                    !asleep(state) || before.unwrap_or(0) != state.counts.charges
                })
        };
        (0..self.counters.len()).filter(awake).collect()
    }

    /// The group whose turn it is on a CPU; None where none takes turns there.
    fn due(&self, cpu: u32) -> Option<usize> {
        let turns: Vec<usize> = self.config.plan.turns(cpu).collect();
        let place = (!turns.is_empty()).then(|| self.rotation.place(cpu, turns.len()))?;
        turns.get(place).copied()
    }

    /// Exchanges the counters in the slots of one CPU. While they are exchanged no group is live;
    /// the time goes to the new one's, without counts.
    fn exchange(&mut self, at: usize) -> Result<(), SessionError> {
        let counters = &self.counters[at];
        let cpu = counters.cpu;
        let (Some(old), Some(new)) = (counters.live, self.due(cpu)) else {
            return Ok(());
        };
        if old == new {
            return Ok(());
        }
        let mode = self.charge_mode();
        counters.stop(old)?;
        // Charges what the old group has counted since the last switch to whom it belongs.
        self.flush(cpu, mode, (new as u64, 0))?;
        let plan = &self.config.plan;
        self.counters[at].insert_rotated(&self.object, plan, new)?;
        self.counters[at].live = Some(new);
        // The baseline is taken while the group stands still, so that all its events start as one.
        self.flush_as_is(at, mode)?;
        self.rotation.exchanges += 1;
        self.counters[at].start(&self.config.plan, new)
    }

    /// Arms every CPU: the hook returns at once on one that is not armed, so each starts in one
    /// instant.
    pub(super) fn arm_all(&mut self) -> Result<(), SessionError> {
        let mut took = Duration::ZERO;
        for at in 0..self.counters.len() {
            let cpu = self.counters[at].cpu;
            self.make_idle_rows(cpu)?;
            self.stop_before_arm(cpu)?;
            let before = thread_time();
            self.arm(at)?;
            took += thread_time().saturating_sub(before);
            self.note_gap(cpu)?;
        }
        // Much the same is done as at an exchange: what it costs until one was measured.
        let cpus = u32::try_from(self.counters.len()).unwrap_or(u32::MAX);
        self.rotation.schedule = Schedule::new(took.checked_div(cpus).unwrap_or_default());
        self.rotation.began = now();
        Ok(())
    }

    /// Gives the programs the counters of a CPU, and starts the accounting there.
    pub(super) fn arm(&mut self, at: usize) -> Result<(), SessionError> {
        let plan = &self.config.plan;
        let counters = &self.counters[at];
        counters.insert_fixed(&self.object, plan)?;
        let live = self.due(counters.cpu);
        if let Some(group) = live {
            counters.insert_rotated(&self.object, plan, group)?;
        }
        self.counters[at].live = live;
        self.flush_as_is(at, FlushMode::Arm)?;
        match live {
            Some(group) => self.counters[at].start(&self.config.plan, group),
            None => Ok(()),
        }
    }

    /// Flushes a CPU whose live group stays what it is.
    pub(crate) fn flush_as_is(&mut self, at: usize, mode: FlushMode) -> Result<(), SessionError> {
        let counters = &self.counters[at];
        let live = counters.live.map_or((NO_GROUP, 0), |group| {
            (group as u64, self.config.plan.groups[group].len() as u64)
        });
        self.flush(counters.cpu, mode, live)
    }

    /// How a flush charges under the hook in use.
    pub(crate) fn charge_mode(&self) -> FlushMode {
        match self.hook() {
            Hook::SchedSwitch => FlushMode::Charge,
            Hook::CgroupSwitches => FlushMode::ChargeAndForget,
        }
    }
}

fn asleep(state: &CpuState) -> bool {
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
                    let place = rotation.place(cpu, GROUPS);
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
