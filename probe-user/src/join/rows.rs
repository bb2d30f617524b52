//! Rows of the output: deltas and totals by entity, summed over its owners.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::Entity;
use crate::window::{Gained, Owner, Sum};

/// Deltas and totals by entity, in the order of entities.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rows<T> {
    #[serde(bound(deserialize = "T: Deserialize<'de> + Default"))]
    list: Vec<(Entity, Gained<T>)>,
}

impl<T> Rows<T> {
    /// The delta and total of an entity.
    #[must_use]
    pub fn of(&self, entity: &Entity) -> Option<&Gained<T>> {
        let found = self.list.binary_search_by(|(known, _)| known.cmp(entity));
        Some(&self.list[found.ok()?].1)
    }

    /// All rows, in the order of entities.
    pub fn iter(&self) -> impl Iterator<Item = (&Entity, &Gained<T>)> {
        self.list.iter().map(|(entity, gained)| (entity, gained))
    }
}

impl<T: Sum + Default> Rows<T> {
    /// The same rows with converted totals, and without deltas.
    pub(crate) fn map_totals(self, total: impl Fn(&T) -> T) -> Self {
        let row = |(entity, gained): (Entity, Gained<T>)| {
            let gained = Gained {
                delta: T::default(),
                total: total(&gained.total),
                since: gained.since,
            };
            (entity, gained)
        };
        Self {
            list: self.list.into_iter().map(row).collect(),
        }
    }
}

impl<T: Sum> Rows<T> {
    /// The rows of a window that began at `start`. `before`: the rows of the previous window, whose
    /// totals continue. `exists`: whether an entity without an owner in this window keeps its row.
    pub(super) fn new(
        entity: impl Fn(Owner) -> Option<Entity>,
        usage: &BTreeMap<Owner, T>,
        start: Duration,
        before: Option<&Self>,
        exists: impl Fn(&Entity) -> bool,
    ) -> Self {
        let owners = usage.iter();
        let named = owners.filter_map(|(owner, usage)| Some((entity(*owner)?, usage)));
        let sums = roll_up(named, T::add_all);
        let mut list = Vec::with_capacity(sums.len());
        let keep = |list: &mut Vec<_>, (entity, gained): (&Entity, &Gained<T>)| {
            if exists(entity) {
                let gained = Gained {
                    delta: gained.total.nothing(),
                    total: gained.total.clone(),
                    since: gained.since,
                };
                list.push((entity.clone(), gained));
            }
        };
        // Merges `sums` and `before`, which are both in the order of entities.
        let mut before = before.into_iter().flat_map(Self::iter).peekable();
        for (entity, delta) in sums {
            while let Some(skipped) = before.next_if(|(known, _)| **known < entity) {
                keep(&mut list, skipped);
            }
            let mut gained = Gained::first(delta, start);
            if let Some((_, before)) = before.next_if(|(known, _)| **known == entity) {
                gained.continue_from(before);
            }
            list.push((entity, gained));
        }
        before.for_each(|skipped| keep(&mut list, skipped));
        Self { list }
    }
}

/// The sums by entity, in the order of entities.
pub(super) fn roll_up<'a, T: Clone + 'a>(
    named: impl Iterator<Item = (Entity, &'a T)>,
    sum: impl Fn(&mut T, &T),
) -> Vec<(Entity, T)> {
    let mut named: Vec<(Entity, &T)> = named.collect();
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut rows: Vec<(Entity, T)> = Vec::with_capacity(named.len());
    for (entity, part) in named {
        match rows.last_mut() {
            Some((last, row)) if *last == entity => sum(row, part),
            _ => rows.push((entity, part.clone())),
        }
    }
    rows
}
