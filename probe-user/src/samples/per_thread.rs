//! Tracks threads for `--per-thread`, where each thread has its own buffer: threads with a buffer,
//! new threads and exited threads. The kernel may reuse thread ids.

use std::{collections::HashSet, mem};

use crate::sys::records::{PerfRecord, Task};

/// A thread that was created during the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewThread {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// Whether it has exited since. Its id may then belong to another thread.
    pub(super) has_exited: bool,
}

/// Which threads have a buffer, and what changed since the last round.
#[derive(Debug, Default)]
pub(super) struct BufferedThreads {
    /// Running threads with a buffer.
    buffered: HashSet<u32>,
    /// Threads created since [`Self::take_new`] was called, in order.
    new: Vec<NewThread>,
    /// Threads with a buffer that exited since [`Self::take_exited`] was called.
    exited: Vec<u32>,
}

impl BufferedThreads {
    /// Handles a record. Records come in ascending order of time.
    pub(super) fn on_record(&mut self, event: &PerfRecord<'_>) {
        match *event {
            PerfRecord::Fork(Task { pid, tid, .. }) => self.new.push(NewThread {
                pid,
                tid,
                has_exited: false,
            }),
            PerfRecord::Exit(Task { tid, .. }) => {
                if self.buffered.remove(&tid) {
                    self.exited.push(tid);
                }
                let exited = self.new.iter_mut().filter(|thread| thread.tid == tid);
                exited.for_each(|thread| thread.has_exited = true);
            }
            _ => {}
        }
    }

    /// Notes that a thread has its buffer now.
    pub(super) fn add(&mut self, tid: u32) {
        self.buffered.insert(tid);
    }

    /// Whether a running thread has a buffer.
    pub(super) fn has(&self, tid: u32) -> bool {
        self.buffered.contains(&tid)
    }

    /// Takes the threads that were created since the last call.
    pub(super) fn take_new(&mut self) -> Vec<NewThread> {
        mem::take(&mut self.new)
    }

    /// Takes the threads with a buffer that exited since the last call.
    pub(super) fn take_exited(&mut self) -> Vec<u32> {
        mem::take(&mut self.exited)
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

    fn new_thread(pid: u32, tid: u32, has_exited: bool) -> NewThread {
        NewThread {
            pid,
            tid,
            has_exited,
        }
    }

    #[test]
    fn a_reused_id_belongs_to_another_thread() {
        let mut threads = BufferedThreads::default();
        threads.on_record(&PerfRecord::Fork(task(7, 8)));
        assert_eq!(threads.take_new(), [new_thread(7, 8, false)]);
        threads.add(8);
        assert!(threads.has(8) && threads.take_new().is_empty());
        // In one round the thread exits, and its id is reused twice.
        threads.on_record(&PerfRecord::Exit(task(7, 8)));
        threads.on_record(&PerfRecord::Fork(task(8, 8)));
        threads.on_record(&PerfRecord::Exit(task(8, 8)));
        threads.on_record(&PerfRecord::Fork(task(7, 8)));
        assert!(!threads.has(8));
        assert_eq!(
            threads.take_new(),
            [new_thread(8, 8, true), new_thread(7, 8, false)]
        );
        assert_eq!(threads.take_exited(), [8], "it had one buffer");
        threads.add(8);
        assert!(threads.has(8));
        assert!(threads.take_exited().is_empty());
    }

    /// Memory does not grow with the number of exited threads.
    #[test]
    fn exited_threads_are_forgotten() {
        let mut threads = BufferedThreads::default();
        for tid in 10..10_000 {
            threads.on_record(&PerfRecord::Fork(task(7, tid)));
            threads
                .take_new()
                .iter()
                .for_each(|thread| threads.add(thread.tid));
            threads.on_record(&PerfRecord::Exit(task(7, tid)));
            assert_eq!(threads.take_exited(), [tid]);
        }
        assert!(threads.buffered.is_empty());
    }
}
