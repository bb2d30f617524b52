//! The programs' counts of bytes and records of SPE, by outcome, summed over CPUs.

use std::collections::BTreeMap;

use probe_common::{
    Field as _,
    spe::{BadKind, SpeCpu},
};

use crate::{
    session::{EbpfObject, SpeSampling, memory},
    snapshot::SpeHealth,
};

impl SpeSampling {
    pub(super) fn health(
        &self,
        object: &EbpfObject,
        cpus: &BTreeMap<u32, SpeCpu>,
        rows: usize,
    ) -> SpeHealth {
        let mut sum = SpeCpu::default();
        for cpu in cpus.values() {
            sum.add(cpu);
        }
        let mut sampler = BTreeMap::new();
        for (name, count) in self.events.iter().flat_map(|event| event.sampler.read()) {
            *sampler.entry(name.to_owned()).or_default() += count;
        }
        SpeHealth {
            hook: self.hook,
            period: self.period,
            max_latency: self.config.events.max_latency,
            longest: cpus.values().map(|cpu| cpu.longest).max().unwrap_or(0),
            bpf_stats: bpf_stats(object, sum.chunks),
            sum,
            rows,
            freed_idle: self.totals.freed_idle,
            memory: memory::samples_memory(
                self.config.wants_timeline(),
                [rows, 0],
                self.max_rows,
                cpus.len(),
            ),
            sampler,
            aux_size: self.config.aux_size,
            unlogged: self.totals.unlogged(),
        }
    }
}

/// A warning at the first bytes that cannot be decoded; None from then on.
pub(super) fn undecoded(before: &SpeCpu, now: &SpeCpu) -> Option<String> {
    if before.undecoded > 0 || now.undecoded == 0 {
        return None;
    }
    let kinds: Vec<&str> = BadKind::ALL
        .iter()
        .zip(now.bad)
        .filter(|(_, n)| *n > 0)
        .map(|(kind, _)| kind.name())
        .collect();
    Some(format!(
        "SPE wrote {} bytes that are no record that can be decoded ({}): their samples are left \
         out, and `spe_undecoded_bytes` of --self counts such bytes from here on; if it keeps \
         growing, report it with what `pmuscope mem record --raw FILE` writes",
        now.undecoded,
        kinds.join(", ")
    ))
}

/// Nanoseconds of the chunk programs by the kernel's statistics, if these cover all chunks.
fn bpf_stats(object: &EbpfObject, chunks: u64) -> Option<u64> {
    let (runs, time) = object.programs.chunk_stats()?;
    let nanos = u64::try_from(time.as_nanos()).ok()?;
    (runs >= chunks).then_some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undecodable_bytes_are_reported_once() {
        let none = SpeCpu::default();
        let mut some = SpeCpu {
            undecoded: 128,
            ..none
        };
        some.bad[BadKind::Header as usize] = 2;
        let later = SpeCpu {
            undecoded: 256,
            ..some
        };
        let warning = undecoded(&none, &some).unwrap();
        assert!(
            warning.starts_with("SPE wrote 128 bytes that are no record"),
            "{warning}"
        );
        assert!(warning.contains("(header)"), "{warning}");
        assert_eq!(undecoded(&none, &none), None);
        assert_eq!(undecoded(&some, &later), None);
    }
}
