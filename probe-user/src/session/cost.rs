//! What reading a counter takes on this machine: some 50 ns where the core is asked, microseconds
//! where a hypervisor answers for it.

use std::collections::BTreeMap;

use probe_common::SLOTS;

use super::{Sampling, Session, SessionError, object::READ_COST, spe::Spe};
use crate::{plan::Plan, snapshot::ReadCost};

/// The least of so many runs is that of a reading which nothing disturbed.
const RUNS: u32 = 8;

/// By kind of core, where the machine has several: each kind has counters, and a way to read them,
/// of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadCosts(BTreeMap<Option<usize>, ReadCost>);

impl ReadCosts {
    /// What the counters take that are read on this CPU.
    pub(crate) fn on(&self, plan: &Plan, cpu: u32) -> ReadCost {
        let cost = self.0.get(&plan.kind_of_core(cpu));
        cost.copied().unwrap_or_default()
    }
}

/// What the programs did on a CPU since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWork {
    /// Runs of the hook.
    pub runs: u64,
    /// Those that charged a slice.
    pub charges: u64,
    /// Nanoseconds spent on samples.
    pub sampling: u64,
}

impl Session {
    /// What the programs did, by possible CPU; of samples as of the last time they were read.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses to show the programs' state.
    pub fn work(&self) -> Result<BTreeMap<u32, CpuWork>, SessionError> {
        let accesses = self.spe.as_ref().map(Spe::nanos).unwrap_or_default();
        let events = self.sampling.as_ref().map(Sampling::nanos);
        let events = events.unwrap_or_default();
        let on = |nanos: &BTreeMap<u32, u64>, cpu| nanos.get(&cpu).copied().unwrap_or(0);
        let work = self.states()?.into_iter().map(|(cpu, state)| {
            let work = CpuWork {
                runs: state.counts.runs,
                charges: state.counts.charges,
                sampling: on(&accesses, cpu) + on(&events, cpu),
            };
            (cpu, work)
        });
        Ok(work.collect())
    }

    /// Reads each counter of the first CPU of each kind of core a few times: those of a group in
    /// turns are counted as the one that is live.
    pub(super) fn measure_reads(&mut self) -> Result<(), SessionError> {
        let mut first = BTreeMap::new();
        for (at, counters) in self.counters.iter().enumerate() {
            let kind = self.config.plan.kind_of_core(counters.cpu);
            first.entry(kind).or_insert(at);
        }
        for (kind, at) in first {
            let cost = self.measure_reads_of(at)?;
            self.read_costs.0.insert(kind, cost);
        }
        Ok(())
    }

    fn measure_reads_of(&mut self, at: usize) -> Result<ReadCost, SessionError> {
        let (cpu, live) = (self.counters[at].cpu, self.counters[at].live);
        let plan = &self.config.plan;
        let fixed = &plan.groups[..plan.fixed()];
        let live = live.map_or(&[][..], |group| &plan.groups[group..=group]);
        let slots = fixed.iter().chain(live).flatten();
        let hardware: Vec<bool> = slots.map(|planned| planned.counter.is_hardware()).collect();
        let nothing = self.read_nanos(cpu, SLOTS)?;
        let mut cost = ReadCost::default();
        for (slot, hardware) in hardware.into_iter().enumerate() {
            let nanos = self.read_nanos(cpu, slot)?.saturating_sub(nothing);
            let (count, sum) = if hardware {
                (&mut cost.hardware, &mut cost.hardware_nanos)
            } else {
                (&mut cost.software, &mut cost.software_nanos)
            };
            *count += 1;
            *sum += nanos;
        }
        Ok(cost)
    }

    /// The least that a reading of the slot took; 0 where its CPU is offline.
    fn read_nanos(&mut self, cpu: u32, slot: usize) -> Result<u64, SessionError> {
        let mut least = None;
        for _ in 0..RUNS {
            let ran = self
                .object
                .programs
                .run(READ_COST, Some(cpu), &[slot as u64])?;
            let Some(nanos) = ran.map(u64::from) else {
                return Ok(0);
            };
            least = Some(least.map_or(nanos, |least: u64| least.min(nanos)));
        }
        Ok(least.unwrap_or(0))
    }
}
