//! What all observed processes may make this program keep, together: how many tags and phases, and
//! how many bytes of names. A process that is observed is not trusted.

use std::{collections::HashSet, sync::Arc};

/// Tags and phases of all processes that are kept, also those that ended in the last minute, and
/// the processes: some 200 bytes each.
const KEPT: usize = 1 << 19;

/// Bytes of all names, each with what it costs besides.
const NAMES: usize = 1 << 25;

/// What a name costs besides its bytes: its place in the table, counts and length.
const NAME: usize = 64;

/// Places that are left.
#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    left: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self::of(KEPT)
    }
}

impl Room {
    pub(super) const fn of(most: usize) -> Self {
        Self { most, left: most }
    }

    /// Takes so many places; false where there are not so many.
    pub(super) const fn take(&mut self, places: usize) -> bool {
        match self.left.checked_sub(places) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// So many are in use.
    pub(super) const fn counted(&mut self, used: usize) {
        self.left = self.most.saturating_sub(used);
    }
}

/// One of each name.
#[derive(Debug)]
pub(super) struct Names {
    known: HashSet<Arc<str>>,
    bytes: usize,
    most: usize,
    /// Those that nobody uses were looked for in this round.
    looked: bool,
}

impl Default for Names {
    fn default() -> Self {
        Self::of(NAMES)
    }
}

impl Names {
    pub(super) fn of(most: usize) -> Self {
        Self {
            known: HashSet::new(),
            bytes: 0,
            most,
            looked: false,
        }
    }

    /// A name; none where there is no room for one more.
    pub(super) fn get(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.known.get(name) {
            return Some(Arc::clone(known));
        }
        let cost = NAME + name.len();
        if self.bytes + cost > self.most && !self.looked {
            self.looked = true;
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.bytes = self.known.iter().map(|name| NAME + name.len()).sum();
        }
        if self.bytes + cost > self.most {
            return None;
        }
        self.bytes += cost;
        let name: Arc<str> = name.into();
        self.known.insert(Arc::clone(&name));
        Some(name)
    }

    pub(super) const fn round_ends(&mut self) {
        self.looked = false;
    }
}
