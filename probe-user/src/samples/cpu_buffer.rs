//! Drains one buffer, and finds the owners of its AUX bytes.

use std::{
    collections::VecDeque,
    io,
    sync::{Mutex, PoisonError},
    thread,
};

use perf_event_open_sys::bindings;

use super::{
    AuxPosition, RecordCounts, Sink,
    drain::{AuxOwner, Drain, SharedInputs},
    open::{Buffer, LostRecords},
    wire::{Stamp, StampedRecords},
};
use crate::sys::records::PerfRecord;

/// AUX bytes that a `PERF_RECORD_AUX` announced, with that record's task, time and CPU.
#[derive(Clone, Copy, Debug)]
struct AuxRange {
    from: u64,
    to: u64,
    stamp: Stamp,
}

/// AUX bytes to decode together.
struct AuxPiece {
    from: u64,
    to: u64,
    /// The task, time and CPU of the record that announced the bytes; None if none did.
    stamp: Option<Stamp>,
}

/// A buffer of a CPU or of a thread, and the state of reading it.
pub(super) struct CpuBuffer {
    pub(super) buffer: Buffer,
    /// Number of the buffer, from 0.
    number: u32,
    /// AUX bytes that were announced but not decoded yet.
    announced: VecDeque<AuxRange>,
    /// End of the sample bytes when the previous round began.
    previous_head: u64,
    /// End of the sample bytes when this round began.
    head: u64,
    /// Ring records of this round.
    records: Vec<u8>,
    /// Task records deferred to the next round.
    deferred: Vec<u8>,
    /// Whether the kernel may have stopped sampling.
    pub(super) stopped: bool,
    /// Whether the buffer's thread has exited.
    pub(super) ended: bool,
    /// Whether the buffer's CPU is offline.
    pub(super) offline: bool,
    /// Whether the buffer will get no more samples.
    pub(super) dead: bool,
    /// Losses that records have reported so far.
    reported: LostRecords,
}

impl CpuBuffer {
    pub(super) fn new(buffer: Buffer, number: u32) -> Self {
        Self {
            buffer,
            number,
            announced: VecDeque::new(),
            previous_head: 0,
            head: 0,
            records: Vec::new(),
            deferred: Vec::new(),
            stopped: false,
            ended: false,
            offline: false,
            dead: false,
            reported: LostRecords::default(),
        }
    }

    /// First step of a round: marks the end of the sample bytes. The second step, [`task_records`],
    /// takes the ring's records later, so that it gets the task records of every sample before the
    /// mark.
    pub(super) fn mark(&mut self) {
        self.previous_head = self.head;
        self.head = self.buffer.ring.samples_head();
    }

    /// Takes the ring's records, and appends them to those of this round.
    fn take_records(&mut self, sink: &dyn Sink) -> io::Result<()> {
        let before = self.records.len();
        self.stopped |= self.buffer.ring.take(&mut self.records);
        sink.ring(&self.records[before..])
    }

    /// The time of the newest record of this round so far.
    fn newest_time(&self) -> Option<u64> {
        let times =
            StampedRecords::new(&self.records).map(|(_, trailer)| Stamp::parse(trailer).time);
        times.max()
    }

    /// Parses the records of this round. Keeps announcements of AUX bytes, and counts losses. Adds
    /// records about tasks up to the time `until` to `tasks`, and defers later ones.
    fn parse_records<'a>(
        &'a mut self,
        until: u64,
        counts: &mut RecordCounts,
        tasks: &mut Vec<TaskRecord<'a>>,
    ) {
        let mut events = StampedRecords::new(&self.records);
        loop {
            let unread = events.left();
            let Some((event, trailer)) = events.next() else {
                break;
            };
            let stamp = Stamp::parse(trailer);
            match event {
                PerfRecord::Aux {
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
                // One of the lost records may have reported that sampling stopped.
                PerfRecord::Lost(count) => {
                    counts.lost_ring_records += count;
                    self.reported.records += count;
                    self.stopped = true;
                }
                PerfRecord::Comm { .. }
                | PerfRecord::Fork(_)
                | PerfRecord::Exit(_)
                | PerfRecord::Map(_) => {
                    if stamp.time <= until || self.dead {
                        tasks.push((stamp, event));
                    } else {
                        let size = unread.len() - events.left().len();
                        self.deferred.extend_from_slice(&unread[..size]);
                    }
                }
                PerfRecord::KernelCode | PerfRecord::Other => {}
            }
        }
        counts.damaged_ring_bytes += events.damaged as u64;
        self.stopped |= events.damaged > 0;
    }

    /// Whether there are sample bytes to take.
    fn has_bytes(&self) -> bool {
        self.head != self.buffer.ring.samples_tail()
    }

    /// Last step of a round: takes the samples and passes them to the sink.
    pub(super) fn decode(
        &mut self,
        drain: &mut Drain,
        shared: &SharedInputs<'_>,
    ) -> io::Result<()> {
        if self.buffer.ring.has_sample_ring() {
            let (ring, head) = (&mut self.buffer.ring, self.head);
            let before = drain.counts.lost_samples;
            let decoded = drain.decode_events(|bytes| ring.take_samples(head, bytes), shared);
            self.reported.samples += drain.counts.lost_samples - before;
            return decoded;
        }
        let start = self.buffer.ring.samples_tail();
        let pieces = self.pieces(start, shared.is_last_round || self.dead);
        let end = pieces.last().map_or(start, |piece| piece.to);
        let position = AuxPosition {
            area: self.number,
            offset: start,
            cpu: self.buffer.cpu,
            tid: self.buffer.tid,
        };
        let ring = &mut self.buffer.ring;
        let bytes = drain.take_aux(position, shared, |bytes| ring.take_samples(end, bytes))?;
        for AuxPiece { from, to, stamp } in pieces {
            let at =
                |position: u64| usize::try_from(position.wrapping_sub(start)).unwrap_or(usize::MAX);
            let part = bytes.get(at(from)..at(to)).unwrap_or(&[]);
            if stamp.is_none() {
                drain.counts.unannounced_bytes += part.len() as u64;
            }
            let offset = from % self.buffer.ring.samples_size() as u64;
            let base = usize::try_from(offset).expect("below the size of the area");
            let owner = AuxOwner {
                buffer_tid: self.buffer.tid,
                writer: stamp.map(|stamp| (stamp.tid, stamp.time)),
                cpu: self.buffer.cpu.or(stamp.map(|stamp| stamp.cpu)),
            };
            drain.decode(part, base, owner, shared)?;
        }
        drain.done(bytes, shared)
    }

    /// Counts losses since the last record: perf reports them only with the next record.
    pub(super) fn count_unreported_losses(&self, counts: &mut RecordCounts) {
        let unreported = self.buffer.lost().since(self.reported);
        counts.lost_ring_records += unreported.records;
        counts.lost_samples += unreported.samples;
    }

    /// The AUX bytes from `start` on to decode now, in order and without gaps. In the last round
    /// all of them are decoded.
    fn pieces(&mut self, start: u64, last: bool) -> Vec<AuxPiece> {
        let mut pieces = Vec::new();
        let mut at = start;
        let mut push = |from: u64, to: u64, stamp| {
            if from < to {
                pieces.push(AuxPiece { from, to, stamp });
            }
        };
        while let Some(AuxRange { from, to, stamp }) = self.announced.front().copied() {
            if to > self.head {
                break;
            }
            push(at, from, None);
            // Skips bytes that were decoded before the record that announces them was read.
            push(from.max(at), to, Some(stamp));
            at = at.max(to);
            self.announced.pop_front();
        }
        // Bytes from before the previous round that no record announced: padding, or the record was
        // lost.
        let unannounced_end = if last { self.head } else { self.previous_head };
        let next = self
            .announced
            .front()
            .map_or(unannounced_end, |next| next.from);
        push(at, unannounced_end.min(next), None);
        pieces
    }
}

/// A record about a task.
pub(super) type TaskRecord<'a> = (Stamp, PerfRecord<'a>);

/// Second step of a round: takes the records of all rings. Returns the records about tasks in
/// ascending order of time, also across rounds.
///
/// Rings are read one after the other, so the first pass may get a record but miss an earlier one
/// on another CPU, such as a child's record without its fork. A second pass gets all records that
/// are older than a record of the first pass. Records that are newer than all of the first pass are
/// deferred to the next round.
pub(super) fn task_records<'a>(
    cpu_buffers: &'a mut [CpuBuffer],
    counts: &mut RecordCounts,
    sink: &dyn Sink,
    last: bool,
) -> io::Result<Vec<TaskRecord<'a>>> {
    for cpu_buffer in cpu_buffers.iter_mut() {
        cpu_buffer.records.clear();
        cpu_buffer.records.append(&mut cpu_buffer.deferred);
        cpu_buffer.take_records(sink)?;
    }
    let newest = cpu_buffers.iter().filter_map(CpuBuffer::newest_time).max();
    let until = if last { u64::MAX } else { newest.unwrap_or(0) };
    for cpu_buffer in cpu_buffers.iter_mut() {
        cpu_buffer.take_records(sink)?;
    }
    let mut tasks = Vec::new();
    for cpu_buffer in cpu_buffers {
        cpu_buffer.parse_records(until, counts, &mut tasks);
    }
    tasks.sort_by_key(|(stamp, _)| stamp.time);
    Ok(tasks)
}

/// Takes and decodes the samples of all buffers in several threads; a thread that is free takes the
/// next buffer.
pub(super) fn decode(
    cpu_buffers: &mut [CpuBuffer],
    drains: &mut [Drain],
    shared: &SharedInputs<'_>,
) -> io::Result<()> {
    let busy = cpu_buffers
        .iter()
        .filter(|cpu_buffer| cpu_buffer.has_bytes())
        .count();
    let cpu_buffers = Mutex::new(cpu_buffers.iter_mut());
    let next = || {
        cpu_buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let work = |drain: &mut Drain| {
        while let Some(cpu_buffer) = next() {
            cpu_buffer.decode(drain, shared)?;
        }
        Ok(())
    };
    let Some((own_drain, others)) = drains.split_first_mut() else {
        unreachable!("there is at least one thread")
    };
    thread::scope(|scope| {
        let others: Vec<_> = others
            .iter_mut()
            .take(busy.saturating_sub(1))
            .map(|drain| scope.spawn(|| work(drain)))
            .collect();
        let results = others.into_iter().map(|other| match other.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let own_result = work(own_drain);
        results.fold(own_result, io::Result::and)
    })
}
