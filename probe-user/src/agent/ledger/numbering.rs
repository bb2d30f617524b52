//! Numbers of distinct values, from which keys of series are made.

use std::{collections::HashMap, hash::Hash};

use serde::{Deserialize, Serialize};

/// Gives each distinct value a number, which is never reused.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de> + Eq + Hash"))]
pub(super) struct Numbering<T> {
    numbers: HashMap<T, u32>,
    next: u32,
}

impl<T> Default for Numbering<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            next: 0,
        }
    }
}

impl<T: Eq + Hash> Numbering<T> {
    /// The number of a value; a new one if it has none yet.
    pub(super) fn number(&mut self, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with(|| {
            let number = self.next;
            self.next += 1;
            number
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u32)> {
        self.numbers.iter().map(|(value, number)| (value, *number))
    }

    /// Drops the values whose numbers `keeps` rejects.
    pub(super) fn retain(&mut self, keeps: impl Fn(u32) -> bool) {
        self.numbers.retain(|_, number| keeps(*number));
    }
}
