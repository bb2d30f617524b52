//! Samples of memory accesses, by the names that the user wants to see.

use std::collections::BTreeMap;

use super::{Entity, View};
use crate::window::{SpeUsage, SpeWindow};

/// A window of samples by entity.
pub struct SpeJoined {
    /// Gains by entity.
    pub rows: BTreeMap<Entity, SpeUsage>,
    /// The whole machine: the sum of every owner, also of those that are not shown.
    pub total: SpeUsage,
}

impl View {
    /// Rolls the owners of a window of samples up.
    #[must_use]
    pub fn join_spe(&self, window: &SpeWindow) -> SpeJoined {
        let mut rows: BTreeMap<Entity, SpeUsage> = BTreeMap::new();
        let mut total = SpeUsage::new();
        let naming = self.naming(&window.names);
        for (owner, usage) in &window.usage {
            sum(&mut total, usage);
            if let Some(entity) = naming.entity(*owner) {
                sum(rows.entry(entity).or_default(), usage);
            }
        }
        SpeJoined { rows, total }
    }
}

fn sum(into: &mut SpeUsage, usage: &SpeUsage) {
    for (kind, counts) in usage {
        into.entry(*kind).or_default().add(counts);
    }
}
