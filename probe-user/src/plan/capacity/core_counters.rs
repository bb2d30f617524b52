//! How many counters a core PMU has for any event.

use super::Capacity;

/// Cores with this many general counters or fewer keep none free for other users: a ratio of two
/// events needs both.
const NONE_FREE: usize = 2;

impl Capacity {
    /// How many counters of a core PMU stay free for others.
    pub(super) fn reserve(&self, pmu: Option<&str>) -> usize {
        match pmu.and_then(|pmu| self.general_counters(pmu)) {
            Some(0..=NONE_FREE) => 0,
            _ => self.reserve,
        }
    }

    /// How many counters of a core PMU count any event, as far as it is known.
    fn general_counters(&self, pmu: &str) -> Option<usize> {
        let working = self.working(pmu).map(|working| working.general);
        working.or_else(|| Some(self.documented.get(pmu)?.counters))
    }
}
