//! Measures the cost of reading a counter on this machine: some 50 ns if the core answers,
//! microseconds if a hypervisor does.

use std::collections::{BTreeMap, btree_map::Entry};

use probe_common::SLOTS;

use super::{CpuCounters, EbpfObject, SessionError, object::READ_COST};
use crate::{plan::Plan, snapshot::ReadCost};

/// Number of runs. The fastest run counts, since it was disturbed least.
const RUNS: u32 = 8;

/// Read costs by kind of core (None if the machine has only one kind): each kind has its own
/// counters and its own way to read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadCosts(BTreeMap<Option<usize>, ReadCost>);

impl ReadCosts {
    /// Measures the read cost on the first CPU of each kind of core: of the fixed groups, and of
    /// the multiplexed group that is running.
    pub(super) fn measure(
        object: &mut EbpfObject,
        plan: &Plan,
        counters: &[CpuCounters],
    ) -> Result<Self, SessionError> {
        let mut costs = BTreeMap::new();
        for counters in counters {
            if let Entry::Vacant(cost) = costs.entry(plan.kind_of_core(counters.cpu)) {
                cost.insert(read_cost(object, plan, counters)?);
            }
        }
        Ok(Self(costs))
    }

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
    /// Slices that were added to the row of their owner.
    pub charges: u64,
    /// Nanoseconds spent on samples.
    pub sampling: u64,
}

fn read_cost(
    object: &mut EbpfObject,
    plan: &Plan,
    counters: &CpuCounters,
) -> Result<ReadCost, SessionError> {
    let fixed = &plan.groups[..plan.fixed()];
    let rotated = counters
        .running
        .map_or(&[][..], |group| &plan.groups[group..=group]);
    let slots = fixed.iter().chain(rotated).flatten();
    // No counter is in this slot, so this is the cost of the measurement itself.
    let overhead = read_nanos(object, counters.cpu, SLOTS)?;
    let mut cost = ReadCost::default();
    for (slot, planned) in slots.enumerate() {
        let nanos = read_nanos(object, counters.cpu, slot)?.saturating_sub(overhead);
        let (count, sum) = if planned.counter.is_hardware() {
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
fn read_nanos(object: &mut EbpfObject, cpu: u32, slot: usize) -> Result<u64, SessionError> {
    let mut fastest = None;
    for _ in 0..RUNS {
        let ran = object.programs.run(READ_COST, Some(cpu), &[slot as u64])?;
        let Some(nanos) = ran.map(u64::from) else {
            return Ok(0);
        };
        fastest = Some(fastest.map_or(nanos, |fastest: u64| fastest.min(nanos)));
    }
    Ok(fastest.unwrap_or(0))
}
