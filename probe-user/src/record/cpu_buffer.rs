//! One buffer while it is drained: the owners of its AUX bytes.

use std::{
    collections::VecDeque,
    io,
    sync::{Mutex, PoisonError},
    thread,
};

use perf_event_open_sys::bindings;

use super::{
    AuxPlace, Counts, Sink,
    drain::{Drain, Owner, Shared},
    open::Buffer,
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

/// A buffer, and how far it was read.
pub(super) struct CpuBuffer {
    pub(super) buffer: Buffer,
    number: u32,
    announced: VecDeque<AuxRange>,
    /// The end of the samples' bytes when the last round began.
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

    /// First step of a round: notes the end of the samples' bytes. The second step takes the ring's
    /// records after that, so every sample up to this mark has its task's records by then.
    pub(super) fn mark(&mut self) {
        self.before = self.head;
        self.head = self.buffer.ring.samples_head();
    }

    /// Second step: takes the ring's records.
    pub(super) fn take(&mut self, sink: &dyn Sink) -> io::Result<()> {
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
                Event::Comm { .. } | Event::Fork(_) | Event::Exit(_) | Event::Map(_) => {
                    tasks.push((stamp, event));
                }
                Event::KernelCode | Event::Other => {}
            }
        }
        counts.damaged_ring_bytes += events.damaged as u64;
        self.stopped |= events.damaged > 0;
    }

    /// Whether there may be samples to take.
    fn has_bytes(&self) -> bool {
        self.head != self.buffer.ring.samples_tail()
    }

    /// Last step: takes samples and gives them to the sink.
    pub(super) fn decode(&mut self, drain: &mut Drain, shared: &Shared<'_>) -> io::Result<()> {
        if self.buffer.ring.is_of_events() {
            let (ring, head) = (&mut self.buffer.ring, self.head);
            return drain.events(|bytes| ring.take_samples(head, bytes), shared);
        }
        let start = self.buffer.ring.samples_tail();
        let pieces = self.pieces(start, shared.last || self.dead);
        let end = pieces.last().map_or(start, |piece| piece.to);
        let place = AuxPlace {
            area: self.number,
            offset: start,
            cpu: self.buffer.cpu,
            tid: self.buffer.tid,
        };
        let ring = &mut self.buffer.ring;
        let bytes = drain.take(place, shared, |bytes| ring.take_samples(end, bytes))?;
        for Piece { from, to, stamp } in pieces {
            let at = |place: u64| usize::try_from(place.wrapping_sub(start)).unwrap_or(usize::MAX);
            let part = bytes.get(at(from)..at(to)).unwrap_or(&[]);
            if stamp.is_none() {
                drain.counts.unannounced_bytes += part.len() as u64;
            }
            let base = from % self.buffer.ring.samples_size() as u64;
            let base = usize::try_from(base).expect("below the size of the area");
            let owner = Owner {
                only: self.buffer.tid,
                stretch: stamp.map(|stamp| (stamp.tid, stamp.time)),
                cpu: self.buffer.cpu.or(stamp.map(|stamp| stamp.cpu)),
            };
            drain.decode(part, base, owner, shared)?;
        }
        drain.done(bytes, shared)
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
}

/// Takes and decodes what the buffers have, each in whichever thread is free.
pub(super) fn decode(
    areas: &mut [CpuBuffer],
    drains: &mut [Drain],
    shared: &Shared<'_>,
) -> io::Result<()> {
    let full = areas.iter().filter(|area| area.has_bytes()).count();
    let areas = Mutex::new(areas.iter_mut());
    let next = || areas.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |drain: &mut Drain| {
        while let Some(area) = next() {
            area.decode(drain, shared)?;
        }
        Ok(())
    };
    let Some((own, others)) = drains.split_first_mut() else {
        unreachable!("there is at least one thread")
    };
    thread::scope(|scope| {
        let others = others.iter_mut().take(full.saturating_sub(1));
        let others: Vec<_> = others.map(|drain| scope.spawn(|| work(drain))).collect();
        let results = others.into_iter().map(|other| match other.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let own = work(own);
        results.fold(own, io::Result::and)
    })
}
