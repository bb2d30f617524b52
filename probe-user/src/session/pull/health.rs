//! The programs' counts about themselves, summed over CPUs.

use std::collections::BTreeMap;

use probe_common::{CpuCounts, CpuState, Field as _};

use crate::{
    session::{Session, SessionError, memory, object},
    snapshot::{CountingCost, Health, LogCounts},
    sys::{bpf, clock::now},
};

impl Session {
    /// The programs' counts about themselves, since the session began.
    pub(crate) fn sum_of_counts(&self) -> Result<CpuCounts, SessionError> {
        Ok(sum(&self.states()?))
    }

    /// Suppressed and dropped messages of the kernel log, if it is on.
    pub(super) fn log_counts(&self) -> Result<Option<LogCounts>, SessionError> {
        if self.object.maps.messages.is_none() {
            return Ok(None);
        }
        let mut counts = LogCounts::default();
        for cpu in self.object.maps.kernel_log.get(0)?.values() {
            for kind in cpu.kinds {
                counts.suppressed += kind.suppressed;
                counts.dropped += kind.dropped;
            }
        }
        Ok(Some(counts))
    }

    pub(super) fn health(
        &self,
        states: &BTreeMap<u32, CpuState>,
        rows: usize,
        flushes: u64,
        log: Option<LogCounts>,
    ) -> Health {
        let mut sum = sum(states);
        sum.missed_switches += self.missed_switches;
        let log_ring = object::log_ring_size(log.is_some(), self.pins.is_some());
        let elapsed = now().saturating_sub(self.began);
        let read = |cpu| self.read_costs.on(&self.config.plan, cpu);
        Health {
            hook: self.hook(),
            cost: CountingCost::from_states(states, elapsed, read, sum.same, sum.changed),
            sum,
            flushes,
            skew: None,
            handed_over: self.handed_over(),
            exchanges: self.rotation.exchanges,
            rows,
            evicted_rows: Some(self.candidates.evicted),
            memory: memory::counts_memory(rows, self.max_rows, states.len(), log_ring),
            map_retries: bpf::retries(),
            skipped_runs: None,
            log,
            names: self.config.resolver.as_ref().map(|it| it.health()),
        }
    }
}

fn sum(states: &BTreeMap<u32, CpuState>) -> CpuCounts {
    let mut sum = CpuCounts::ZERO;
    for state in states.values() {
        sum.add(&state.counts);
    }
    sum
}
