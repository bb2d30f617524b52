//! One round: drains all buffers into the sink.

use std::{os::fd::AsFd as _, sync::PoisonError};

use super::{
    super::{
        RecordError, Sink,
        cpu_buffer::{CpuBuffer, decode, task_records},
        drain::{SampleFilter, SharedInputs},
        observer::Observer,
    },
    Recorder,
};
use crate::sys::perf;

impl Recorder {
    /// Drains all buffers into `sink`; `last` says whether this is the last round.
    pub(super) fn drain(&mut self, sink: &dyn Sink, last: bool) -> Result<(), RecordError> {
        if let Some(clock) = &mut self.clock {
            clock.anchor();
        }
        self.cpu_buffers.iter_mut().for_each(CpuBuffer::mark);
        let events = task_records(&mut self.cpu_buffers, &mut self.counts, sink, last)
            .map_err(RecordError::Write)?;
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (stamp, event) in &events {
            let process_tree = self.process_tree.as_mut();
            if process_tree.is_some_and(|process_tree| !process_tree.on_record(event, stamp.time)) {
                continue;
            }
            tasks.on_record(event, *stamp);
            self.address_spaces.on_record(event);
            if let Some(observer) = &mut self.observer {
                observer.on_record(event);
            }
            if self.config.per_thread {
                self.buffered_threads.on_record(event);
            }
        }
        if let Some(observer) = &mut self.observer {
            self.counts.regions = Some(observer.read_markers()?);
        }
        let shared = SharedInputs {
            clock: self.clock,
            attribution: self.attribution,
            sources: &self.sources,
            filter: SampleFilter {
                process_tree: self.process_tree.as_ref(),
                cgroups: match &self.subtree {
                    Some(subtree) => Some((subtree, self.machine.hierarchy()?)),
                    None => None,
                },
                min_latency: self.backend.min_latency(),
            },
            tasks: &self.tasks,
            region_index: self.observer.as_ref().map(Observer::region_index),
            sink,
            is_last_round: last,
        };
        let decoded = decode(&mut self.cpu_buffers, &mut self.drains, &shared);
        for drain in &mut self.drains {
            self.counts += std::mem::take(&mut drain.counts);
            drain.end_round(|pid| self.address_spaces.pass_new_mappings(pid, sink));
        }
        self.counts.mappings_left_out = self.address_spaces.left_out;
        decoded.map_err(RecordError::Write)?;
        if self.reported_ids != self.follow_ids.len() {
            self.reported_ids = self.follow_ids.len();
            sink.events(self.event_files());
        }
        let observer = self.observer.as_ref();
        let new_metadata = || observer.map(Observer::new_metadata).unwrap_or_default();
        sink.round(&new_metadata).map_err(RecordError::Write)?;
        self.tasks().end_round();
        self.address_spaces.end_round();
        if let Some(process_tree) = &mut self.process_tree {
            process_tree.end_round();
        }
        if let Some(observer) = &mut self.observer {
            observer.end_round();
        }
        if self.config.per_thread && !last {
            self.attach_new()?;
        }
        Ok(())
    }

    /// Restarts SPE events that the kernel may have stopped. Some kernels (Debian's 6.12.95; 6.1 on
    /// CPU 0) stop an event whose AUX buffer was full, but leave it enabled: enabling it again has
    /// no effect there, so it is disabled first.
    pub(super) fn restart(&mut self) -> Result<(), RecordError> {
        for cpu_buffer in &mut self.cpu_buffers {
            let stopped = std::mem::take(&mut cpu_buffer.stopped);
            // Events that write samples into a ring continue by themselves after it was full.
            if stopped && !cpu_buffer.buffer.ring.has_sample_ring() {
                self.counts.restarts += 1;
                for event in &cpu_buffer.buffer.sampling_events {
                    perf::disable(event.as_fd()).map_err(RecordError::Enable)?;
                    perf::enable(event.as_fd()).map_err(RecordError::Enable)?;
                }
            }
        }
        Ok(())
    }
}
