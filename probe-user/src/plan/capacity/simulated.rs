//! For tests: cores whose counters differ from their documents, as under a hypervisor.

use std::collections::BTreeMap;

use super::{
    Capacity, CounterTest, CounterTestResult, DocumentedCounters, Refusal,
    architectural::is_model_specific,
    probe::{Probe, Trial},
};
use crate::{event::Counter, machine::Pmus};

/// The counters of each core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedCore {
    /// Counters for any event.
    pub(crate) general: usize,
    /// Whether the fixed counters of the documents exist.
    pub(crate) fixed: bool,
    /// Whether the hypervisor hides model-specific events.
    pub(crate) architectural_only: bool,
}

struct SimulatedProbe {
    core: SimulatedCore,
    counters: BTreeMap<String, (Counter, DocumentedCounters)>,
}

impl Capacity {
    /// This capacity, probed on simulated cores.
    pub(crate) fn simulated(self, core: SimulatedCore, pmus: &Pmus) -> Self {
        let counters = pmus.cores().map(|pmu| {
            let documented = self.documented.get(&pmu.name).cloned().unwrap_or_default();
            let counters = DocumentedCounters {
                counters: core.general,
                constrained: match core.fixed {
                    true => documented.constrained,
                    false => Vec::new(),
                },
            };
            let test = CounterTest::for_pmu(pmu, pmus).unwrap();
            (pmu.name.clone(), (test.event, counters))
        });
        let counters = counters.collect();
        self.probed(SimulatedProbe { core, counters }, pmus)
    }
}

impl Probe for SimulatedProbe {
    fn runs(&self, trial: &Trial<'_>) -> Result<(), Refusal> {
        let Trial { pmu, hardware, .. } = *trial;
        if self.core.architectural_only && hardware.iter().any(|it| is_model_specific(&it.counter))
        {
            return Err(Refusal::ArchitecturalOnly);
        }
        let Some((_, counters)) = pmu.and_then(|pmu| self.counters.get(pmu)) else {
            return Ok(());
        };
        let all = [hardware, &trial.spare].concat();
        match counters.can_schedule(&all, counters.counters, 0) {
            true => Ok(()),
            false => Err(Refusal::Kernel(
                "the PMU cannot count them all at once".to_owned(),
            )),
        }
    }

    fn tested(&self, pmu: &str) -> Option<(Counter, CounterTestResult)> {
        let (event, counters) = self.counters.get(pmu)?;
        let mut constrained = counters.constrained.iter();
        let is_fixed = constrained.any(|(counter, spec)| counter == event && spec.fixed);
        let counted = CounterTestResult {
            executed: 1_000_000,
            counts: vec![1_000_000; counters.counters + usize::from(is_fixed)],
            held: 0,
        };
        Some((event.clone(), counted))
    }

    fn is_architectural_only(&self) -> bool {
        self.core.architectural_only
    }
}
