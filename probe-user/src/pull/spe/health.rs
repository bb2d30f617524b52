//! What became of everything that SPE wrote.

use std::collections::BTreeMap;

use aya::Ebpf;
use probe_common::spe::{BadKind, SpeCpu, Unattributed};

use crate::load::{Spe, SpeHook};

/// The programs' account of themselves since the session began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeHealth {
    /// The hook in use.
    pub hook: SpeHook,
    /// Period in force, in operations.
    pub period: u64,
    /// What became of everything that was written, all CPUs; `event`, `next` and `switches` mean nothing.
    pub sum: SpeCpu,
    /// Longest time that a chunk took, in ns.
    pub longest: u64,
    /// Rows in the map.
    pub rows: usize,
    /// What the cores count of their sampling, where they do: operations, samples taken, kept, and dropped
    /// because one was in flight; since the CPUs' events were opened.
    pub sampler: BTreeMap<&'static str, u64>,
    /// Bytes of each CPU's AUX buffer.
    pub aux_size: usize,
    /// Chunks of a size that nobody knows: the kernel's log had no room for them, which can be only where
    /// the hook is a kprobe.
    pub unlogged: u64,
    /// Nanoseconds in the program at the end of chunks as the kernel itself measured; None where
    /// `kernel.bpf_stats_enabled` is or was off.
    pub bpf_stats: Option<u64>,
}

impl SpeHealth {
    /// Names and values of all counts, as metrics.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, u64)> {
        let sum = &self.sum;
        let mut counts: Vec<(String, u64)> = [
            ("period", self.period),
            ("aux_bytes", self.aux_size as u64),
            ("rows", self.rows as u64),
            ("chunks", sum.chunks),
            ("cells", sum.cells),
            ("records", sum.records),
            ("padding", sum.padding),
            ("skipped_records", sum.skipped),
            ("invalid_records", sum.invalid),
            ("overflowed_records", sum.overflowed),
            ("missed_bytes", sum.missed_bytes),
            ("late_bytes", sum.late_bytes),
            ("unlogged_chunks", self.unlogged),
            ("aux_buffers_truncated", sum.truncated),
            ("aux_buffers_partial", sum.partial),
            ("aux_buffers_with_collision", sum.collided),
            ("unreadable_chunks", sum.unreadable),
            ("decode_ns", sum.nanos),
            ("irq_off_ns_max", self.longest),
            ("unknown_threads", sum.unknown_threads),
            ("lost_exits", sum.lost_exits),
            ("unpaged_records", sum.unpaged),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into();
        let decoded = sum.cells.saturating_sub(sum.skipped);
        let per_record = |nanos: u64| nanos.checked_div(decoded);
        let costs = [
            ("ns_per_record", per_record(sum.nanos)),
            (
                "ns_per_record_by_bpf_stats",
                self.bpf_stats.and_then(per_record),
            ),
        ];
        let costs = costs.into_iter();
        counts.extend(costs.filter_map(|(name, nanos)| Some((name.to_owned(), nanos?))));
        let sampler = self.sampler.iter();
        counts.extend(sampler.map(|(name, count)| ((*name).to_owned(), *count)));
        counts.extend(
            BadKind::ALL
                .iter()
                .zip(sum.bad)
                .map(|(kind, n)| (format!("bad_records_{}", kind.name()), n)),
        );
        counts.extend(
            Unattributed::ALL
                .iter()
                .zip(sum.unattributed)
                .map(|(reason, n)| (format!("unattributed_{}", reason.name()), n)),
        );
        counts
    }
}

impl Spe {
    pub(super) fn health(&self, ebpf: &Ebpf, cpus: &[SpeCpu], rows: usize) -> SpeHealth {
        let mut sum = SpeCpu::default();
        for cpu in cpus {
            add(&mut sum, cpu);
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

fn add(sum: &mut SpeCpu, cpu: &SpeCpu) {
    sum.chunks += cpu.chunks;
    sum.cells += cpu.cells;
    sum.records += cpu.records;
    sum.padding += cpu.padding;
    for (sum, n) in sum.bad.iter_mut().zip(cpu.bad) {
        *sum += n;
    }
    sum.skipped += cpu.skipped;
    sum.invalid += cpu.invalid;
    for (sum, n) in sum.unattributed.iter_mut().zip(cpu.unattributed) {
        *sum += n;
    }
    sum.overflowed += cpu.overflowed;
    sum.missed_bytes += cpu.missed_bytes;
    sum.late_bytes += cpu.late_bytes;
    sum.truncated += cpu.truncated;
    sum.partial += cpu.partial;
    sum.collided += cpu.collided;
    sum.unreadable += cpu.unreadable;
    sum.nanos += cpu.nanos;
    sum.unknown_threads += cpu.unknown_threads;
    sum.lost_exits += cpu.lost_exits;
    sum.unpaged += cpu.unpaged;
}
