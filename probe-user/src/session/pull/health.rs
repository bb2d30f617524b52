//! What the programs say of themselves, summed over CPUs.

use probe_common::{CpuCounts, CpuState, Field as _};

use crate::{
    session::{Session, SessionError, memory},
    snapshot::{CountingCost, Health},
    sys::{bpf, clock::now},
};

impl Session {
    /// What the programs counted so far.
    pub(crate) fn sum_of_counts(&self) -> Result<CpuCounts, SessionError> {
        Ok(sum(&self.states()?))
    }

    pub(super) fn health(&self, states: &[CpuState], rows: usize, flushes: u64) -> Health {
        let mut sum = sum(states);
        sum.missed_switches += self.missed_switches;
        let elapsed = now().saturating_sub(self.began);
        let read = |cpu| self.read_costs.on(&self.config.plan, cpu);
        Health {
            hook: self.hook(),
            cost: CountingCost::of(states, elapsed, read, sum.same, sum.changed),
            sum,
            flushes,
            skew: None,
            handed_over: self.handed_over(),
            exchanges: self.rotation.exchanges,
            rows,
            memory: memory::of_counts(rows, self.max_rows, states.len()),
            map_retries: bpf::retries(),
            names: self.config.resolver.as_ref().map(|it| it.health()),
        }
    }
}

fn sum(states: &[CpuState]) -> CpuCounts {
    let mut sum = CpuCounts::ZERO;
    for state in states {
        sum.add(&state.counts);
    }
    sum
}
