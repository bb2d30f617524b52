//! Samples of memory accesses, by the names that the user wants to see.

use super::{Entity, Gained, Naming, roll_up, with_total, with_totals};
use crate::window::{SpeUsage, SpeWindow};

/// A window of samples by entity.
#[derive(Debug)]
pub struct SpeJoined {
    /// By entity, in their order.
    pub rows: Vec<(Entity, Gained<SpeUsage>)>,
    /// The whole machine: the sum of every owner, also of those that are not shown.
    pub total: Gained<SpeUsage>,
}

impl SpeJoined {
    pub(super) fn new(naming: &Naming<'_>, window: &SpeWindow, before: Option<&Self>) -> Self {
        let mut total = SpeUsage::new();
        for usage in window.usage.values() {
            sum(&mut total, usage);
        }
        let owners = window.usage.iter();
        let named = owners.filter_map(|(owner, usage)| Some((naming.entity(*owner)?, usage)));
        let rows = roll_up(named, SpeUsage::new, sum);
        Self {
            rows: with_totals(rows, before.map(|before| &*before.rows), sum),
            total: with_total(total, before.map(|before| &before.total), sum),
        }
    }

    /// What was sampled of an entity.
    #[must_use]
    pub fn of(&self, entity: &Entity) -> Option<&Gained<SpeUsage>> {
        super::find(&self.rows, entity)
    }
}

fn sum(into: &mut SpeUsage, usage: &SpeUsage) {
    for (kind, counts) in usage {
        into.entry(*kind).or_default().add(counts);
    }
}
