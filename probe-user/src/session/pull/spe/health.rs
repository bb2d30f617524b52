//! What became of everything that SPE wrote, summed over CPUs.

use std::collections::BTreeMap;

use probe_common::{Field as _, spe::SpeCpu};

use crate::{
    session::{Object, Spe},
    snapshot::SpeHealth,
};

impl Spe {
    pub(super) fn health(&self, object: &Object, cpus: &[SpeCpu], rows: usize) -> SpeHealth {
        let mut sum = SpeCpu::default();
        for cpu in cpus {
            sum.add(cpu);
        }
        let mut sampler = BTreeMap::new();
        for (name, count) in self.events.iter().flat_map(|event| event.sampler.read()) {
            *sampler.entry(name.to_owned()).or_default() += count;
        }
        SpeHealth {
            hook: self.hook,
            period: self.period,
            longest: cpus.iter().map(|cpu| cpu.longest).max().unwrap_or(0),
            bpf_stats: bpf_stats(object, sum.chunks),
            sum,
            rows,
            sampler,
            aux_size: self.config.aux_size,
            unlogged: self.totals.unlogged(),
        }
    }
}

/// Nanoseconds of the programs that ran for all chunks while the kernel measured.
fn bpf_stats(object: &Object, chunks: u64) -> Option<u64> {
    let (runs, time) = object.programs.chunk_stats()?;
    let nanos = u64::try_from(time.as_nanos()).ok()?;
    (runs >= chunks).then_some(nanos)
}
