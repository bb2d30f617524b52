//! What a thread that decodes samples looks at: a process as it is known in one round.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use super::{Area, Areas, Book, Said};

/// The bit of an address that says that it is the kernel's (Arm ARM, D8.2: addresses with it are
/// translated by `TTBR1`).
const KERNEL: u64 = 1 << 55;

/// Names of areas, each once.
static AREAS: LazyLock<[Arc<str>; Area::ALL.len()]> =
    LazyLock::new(|| Area::ALL.map(|area| area.name().into()));

/// A process as it is known.
#[derive(Clone, Debug)]
pub(in super::super) struct View {
    pub(super) said: Arc<Said>,
    pub(super) areas: Arc<Areas>,
}

impl View {
    /// The innermost tag of an address at a moment, else what memory it is.
    pub(super) fn region(&self, address: u64, time: Option<u64>) -> Option<Arc<str>> {
        if let Some(tag) = self.said.tags.at(address, time) {
            return Some(Arc::clone(tag));
        }
        let area = if address & KERNEL != 0 {
            Some(Area::Kernel)
        } else {
            self.areas.at(address)
        };
        area.map(|area| Arc::clone(&AREAS[area as usize]))
    }

    /// The innermost phase of a thread at a moment; where it has none, that of the process's first
    /// thread.
    pub(super) fn phase(&self, (pid, tid): (u32, u32), time: Option<u64>) -> Option<&Arc<str>> {
        let of = |tid| self.said.threads.get(&tid)?.at(time);
        of(tid).or_else(|| of(pid))
    }
}

/// The processes that a decoding thread has met in this round.
#[derive(Debug, Default)]
pub(in super::super) struct Viewer {
    met: HashMap<u32, View>,
    last: Option<(u32, View)>,
}

impl Viewer {
    /// The region and the phase of a sample.
    pub(in super::super) fn place(
        &mut self,
        book: &Mutex<Book>,
        (pid, tid): (u32, u32),
        address: Option<u64>,
        time: Option<u64>,
    ) -> (Option<Arc<str>>, Option<Arc<str>>) {
        let locked = || book.lock().unwrap_or_else(PoisonError::into_inner);
        let view = match &mut self.last {
            Some((last, view)) if *last == pid => view,
            last => {
                let view = self.met.entry(pid).or_insert_with(|| locked().view(pid));
                &mut last.insert((pid, view.clone())).1
            }
        };
        let phase = view.phase((pid, tid), time).cloned();
        let Some(address) = address else {
            return (None, phase);
        };
        let region = view.region(address, time).or_else(|| {
            // Mapped since it was last asked for.
            view.areas = locked().ask(pid);
            self.met.insert(pid, view.clone());
            view.region(address, time)
        });
        (region, phase)
    }

    /// Ends a round: what was met may have changed by the next one.
    pub(in super::super) fn round_ends(&mut self) {
        self.last = None;
        self.met.clear();
    }
}
