//! The CPUs that a session counts on ([`CountedCpus`]): their counters, the multiplexed group that
//! runs on each, and the hook that sees changes of the owner.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use probe_common::{CgroupId, CpuState, FlushMode, NO_GROUP, UsageKey, UsageRow};

use super::{
    Config, CpuCounters, EbpfObject, Rotation, SessionError, flush,
    hook::{SchedExitHook, SwitchHook},
    pins::SessionPins,
    pull::make_idle_rows,
};
use crate::sys::clock::thread_time;

/// The CPUs that a session counts on.
pub(crate) struct CountedCpus {
    config: Arc<Config>,
    pub(crate) counters: Vec<CpuCounters>,
    pub(crate) hook: SwitchHook,
    pub(crate) rotation: Rotation,
    /// Number of flushes of CPUs since the session began.
    pub(crate) flushes: u64,
}

impl CountedCpus {
    /// Opens the counters of these CPUs.
    pub(super) fn open(config: &Arc<Config>, cpus: &[u32]) -> Result<Self, SessionError> {
        let counters = cpus.iter().map(|cpu| CpuCounters::open(&config.plan, *cpu));
        Ok(Self {
            counters: counters.collect::<Result<_, _>>()?,
            config: Arc::clone(config),
            hook: SwitchHook::default(),
            rotation: Rotation::default(),
            flushes: 0,
        })
    }

    /// The CPUs' numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.counters.iter().map(|counters| counters.cpu)
    }

    /// Arms every CPU: the hook charges on a CPU only once the CPU is armed. So all counters of a
    /// CPU start at one instant.
    pub(super) fn arm_all(
        &mut self,
        object: &mut EbpfObject,
        mut pins: Option<&mut SessionPins>,
    ) -> Result<(), SessionError> {
        let mut arming_time = Duration::ZERO;
        for at in 0..self.counters.len() {
            let cpu = self.counters[at].cpu;
            make_idle_rows(object, &self.config.plan, cpu);
            if let Some(pins) = &mut pins {
                pins.handover.stop(object, cpu)?;
            }
            let before = thread_time();
            self.arm(object, at)?;
            arming_time += thread_time().saturating_sub(before);
            if let Some(pins) = &mut pins {
                pins.handover.store_gap(object, cpu)?;
            }
        }
        self.rotation.start(self.counters.len(), arming_time);
        Ok(())
    }

    /// Gives the programs the counters of a CPU, and starts the accounting on it. `at` is an index
    /// into `counters`.
    pub(super) fn arm(&mut self, object: &mut EbpfObject, at: usize) -> Result<(), SessionError> {
        let plan = &self.config.plan;
        let counters = &mut self.counters[at];
        counters.insert_fixed(object, plan)?;
        let due_group = self.rotation.due_group(plan, counters.cpu);
        if let Some(group) = due_group {
            counters.insert_rotated(object, plan, group)?;
        }
        counters.running = due_group;
        self.flush_as_is(object, at, FlushMode::Arm)?;
        match due_group {
            Some(group) => self.counters[at].start(&self.config.plan, group),
            None => Ok(()),
        }
    }

    /// Inserts a row on one CPU for each of these owners that has none there. `created_at` is the
    /// row's time of creation, in ns of the programs' clock.
    pub(super) fn make_rows(
        &self,
        object: &EbpfObject,
        created_at: u64,
        owners: impl Iterator<Item = CgroupId>,
    ) -> Result<(), SessionError> {
        let config = &self.config;
        let is_counted = |cpu: &u32| config.counts_on_cpus() && config.plan.counts_on(0, *cpu);
        let Some(cpu) = self.numbers().find(is_counted) else {
            return Ok(());
        };
        let cpu = u16::try_from(cpu).expect("the key's CPU is 16 bits wide");
        let row = UsageRow {
            made: created_at,
            ..UsageRow::ZERO
        };
        for cgroup in owners {
            let key = UsageKey {
                cgroup,
                tgid: 0,
                cpu,
                group: 0,
            };
            object.maps.usage.add(&key, &row)?;
        }
        Ok(())
    }

    /// Flushes a CPU; see [`flush::run`].
    pub(super) fn flush(
        &mut self,
        object: &mut EbpfObject,
        cpu: u32,
        mode: FlushMode,
        running: (u64, u64),
    ) -> Result<(), SessionError> {
        let multiplexed = self.config.plan.multiplexed_groups(cpu).nth(1).is_some();
        let ran = flush::run(object, cpu, mode, running, multiplexed)?;
        self.flushes += u64::from(ran);
        Ok(())
    }

    /// Flushes a CPU whose multiplexed group stays the same.
    fn flush_as_is(
        &mut self,
        object: &mut EbpfObject,
        at: usize,
        mode: FlushMode,
    ) -> Result<(), SessionError> {
        let counters = &self.counters[at];
        let running = counters.running.map_or((NO_GROUP, 0), |group| {
            (group as u64, self.config.plan.groups[group].len() as u64)
        });
        self.flush(object, counters.cpu, mode, running)
    }

    /// Flushes the CPUs that are not idle.
    pub(super) fn flush_busy(
        &mut self,
        object: &mut EbpfObject,
        states: &BTreeMap<u32, CpuState>,
    ) -> Result<(), SessionError> {
        let mode = self.hook.charge_mode();
        for at in 0..self.counters.len() {
            let state = states.get(&self.counters[at].cpu);
            if state.is_none_or(|state| state.owner != CgroupId::IDLE) {
                self.flush_as_is(object, at, mode)?;
            }
        }
        Ok(())
    }

    /// Charges the open slices, and reopens them for the tasks that run now.
    fn reopen_slices(&mut self, object: &mut EbpfObject) -> Result<(), SessionError> {
        (0..self.counters.len()).try_for_each(|at| self.flush_as_is(object, at, FlushMode::Charge))
    }

    /// Replaces the hook `cgroup-switches` by `sched-switch`, after it missed switches.
    pub(super) fn fall_back(&mut self, object: &mut EbpfObject) -> Result<(), SessionError> {
        // From here on the programs see each change of the owner, so they can know the owners of
        // open slices.
        match self.hook.fall_back(object)? {
            true => self.reopen_slices(object),
            false => Ok(()),
        }
    }

    /// Attaches the program `sched_exit`, unless it is attached or this kernel cannot attach it.
    pub(super) fn watch_exits(&mut self, object: &mut EbpfObject) -> Result<(), SessionError> {
        // After a hidden switch, the open slice may be that of a task that no longer runs.
        match self.config.counts_on_cpus() && self.hook.watch_exits(object)? {
            true => self.reopen_slices(object),
            false => Ok(()),
        }
    }

    /// Reacts to the first missed switch: attaches `sched_exit` if possible, and logs the outcome.
    pub(super) fn react_to_missed(&mut self, object: &mut EbpfObject) {
        if self.hook.exits == SchedExitHook::NotNeeded {
            let refused = self.watch_exits(object).err();
            self.hook.log_missed(refused.as_ref());
        }
    }

    /// The largest number of groups that are multiplexed on one CPU.
    pub(super) fn round(&self) -> usize {
        let groups = |cpu| self.config.plan.multiplexed_groups(cpu).count();
        self.numbers().map(groups).max().unwrap_or(0)
    }

    /// Switches to the next group if the current multiplexing interval is over. The interval has
    /// the length `fixed`, or one that follows from the cost of exchanges. Returns the time until
    /// the next call.
    pub(super) fn rotate_if_due(
        &mut self,
        object: &mut EbpfObject,
        fixed: Option<Duration>,
    ) -> Result<Duration, SessionError> {
        let states = object.maps.state.get(0)?;
        let cpus = self.awake(&states).len();
        let interval = |rotation: &Rotation| fixed.unwrap_or_else(|| rotation.interval(cpus));
        let remaining = self.rotation.left(interval(&self.rotation));
        if !remaining.is_zero() {
            return Ok(remaining);
        }
        self.rotate(object, &states)?;
        Ok(interval(&self.rotation))
    }

    /// Switches to the next group on every CPU that was awake.
    pub(super) fn rotate(
        &mut self,
        object: &mut EbpfObject,
        states: &BTreeMap<u32, CpuState>,
    ) -> Result<(), SessionError> {
        // The cost is CPU time: waiting for a CPU costs nothing.
        let (time_before, exchanges_before) = (thread_time(), self.rotation.exchanges);
        let awake = self.awake(states);
        self.rotation.begin(self.round().max(1), states);
        for at in awake {
            self.exchange(object, at)?;
        }
        let took = thread_time().saturating_sub(time_before);
        self.rotation.exchanged(exchanges_before, took);
        Ok(())
    }

    /// CPUs with multiplexed groups on which a task ran since the last exchange, as indices into
    /// `counters`.
    fn awake(&self, states: &BTreeMap<u32, CpuState>) -> Vec<usize> {
        let awake = |at: &usize| {
            let cpu = self.counters[*at].cpu;
            let state = states.get(&cpu);
            self.config.plan.multiplexed_groups(cpu).nth(1).is_some()
                && state.is_some_and(|state| self.rotation.was_awake(cpu, state))
        };
        (0..self.counters.len()).filter(awake).collect()
    }

    /// Exchanges the counters in the slots of one CPU. No multiplexed group runs during the
    /// exchange: this time is enabled time of the new group, without counts.
    fn exchange(&mut self, object: &mut EbpfObject, at: usize) -> Result<(), SessionError> {
        let plan = &self.config.plan;
        let counters = &self.counters[at];
        let cpu = counters.cpu;
        let (Some(old), Some(new)) = (counters.running, self.rotation.due_group(plan, cpu)) else {
            return Ok(());
        };
        if old == new {
            return Ok(());
        }
        let mode = self.hook.charge_mode();
        counters.stop(old)?;
        // Charges the counts of the old group since the last switch to their owner.
        self.flush(object, cpu, mode, (new as u64, 0))?;
        self.counters[at].insert_rotated(object, &self.config.plan, new)?;
        self.counters[at].running = Some(new);
        // The baseline is read while the group is stopped, so that all its events start at once.
        self.flush_as_is(object, at, mode)?;
        self.rotation.exchanges += 1;
        self.counters[at].start(&self.config.plan, new)
    }
}
