//! What the programs say of themselves, summed over CPUs.

use probe_common::{CpuState, SampledCost};

use crate::{
    session::Session,
    snapshot::{CountingCost, Health, MapMemory, Refused},
    sys::{bpf, clock::now},
};

impl Session {
    pub(super) fn health(&self, states: &[CpuState], rows: usize, flushes: u64) -> Health {
        let sum = |field: fn(&CpuState) -> u64| states.iter().map(field).sum();
        let sampled = |field: fn(&CpuState) -> SampledCost| SampledCost {
            samples: states.iter().map(|state| field(state).samples).sum(),
            nanos: states.iter().map(|state| field(state).nanos).sum(),
        };
        let (same, changed) = (sampled(|state| state.same), sampled(|state| state.changed));
        let elapsed = now().saturating_sub(self.began);
        let read = |cpu| self.read_costs.on(&self.config.plan, cpu);
        Health {
            hook: self.hook(),
            runs: sum(|state| state.runs),
            charges: sum(|state| state.charges),
            same,
            changed,
            cost: CountingCost::of(states, elapsed, read, same, changed),
            flushes,
            exchanges: self.rotation.exchanges,
            rows,
            memory: MapMemory::of(rows, self.max_rows as usize, states.len()),
            rebased: sum(|state| state.rebased),
            read_errors: sum(|state| state.read_errors),
            overflowed: sum(|state| state.overflowed),
            refused: Refused::of(states),
            map_retries: bpf::retries(),
            lost_events: sum(|state| state.lost_events),
            missed_switches: self.missed_switches + sum(|state| state.missed_switches),
            moved_running: sum(|state| state.moved),
            late_switches: sum(|state| state.late),
            estimated_nanos: sum(|state| state.missed_nanos),
        }
    }
}
