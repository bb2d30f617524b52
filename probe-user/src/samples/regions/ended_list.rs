//! Lists the ended tags or phases of a recording. Also tracks which ended and active items are in
//! no part of the recording's file yet.

use std::mem;

use super::{Phase, Tag, WithTask};

/// Maximum number of ended tags, and of ended phases, in the list of a recording or of one part.
const MAX_LISTED: usize = 65_536;

/// Maximum delay in ns with which a marker is read, since markers of different threads are not in
/// order of time.
const MAX_DELAY: u64 = 10_000_000_000;

/// Items with a start time.
pub(super) trait HasStart {
    /// When the item began, in ns of `CLOCK_MONOTONIC`.
    fn since(&self) -> u64;
}

impl HasStart for Tag {
    fn since(&self) -> u64 {
        self.since
    }
}

impl HasStart for Phase {
    fn since(&self) -> u64 {
        self.since
    }
}

/// A list of ended items.
#[derive(Debug)]
pub(super) struct EndedList<T> {
    ended: Vec<WithTask<T>>,
    /// Ended items that are in no part of the file yet.
    not_taken: Vec<WithTask<T>>,
    /// The time of the last marker when [`Self::take_new`] was last called.
    last_taken: u64,
}

impl<T> Default for EndedList<T> {
    fn default() -> Self {
        Self {
            ended: Vec::new(),
            not_taken: Vec::new(),
            last_taken: 0,
        }
    }
}

impl<T: HasStart + Clone> EndedList<T> {
    /// Adds ended items. Returns the number of items beyond the limit.
    pub(super) fn add(&mut self, ended: impl Iterator<Item = WithTask<T>>) -> u64 {
        let mut unlisted = 0;
        for entry in ended {
            // An earlier part may list the item as active, so its end is reported even beyond the
            // limit.
            if self.not_taken.len() < MAX_LISTED || entry.item.since() <= self.last_taken {
                self.not_taken.push(entry.clone());
            }
            if self.ended.len() < MAX_LISTED {
                self.ended.push(entry);
            } else {
                unlisted += 1;
            }
        }
        unlisted
    }

    /// The ended items, followed by `active`.
    pub(super) fn with_active(&self, active: Vec<WithTask<T>>) -> Vec<WithTask<T>> {
        self.ended.iter().cloned().chain(active).collect()
    }

    /// Items that ended since the last call, and items of `active` that began since then. Some
    /// active items are returned by two calls. `latest` is the time of the last marker.
    pub(super) fn take_new(&mut self, active: Vec<WithTask<T>>, latest: u64) -> Vec<WithTask<T>> {
        let last_taken = mem::replace(&mut self.last_taken, latest);
        let begun = active
            .into_iter()
            .filter(|entry| entry.item.since() + MAX_DELAY >= last_taken);
        mem::take(&mut self.not_taken)
            .into_iter()
            .chain(begun)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(since: u64, until: Option<u64>) -> WithTask<Phase> {
        WithTask {
            pid: 1,
            tid: 1,
            item: Phase {
                name: "a".into(),
                since,
                until,
            },
        }
    }

    /// An item that an earlier part lists as active gets its end.
    #[test]
    fn an_end_is_reported_even_beyond_the_limit() {
        const MINUTE: u64 = 60_000_000_000;
        let mut listed = EndedList::default();
        assert_eq!(listed.take_new(vec![phase(5, None)], 10), [phase(5, None)]);
        let more_than_listed = 11..11 + MAX_LISTED as u64 + 7;
        let unlisted = listed.add(more_than_listed.map(|at| phase(at, Some(at + 1))));
        assert_eq!(unlisted, 7);
        assert_eq!(listed.add([phase(5, Some(MINUTE))].into_iter()), 1);
        let news = listed.take_new(Vec::new(), MINUTE);
        assert_eq!(news.len(), MAX_LISTED + 1);
        assert_eq!(news.last(), Some(&phase(5, Some(MINUTE))));
        // Items listed long ago are not listed again.
        let active = vec![phase(6, None), phase(MINUTE, None)];
        assert_eq!(listed.take_new(active.clone(), 2 * MINUTE), active[1..]);
        assert_eq!(listed.with_active(active).len(), MAX_LISTED + 2);
    }
}
