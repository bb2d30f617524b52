//! Measures the cost of reading a counter on this machine: some 50 ns if the core answers,
//! microseconds if a hypervisor does.

use std::collections::BTreeMap;

use probe_common::SLOTS;

use super::{EventSampling, Session, SessionError, object::READ_COST, spe::SpeSampling};
use crate::{plan::Plan, snapshot::ReadCost};

/// Number of runs. The fastest counts, since nothing disturbed it.
const RUNS: u32 = 8;

/// Read costs by kind of core (None if the machine has only one kind): each kind has its own
/// counters and its own way to read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadCosts(BTreeMap<Option<usize>, ReadCost>);

impl ReadCosts {
    /// The cost of the counters that are read on this CPU.
    pub(crate) fn on(&self, plan: &Plan, cpu: u32) -> ReadCost {
        let cost = self.0.get(&plan.kind_of_core(cpu));
        cost.copied().unwrap_or_default()
    }
}

/// The programs' work on a CPU since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWork {
    /// Runs of the hook.
    pub runs: u64,
    /// Charges of a slice.
    pub charges: u64,
    /// Nanoseconds spent on samples.
    pub sampling: u64,
}

impl Session {
    /// The programs' work, by possible CPU. The time for samples is that of the last reading.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to read the programs' state.
    pub fn work(&self) -> Result<BTreeMap<u32, CpuWork>, SessionError> {
        let accesses = self
            .spe
            .as_ref()
            .map(SpeSampling::nanos)
            .unwrap_or_default();
        let events = self
            .sampling
            .as_ref()
            .map(EventSampling::nanos)
            .unwrap_or_default();
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

    /// Measures the read cost on the first CPU of each kind of core. Of multiplexed groups only the
    /// running one is measured.
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
        let (cpu, live) = (self.counters[at].cpu, self.counters[at].running);
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

    /// The shortest reading of a slot, in nanoseconds; 0 if the CPU is offline.
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
