//! Limits on memory for all observed processes together, since they are not trusted:
//! [`EntryBudget`] limits tags and phases, [`NameTable`] limits bytes of names.

use std::{collections::HashSet, sync::Arc};

/// Maximum number of entries: processes, and their tags and phases, including those that ended in
/// the last minute. An entry takes some 200 bytes.
const MAX_ENTRIES: usize = 1 << 19;

/// Maximum bytes of all names, including [`NAME_OVERHEAD`] for each.
const MAX_NAME_BYTES: usize = 1 << 25;

/// Overhead of a name: its slot in the table, reference counts and length.
const NAME_OVERHEAD: usize = 64;

/// Budget of entries.
#[derive(Debug)]
pub(super) struct EntryBudget {
    limit: usize,
    remaining: usize,
}

impl Default for EntryBudget {
    fn default() -> Self {
        Self::with_limit(MAX_ENTRIES)
    }
}

impl EntryBudget {
    pub(super) const fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            remaining: limit,
        }
    }

    /// Takes this many entries from the budget; false if fewer are left.
    pub(super) const fn reserve(&mut self, entries: usize) -> bool {
        match self.remaining.checked_sub(entries) {
            Some(remaining) => {
                self.remaining = remaining;
                true
            }
            None => false,
        }
    }

    /// Sets the number of entries in use.
    pub(super) const fn set_used(&mut self, used: usize) {
        self.remaining = self.limit.saturating_sub(used);
    }
}

/// Deduplicated names.
#[derive(Debug)]
pub(super) struct NameTable {
    known: HashSet<Arc<str>>,
    bytes: usize,
    limit: usize,
    /// Whether unused names were removed in this round.
    swept: bool,
}

impl Default for NameTable {
    fn default() -> Self {
        Self::with_limit(MAX_NAME_BYTES)
    }
}

impl NameTable {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self {
            known: HashSet::new(),
            bytes: 0,
            limit,
            swept: false,
        }
    }

    /// The shared copy of a name; None if the limit leaves no space for a new one.
    pub(super) fn intern(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.known.get(name) {
            return Some(Arc::clone(known));
        }
        let size = NAME_OVERHEAD + name.len();
        if self.bytes + size > self.limit && !self.swept {
            self.swept = true;
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.bytes = self
                .known
                .iter()
                .map(|name| NAME_OVERHEAD + name.len())
                .sum();
        }
        if self.bytes + size > self.limit {
            return None;
        }
        self.bytes += size;
        let name: Arc<str> = name.into();
        self.known.insert(Arc::clone(&name));
        Some(name)
    }

    pub(super) const fn end_round(&mut self) {
        self.swept = false;
    }
}
