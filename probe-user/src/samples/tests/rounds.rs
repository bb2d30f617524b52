//! Rounds over rings in plain memory, and functions that write into them in place of the kernel.

use std::{
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use perf_event_open_sys::bindings;
use test_support::Fields;

use super::super::{
    RecordCounts, Sample, Sink,
    cpu_buffer::{CpuBuffer, decode, task_records},
    drain::{Attribution, Drain, SampleFilter, SharedInputs},
    machine::DataSourceTables,
    open::Buffer,
    process_tree::ProcessTree,
    ring::{BufferRings, fake},
    subtree::Subtree,
    tasks::Tasks,
    wire::{Stamp, build},
};
use crate::machine::cgroup::Hierarchy;

/// A cell of the AUX area: the 64 bytes of an SPE record, here of a load on a Neoverse core.
pub(super) fn cell(tid: Option<u32>, address: u64, ticks: u64) -> [u8; 64] {
    Fields {
        pc: Some(0x40_1000 | 1 << 63),
        context_el2: tid,
        operation: Some((1, 0)),
        events: Some((1, 0x16)),
        issue_latency: Some(4),
        total_latency: Some(11),
        translation_latency: Some(1),
        virtual_address: Some(address),
        data_source: Some((0, 0x0e)),
        timestamp: Some(ticks),
        ..Fields::default()
    }
    .neoverse()
}

/// Writes into a CPU's buffer in place of the kernel.
pub(super) struct FakeKernel {
    /// Number of AUX bytes written so far.
    pub(super) head: u64,
    pub(super) cpu: u32,
}

impl FakeKernel {
    /// Writes samples of a task. With `announce` it also writes the record that announces them, if
    /// that fits the ring. False if the samples do not fit the AUX area.
    pub(super) fn samples(
        &mut self,
        ring: &BufferRings,
        cells: &[u8],
        tid: u32,
        flags: u64,
        announce: bool,
    ) -> bool {
        let announced = announce && ring.push(&self.announcement(cells, flags, self.stamp(tid)));
        let fits = ring.push_aux(cells);
        assert!(fits || !announced, "the test leaves capacity");
        self.head += if fits { cells.len() as u64 } else { 0 };
        fits
    }

    /// The AUX record that announces `cells`, which are written next.
    pub(super) fn announcement(&self, cells: &[u8], flags: u64, stamp: Stamp) -> Vec<u8> {
        let body = build::words(&[self.head, cells.len() as u64, flags]);
        build::record(bindings::PERF_RECORD_AUX, &body, stamp)
    }

    /// A stamp of this CPU, at a time that rises with the AUX bytes.
    pub(super) fn stamp(&self, tid: u32) -> Stamp {
        Stamp {
            pid: tid,
            tid,
            time: self.head + 1,
            cpu: self.cpu,
        }
    }
}

pub(super) fn test_buffer(cpu: u32, ring: usize, aux: usize) -> CpuBuffer {
    buffer_with_ring(cpu, fake::ring(ring, aux))
}

/// The buffer of a CPU, with this ring.
pub(super) fn buffer_with_ring(cpu: u32, ring: BufferRings) -> CpuBuffer {
    let buffer = Buffer {
        ring,
        cpu: Some(cpu),
        tid: None,
        sampling_events: Vec::new(),
        follow: Vec::new(),
        leaders: Vec::new(),
        period_controls: Vec::new(),
    };
    CpuBuffer::new(buffer, cpu)
}

/// Runs rounds as a recorder does, without system calls.
pub(super) struct Rounds {
    /// The processes to record; None: all.
    pub(super) process_tree: Option<ProcessTree>,
    /// The cgroups to record; None: all.
    pub(super) cgroups: Option<(Mutex<Subtree>, Hierarchy)>,
    pub(super) tasks: Mutex<Tasks>,
    pub(super) counts: RecordCounts,
    pub(super) attribution: Attribution,
    pub(super) drains: Vec<Drain>,
}

impl Rounds {
    pub(super) fn new(by_context: bool) -> Self {
        Self {
            process_tree: None,
            cgroups: None,
            tasks: Mutex::new(Tasks::new(Path::new("/nonexistent"))),
            counts: RecordCounts::default(),
            attribution: Attribution {
                by_context,
                by_aux_record: true,
            },
            drains: (0..3).map(Drain::new).collect(),
        }
    }

    pub(super) fn round(&mut self, cpu_buffers: &mut [CpuBuffer], sink: &dyn Sink, last: bool) {
        cpu_buffers.iter_mut().for_each(CpuBuffer::mark);
        self.after_mark(cpu_buffers, sink, last);
    }

    /// The steps of a round after [`CpuBuffer::mark`].
    pub(super) fn after_mark(
        &mut self,
        cpu_buffers: &mut [CpuBuffer],
        sink: &dyn Sink,
        last: bool,
    ) {
        let events = task_records(cpu_buffers, &mut self.counts, sink, last).unwrap();
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (stamp, event) in &events {
            let process_tree = self.process_tree.as_mut();
            if process_tree.is_some_and(|process_tree| !process_tree.on_record(event, stamp.time)) {
                continue;
            }
            tasks.on_record(event, *stamp);
        }
        let shared = SharedInputs {
            clock: None,
            attribution: self.attribution,
            sources: &DataSourceTables::default(),
            filter: SampleFilter {
                process_tree: self.process_tree.as_ref(),
                cgroups: self
                    .cgroups
                    .as_ref()
                    .map(|(subtree, hierarchy)| (subtree, hierarchy)),
                min_latency: if self.process_tree.is_some() { 20 } else { 0 },
            },
            tasks: &self.tasks,
            region_index: None,
            sink,
            is_last_round: last,
        };
        decode(cpu_buffers, &mut self.drains, &shared).unwrap();
        for drain in &mut self.drains {
            self.counts += std::mem::take(&mut drain.counts);
            drain.end_round(|_| ());
        }
        sink.round(&Vec::new).unwrap();
        self.tasks.get_mut().unwrap().end_round();
    }
}

/// A sink that keeps the address and the thread of each sample.
#[derive(Default)]
pub(super) struct CollectedSamples(Mutex<Vec<(u64, Option<u32>)>>);

impl CollectedSamples {
    pub(super) fn take(self) -> Vec<(u64, Option<u32>)> {
        self.0.into_inner().unwrap()
    }
}

impl Sink for CollectedSamples {
    fn samples(&self, _thread: usize, samples: &[Sample]) -> io::Result<()> {
        let address = |sample: &Sample| sample.address().unwrap();
        let collected = samples.iter().map(|sample| (address(sample), sample.tid));
        self.0.lock().unwrap().extend(collected);
        Ok(())
    }
}
