//! Looks up regions and phases for decoding threads, in a snapshot of each process per round.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use super::{MemoryKind, MemoryMap, ProcessMarkers, RegionIndex};

/// Address bit of kernel addresses (Arm ARM, D8.2: `TTBR1` translates addresses with this bit).
const KERNEL: u64 = 1 << 55;

/// Shared names of the kinds of memory.
static KIND_NAMES: LazyLock<[Arc<str>; MemoryKind::ALL.len()]> =
    LazyLock::new(|| MemoryKind::ALL.map(|kind| kind.name().into()));

/// Snapshot of a process in one round.
#[derive(Clone, Debug)]
pub(in super::super) struct ProcessView {
    pub(super) markers: Arc<ProcessMarkers>,
    pub(super) memory_map: Arc<MemoryMap>,
}

impl ProcessView {
    /// The innermost tag of an address at a time, else its kind of memory; None if no mapping of
    /// the address is known.
    pub(super) fn region(&self, address: u64, time: Option<u64>) -> Option<Arc<str>> {
        if let Some(tag) = self.markers.tags.at(address, time) {
            return Some(Arc::clone(tag));
        }
        let kind = if address & KERNEL != 0 {
            Some(MemoryKind::Kernel)
        } else {
            self.memory_map.at(address)
        };
        kind.map(|kind| Arc::clone(&KIND_NAMES[kind as usize]))
    }

    /// The innermost phase of a thread at a time. A thread without a phase has the main thread's.
    pub(super) fn phase(&self, (pid, tid): (u32, u32), time: Option<u64>) -> Option<&Arc<str>> {
        let innermost = |tid| self.markers.threads.get(&tid)?.at(time);
        innermost(tid).or_else(|| innermost(pid))
    }
}

/// A decoding thread's cache of process snapshots in this round.
#[derive(Debug, Default)]
pub(in super::super) struct ViewCache {
    views: HashMap<u32, ProcessView>,
    /// Process id and snapshot of the last sample.
    last: Option<(u32, ProcessView)>,
}

impl ViewCache {
    /// The region and the phase of a sample.
    pub(in super::super) fn lookup(
        &mut self,
        index: &Mutex<RegionIndex>,
        (pid, tid): (u32, u32),
        address: Option<u64>,
        time: Option<u64>,
    ) -> (Option<Arc<str>>, Option<Arc<str>>) {
        let locked = || index.lock().unwrap_or_else(PoisonError::into_inner);
        let view = match &mut self.last {
            Some((last, view)) if *last == pid => view,
            last => {
                let view = self.views.entry(pid).or_insert_with(|| locked().view(pid));
                &mut last.insert((pid, view.clone())).1
            }
        };
        let phase = view.phase((pid, tid), time).cloned();
        let Some(address) = address else {
            return (None, phase);
        };
        let region = view.region(address, time).or_else(|| {
            // The address may have been mapped since the memory map was read.
            view.memory_map = locked().memory_map(pid);
            self.views.insert(pid, view.clone());
            view.region(address, time)
        });
        (region, phase)
    }

    /// Ends a round: clears the cache, since processes change from round to round.
    pub(in super::super) fn end_round(&mut self) {
        self.last = None;
        self.views.clear();
    }
}
