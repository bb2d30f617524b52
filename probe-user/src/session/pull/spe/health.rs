//! What became of everything that SPE wrote, summed over CPUs.

use std::collections::BTreeMap;

use aya::Ebpf;
use probe_common::{Field as _, spe::SpeCpu};

use crate::{
    session::Spe,
    snapshot::{SpeHealth, SpeHook},
};

impl Spe {
    pub(super) fn health(&self, ebpf: &Ebpf, cpus: &[SpeCpu], rows: usize) -> SpeHealth {
        let mut sum = SpeCpu::default();
        for cpu in cpus {
            sum.add(cpu);
        }
        let mut sampler = BTreeMap::new();
        for (name, count) in self.events.iter().flat_map(|event| event.sampler.read()) {
            *sampler.entry(name).or_default() += count;
        }
        SpeHealth {
            hook: self.hook,
            period: self.period,
            longest: cpus.iter().map(|cpu| cpu.longest).max().unwrap_or(0),
            bpf_stats: self.bpf_stats(ebpf, sum.chunks),
            sum,
            rows,
            sampler,
            aux_size: self.config.aux_size,
            unlogged: self.totals.unlogged(),
        }
    }

    /// Nanoseconds of a program that ran for all chunks while the kernel measured.
    fn bpf_stats(&self, ebpf: &Ebpf, chunks: u64) -> Option<u64> {
        let name = match self.hook {
            SpeHook::Fentry => "spe_chunk",
            SpeHook::Kprobe => "spe_chunk_kprobe",
        };
        let info = ebpf.program(name)?.info().ok()?;
        let nanos = u64::try_from(info.run_time().as_nanos()).ok()?;
        (info.run_count() >= chunks).then_some(nanos)
    }
}
