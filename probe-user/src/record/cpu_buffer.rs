//! One buffer while it is drained: the owners of its AUX bytes, and their records as samples.

use std::{collections::VecDeque, io};

use perf_event_open_sys::bindings;
use probe_common::spe::{Class, Record, Records};

use super::{
    AuxPlace, Counts, Sample, Sink,
    clock::Clock,
    machine::Sources,
    open::Buffer,
    tasks::Tasks,
    wire::{Stamp, StampedEvents},
};
use crate::sys::records::Event;

/// AUX bytes that the kernel has announced, with their task.
#[derive(Clone, Copy, Debug)]
struct AuxRange {
    from: u64,
    to: u64,
    stamp: Stamp,
}

/// AUX bytes that are decoded together. Those without a stamp were not announced.
struct Piece {
    from: u64,
    to: u64,
    stamp: Option<Stamp>,
}

/// How a record's thread is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribution {
    /// Context packets hold thread ids of this process's pid namespace.
    pub(super) by_context: bool,
    /// The AUX bytes of one record are of the task that left the CPU at their end.
    pub(super) by_aux_record: bool,
}

/// A buffer, and how far it was read.
pub(super) struct CpuBuffer {
    pub(super) buffer: Buffer,
    number: u32,
    announced: VecDeque<AuxRange>,
    /// The end of the filled AUX area when the last round began.
    before: u64,
    /// The same when this round began.
    head: u64,
    /// The records of this round.
    records: Vec<u8>,
    /// Sampling may have stopped.
    pub(super) stopped: bool,
    /// Its CPU is offline.
    pub(super) away: bool,
    /// It will get no more samples.
    pub(super) dead: bool,
}

/// What the areas of a recording share.
pub(super) struct DrainContext<'a> {
    pub(super) clock: Option<Clock>,
    pub(super) attribution: Attribution,
    pub(super) sources: &'a Sources,
    pub(super) tasks: &'a mut Tasks,
    pub(super) counts: &'a mut Counts,
    pub(super) sink: &'a mut dyn Sink,
    /// For AUX bytes.
    pub(super) bytes: &'a mut Vec<u8>,
    /// This is the last round.
    pub(super) last: bool,
}

impl CpuBuffer {
    pub(super) fn new(buffer: Buffer, number: u32) -> Self {
        Self {
            buffer,
            number,
            announced: VecDeque::new(),
            before: 0,
            head: 0,
            records: Vec::new(),
            stopped: false,
            away: false,
            dead: false,
        }
    }

    /// First step of a round: notes the end of the filled area. The second step takes the ring's
    /// records after that, so every sample up to this mark has its task's records by then.
    pub(super) fn mark(&mut self) {
        self.before = self.head;
        self.head = self.buffer.ring.aux_head();
    }

    /// Second step: takes the ring's records.
    pub(super) fn take(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        self.records.clear();
        self.stopped |= self.buffer.ring.take(&mut self.records);
        sink.ring(&self.records)
    }

    /// Third step: notes what the records say about AUX bytes; those about tasks go to `tasks`.
    pub(super) fn read<'a>(&'a mut self, counts: &mut Counts, tasks: &mut Vec<(Stamp, Event<'a>)>) {
        let mut events = StampedEvents::new(&self.records);
        for (event, trailer) in &mut events {
            let stamp = Stamp::of(trailer);
            match event {
                Event::Aux {
                    offset,
                    size,
                    flags,
                } => {
                    counts.add_flags(flags);
                    self.stopped |= flags & u64::from(bindings::PERF_AUX_FLAG_TRUNCATED) != 0;
                    self.announced.push_back(AuxRange {
                        from: offset,
                        to: offset.wrapping_add(size),
                        stamp,
                    });
                }
                // One of them may have said that sampling stopped.
                Event::Lost(count) => {
                    counts.lost_ring_records += count;
                    self.stopped = true;
                }
                Event::Comm { .. } | Event::Fork(_) | Event::Exit(_) => tasks.push((stamp, event)),
                Event::Other => {}
            }
        }
        counts.damaged_ring_bytes += events.damaged as u64;
        self.stopped |= events.damaged > 0;
    }

    /// Last step: takes AUX bytes and gives their samples to the sink.
    pub(super) fn decode(&mut self, shared: &mut DrainContext<'_>) -> io::Result<()> {
        let start = self.buffer.ring.aux_tail();
        let pieces = self.pieces(start, shared.last || self.dead);
        let end = pieces.last().map_or(start, |piece| piece.to);
        shared.bytes.clear();
        self.buffer.ring.take_aux(end, shared.bytes);
        shared.counts.aux_bytes += shared.bytes.len() as u64;
        let place = AuxPlace {
            area: self.number,
            offset: start,
            cpu: self.buffer.cpu,
            tid: self.buffer.tid,
        };
        if !shared.bytes.is_empty() {
            shared.sink.aux(place, shared.bytes)?;
        }
        let bytes = std::mem::take(shared.bytes);
        for piece in &pieces {
            let at = |place: u64| usize::try_from(place.wrapping_sub(start)).unwrap_or(usize::MAX);
            let part = bytes.get(at(piece.from)..at(piece.to)).unwrap_or(&[]);
            if piece.stamp.is_none() {
                shared.counts.unannounced_bytes += part.len() as u64;
            }
            let base = piece.from % self.buffer.ring.aux_size() as u64;
            let base = usize::try_from(base).expect("below the size of the area");
            for record in Records::at(part, base) {
                match record {
                    Ok(record) => self.sample(record, piece.stamp, shared)?,
                    Err(damage) => shared.counts.bad.add(damage.kind),
                }
            }
        }
        *shared.bytes = bytes;
        Ok(())
    }

    /// Which bytes to decode now, in their order and without holes.
    fn pieces(&mut self, start: u64, last: bool) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = start;
        let mut push = |from: u64, to: u64, stamp| {
            if from < to {
                pieces.push(Piece { from, to, stamp });
            }
        };
        while let Some(AuxRange { from, to, stamp }) = self.announced.front().copied() {
            if to > self.head {
                break;
            }
            push(at, from, None);
            // Bytes that were taken before their record came are not taken again.
            push(from.max(at), to, Some(stamp));
            at = at.max(to);
            self.announced.pop_front();
        }
        // Bytes that were not announced for a whole round: padding, or their record was lost.
        let quiet = if last { self.head } else { self.before };
        let next = self.announced.front().map_or(quiet, |next| next.from);
        push(at, quiet.min(next), None);
        pieces
    }

    fn sample(
        &self,
        record: Record,
        stamp: Option<Stamp>,
        shared: &mut DrainContext<'_>,
    ) -> io::Result<()> {
        let DrainContext {
            clock,
            attribution,
            sources,
            tasks,
            counts,
            sink,
            ..
        } = shared;
        let ticks = record.timestamp();
        let time = clock.zip(ticks).and_then(|(c, ticks)| c.monotonic(ticks));
        let perf_time = clock
            .zip(ticks)
            .map(|(clock, ticks)| clock.ticks.nanos(ticks));
        let context = record.thread().filter(|_| attribution.by_context);
        let by_aux_record = stamp.filter(|_| attribution.by_aux_record).map(|s| s.tid);
        let tid = self.buffer.tid.or(context).or(by_aux_record);
        let who = tid.and_then(|tid| tasks.who(tid, perf_time.or(stamp.map(|s| s.time))));
        counts.samples += 1;
        counts.invalid += u64::from(Class::of(&record).is_invalid(&record));
        counts.without_time += u64::from(time.is_none());
        match (tid, &who) {
            (None, _) => counts.without_thread += 1,
            (Some(_), None) => counts.without_process += 1,
            (Some(_), Some(_)) => {}
        }
        if self.buffer.tid.or(context).is_none() && tid.is_some() {
            counts.thread_by_buffer += 1;
        }
        let (pid, name, cgroup) = match who {
            Some(who) => (Some(who.pid), Some(who.name), who.cgroup),
            None => (None, None, None),
        };
        let cpu = self.buffer.cpu.or(stamp.map(|stamp| stamp.cpu));
        let sample = Sample {
            time,
            cpu,
            pid,
            tid,
            name,
            cgroup,
            origin: cpu.and_then(|cpu| sources.origin(cpu, &record)),
            record,
        };
        sink.sample(&sample)
    }
}
