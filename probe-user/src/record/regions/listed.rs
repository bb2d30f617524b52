//! The list of tags or phases of a recording that have ended, and what of them, and of those that
//! hold, the parts of its file do not have yet.

use std::mem;

use super::{Of, Phase, Tag};

/// Tags, and phases, that are listed of a recording when they have ended; and of a part.
const LISTED: usize = 65_536;

/// Markers of other threads may come so much later than their time, in ns.
const LATE: u64 = 10_000_000_000;

/// What begins at a moment.
pub(super) trait Begun {
    /// ns of `CLOCK_MONOTONIC`.
    fn since(&self) -> u64;
}

impl Begun for Tag {
    fn since(&self) -> u64 {
        self.since
    }
}

impl Begun for Phase {
    fn since(&self) -> u64 {
        self.since
    }
}

/// A list of what has ended.
#[derive(Debug)]
pub(super) struct Listed<T> {
    all: Vec<Of<T>>,
    /// Those that no part of the file has.
    fresh: Vec<Of<T>>,
    /// The time of the last marker when a part was given what is new.
    told: u64,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            fresh: Vec::new(),
            told: 0,
        }
    }
}

impl<T: Begun + Clone> Listed<T> {
    /// Adds some that have ended; gives the number of those that the list has no room for.
    pub(super) fn add(&mut self, ended: impl Iterator<Item = Of<T>>) -> u64 {
        let mut unlisted = 0;
        for one in ended {
            // An earlier part may say that it was open: its end is never left out.
            if self.fresh.len() < LISTED || one.is.since() <= self.told {
                self.fresh.push(one.clone());
            }
            if self.all.len() < LISTED {
                self.all.push(one);
            } else {
                unlisted += 1;
            }
        }
        unlisted
    }

    /// Those that have ended, and then `live`.
    pub(super) fn with(&self, live: Vec<Of<T>>) -> Vec<Of<T>> {
        self.all.iter().cloned().chain(live).collect()
    }

    /// Those that have ended since the last call, and those of `live` that have begun since then.
    /// Some of the latter come twice. `latest` is the time of the last marker.
    pub(super) fn news(&mut self, live: Vec<Of<T>>, latest: u64) -> Vec<Of<T>> {
        let told = mem::replace(&mut self.told, latest);
        let begun = live.into_iter();
        let begun = begun.filter(|one| one.is.since() + LATE >= told);
        mem::take(&mut self.fresh)
            .into_iter()
            .chain(begun)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(since: u64, until: Option<u64>) -> Of<Phase> {
        Of {
            pid: 1,
            tid: 1,
            is: Phase {
                name: "a".into(),
                since,
                until,
            },
        }
    }

    /// One that an earlier part has as open gets its end, whatever else there is.
    #[test]
    fn an_end_is_told_also_where_there_is_no_room() {
        const MINUTE: u64 = 60_000_000_000;
        let mut listed = Listed::default();
        assert_eq!(listed.news(vec![phase(5, None)], 10), [phase(5, None)]);
        let many = 11..11 + LISTED as u64 + 7;
        let unlisted = listed.add(many.map(|at| phase(at, Some(at + 1))));
        assert_eq!(unlisted, 7);
        assert_eq!(listed.add([phase(5, Some(MINUTE))].into_iter()), 1);
        let news = listed.news(Vec::new(), MINUTE);
        assert_eq!(news.len(), LISTED + 1);
        assert_eq!(news.last(), Some(&phase(5, Some(MINUTE))));
        // What was told long ago is not told again.
        let live = vec![phase(6, None), phase(MINUTE, None)];
        assert_eq!(listed.news(live.clone(), 2 * MINUTE), live[1..]);
        assert_eq!(listed.with(live).len(), LISTED + 2);
    }
}
