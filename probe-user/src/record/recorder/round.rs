//! A round: from what is in the buffers to what the sink gets.

use std::{os::fd::AsFd as _, sync::PoisonError};

use super::{
    super::{
        RecordError, Sink,
        cpu_buffer::{CpuBuffer, decode, task_records},
        drain::{Shared, Wanted},
        observer::Observer,
    },
    Recorder,
};
use crate::sys::perf;

impl Recorder {
    /// Drains all buffers.
    pub(super) fn drain(&mut self, sink: &dyn Sink, last: bool) -> Result<(), RecordError> {
        if let Some(clock) = &mut self.clock {
            clock.anchor();
        }
        self.areas.iter_mut().for_each(CpuBuffer::mark);
        let events = task_records(&mut self.areas, &mut self.counts, sink, last);
        let events = events.map_err(RecordError::Write)?;
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (stamp, event) in &events {
            let kin = self.kin.as_mut();
            if kin.is_some_and(|kin| !kin.learn(event, stamp.time)) {
                continue;
            }
            tasks.learn(event, *stamp);
            self.spaces.learn(event);
            if let Some(observer) = &mut self.observer {
                observer.learn(event);
            }
            if self.config.per_thread {
                self.own.learn(event);
            }
        }
        if let Some(observer) = &mut self.observer {
            self.counts.regions = Some(observer.take()?);
        }
        let shared = Shared {
            clock: self.clock,
            attribution: self.attribution,
            sources: &self.sources,
            wanted: Wanted {
                kin: self.kin.as_ref(),
                cgroups: match &self.subtree {
                    Some(subtree) => Some((subtree, self.machine.hierarchy()?)),
                    None => None,
                },
                least: self.means.least(),
            },
            tasks: &self.tasks,
            book: self.observer.as_ref().map(Observer::book),
            sink,
            last,
        };
        let decoded = decode(&mut self.areas, &mut self.drains, &shared);
        for drain in &mut self.drains {
            self.counts.add(&std::mem::take(&mut drain.counts));
            drain.round_ends(|pid| self.spaces.sampled(pid, sink));
        }
        self.counts.mappings_left_out = self.spaces.left_out;
        decoded.map_err(RecordError::Write)?;
        if self.told != self.ids.1.len() {
            self.told = self.ids.1.len();
            sink.events(self.event_files());
        }
        let observer = self.observer.as_ref();
        let news = || observer.map(Observer::news).unwrap_or_default();
        sink.round(&news).map_err(RecordError::Write)?;
        self.tasks().round_ends();
        self.spaces.round_ends();
        if let Some(kin) = &mut self.kin {
            kin.round_ends();
        }
        if let Some(observer) = &mut self.observer {
            observer.round_ends();
        }
        if self.config.per_thread && !last {
            self.attach_born()?;
        }
        Ok(())
    }

    /// Restarts events that the kernel has stopped. Some kernels (Debian's 6.12.95, 6.1 on CPU 0)
    /// say that an event is stopped when it is not; enabling alone does nothing there.
    pub(super) fn restart(&mut self) -> Result<(), RecordError> {
        for area in &mut self.areas {
            let stopped = std::mem::take(&mut area.stopped);
            // What has a ring goes on where it was full.
            if stopped && !area.buffer.ring.is_of_events() {
                self.counts.restarts += 1;
                for event in &area.buffer.spe {
                    perf::disable(event.as_fd()).map_err(RecordError::Enable)?;
                    perf::enable(event.as_fd()).map_err(RecordError::Enable)?;
                }
            }
        }
        Ok(())
    }
}
