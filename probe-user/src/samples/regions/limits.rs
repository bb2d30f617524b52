//! Limits on the memory that all observed processes together can use up, since they are not
//! trusted: [`EntryBudget`] limits tags and phases, [`NameTable`] limits bytes of names.

use std::{collections::HashSet, sync::Arc};

/// Maximum number of entries. An entry is a process, a tag, an open phase or a change of phase,
/// including those that ended in the last minute. It takes some 200 bytes.
const MAX_ENTRIES: usize = 1 << 19;

/// Maximum bytes of all names, including [`NAME_OVERHEAD`] for each.
const MAX_NAME_BYTES: usize = 1 << 25;

/// Bytes that a name takes besides its text: its slot in the table, reference counts and length.
const NAME_OVERHEAD: usize = 64;

/// How many entries may still be added.
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

/// Shared copies of names: each distinct name is stored once.
#[derive(Debug)]
pub(super) struct NameTable {
    names: HashSet<Arc<str>>,
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
            names: HashSet::new(),
            bytes: 0,
            limit,
            swept: false,
        }
    }

    /// The shared copy of a name; None if the limit leaves no space for a new one.
    pub(super) fn intern(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.names.get(name) {
            return Some(Arc::clone(known));
        }
        let size = NAME_OVERHEAD + name.len();
        if self.bytes + size > self.limit && !self.swept {
            self.swept = true;
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.bytes = self
                .names
                .iter()
                .map(|name| NAME_OVERHEAD + name.len())
                .sum();
        }
        if self.bytes + size > self.limit {
            return None;
        }
        self.bytes += size;
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        Some(name)
    }

    pub(super) const fn end_round(&mut self) {
        self.swept = false;
    }
}
