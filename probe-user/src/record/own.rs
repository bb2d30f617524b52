//! Threads with a buffer of their own (`--per-thread`): which have one, which are new, and which
//! have ended. An id is given out again once its thread has ended.

use std::{collections::HashSet, mem};

use crate::sys::records::{Event, Task};

/// A thread that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Born {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// It has ended since: its id may be another thread's.
    pub(super) has_ended: bool,
}

#[derive(Debug, Default)]
pub(super) struct Own {
    /// Those with a buffer.
    known: HashSet<u32>,
    /// Those of this round, in their order.
    born: Vec<Born>,
    /// Those with a buffer that ended in this round.
    ended: Vec<u32>,
}

impl Own {
    /// Handles a record. They come in rising order of time.
    pub(super) fn learn(&mut self, event: &Event<'_>) {
        match *event {
            Event::Fork(Task { pid, tid, .. }) => self.born.push(Born {
                pid,
                tid,
                has_ended: false,
            }),
            Event::Exit(Task { tid, .. }) => {
                if self.known.remove(&tid) {
                    self.ended.push(tid);
                }
                let same = self.born.iter_mut().filter(|born| born.tid == tid);
                same.for_each(|born| born.has_ended = true);
            }
            _ => {}
        }
    }

    /// A thread got its buffer.
    pub(super) fn add(&mut self, tid: u32) {
        self.known.insert(tid);
    }

    /// Whether a thread has its buffer.
    pub(super) fn has(&self, tid: u32) -> bool {
        self.known.contains(&tid)
    }

    /// The threads that were made since this was asked last.
    pub(super) fn born(&mut self) -> Vec<Born> {
        mem::take(&mut self.born)
    }

    /// The threads with a buffer that have ended since this was asked last.
    pub(super) fn ended(&mut self) -> Vec<u32> {
        mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, tid: u32) -> Task {
        Task {
            pid,
            tid,
            parent: 7,
            parent_tid: 7,
        }
    }

    fn born(pid: u32, tid: u32, has_ended: bool) -> Born {
        Born {
            pid,
            tid,
            has_ended,
        }
    }

    #[test]
    fn an_id_that_is_given_out_again_is_another_thread() {
        let mut own = Own::default();
        own.learn(&Event::Fork(task(7, 8)));
        assert_eq!(own.born(), [born(7, 8, false)]);
        own.add(8);
        assert!(own.has(8) && own.born().is_empty());
        // In one round it ends, and is given out twice.
        own.learn(&Event::Exit(task(7, 8)));
        own.learn(&Event::Fork(task(8, 8)));
        own.learn(&Event::Exit(task(8, 8)));
        own.learn(&Event::Fork(task(7, 8)));
        assert!(!own.has(8));
        assert_eq!(own.born(), [born(8, 8, true), born(7, 8, false)]);
        assert_eq!(own.ended(), [8], "it had one buffer");
        own.add(8);
        assert!(own.has(8));
        assert!(own.ended().is_empty());
    }

    /// However many come and go, nothing is kept of those that ended.
    #[test]
    fn threads_that_ended_are_forgotten() {
        let mut own = Own::default();
        for tid in 10..10_000 {
            own.learn(&Event::Fork(task(7, tid)));
            own.born().iter().for_each(|born| own.add(born.tid));
            own.learn(&Event::Exit(task(7, tid)));
            assert_eq!(own.ended(), [tid]);
        }
        assert!(own.known.is_empty());
    }
}
