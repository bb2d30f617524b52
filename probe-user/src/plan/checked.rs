//! Checks a plan that comes from a file: each index must be in its table.

use probe_common::GROUP_COUNTERS;

use super::{CountSource, Plan, Planned};

impl Plan {
    /// What is wrong with the plan, if anything: an index that is out of range, or a group with too
    /// many events.
    pub(crate) fn flaw(&self) -> Option<String> {
        if self.rotated > self.groups.len() {
            let (rotated, all) = (self.rotated, self.groups.len());
            return Some(format!("{rotated} of {all} counter groups take turns"));
        }
        if let Some(group) = self.groups.iter().find(|it| it.len() > GROUP_COUNTERS) {
            return Some(format!("a counter group has {} events", group.len()));
        }
        let mut counted = self.groups.iter().flatten().chain(&self.uncore);
        let has_no_column = |it: &&Planned| it.column >= self.columns.len();
        if let Some(planned) = counted.find(has_no_column) {
            return Some(format!("an event is of column {}", planned.column));
        }
        let uncore = self.uncore.len();
        let mut ranges = self.uncore_groups.iter();
        if let Some(range) = ranges.find(|it| it.start > it.end || it.end > uncore) {
            return Some(format!(
                "a group has the uncore events {range:?} of {uncore}"
            ));
        }
        let mut places = self.count_sources();
        let missing = places.find(|place| !self.contains_source(*place));
        missing.map(|place| format!("nothing is counted at {place:?}"))
    }

    fn contains_source(&self, place: CountSource) -> bool {
        match place {
            CountSource::Core { group, at } => {
                self.groups.get(group).is_some_and(|it| at < it.len())
            }
            CountSource::Uncore { at } => at < self.uncore.len(),
            CountSource::Duration | CountSource::Sampled(_) => true,
        }
    }

    /// All count sources.
    fn count_sources(&self) -> impl Iterator<Item = CountSource> + '_ {
        let columns = self.columns.iter().map(|column| column.place);
        let metrics = self.metrics.list.iter().flat_map(|planned| {
            let sources = planned.sources.iter().flatten();
            let events = sources.flat_map(|source| &source.events);
            events
                .map(|(_, place)| *place)
                .chain(planned.io.iter().copied())
        });
        let weights = self
            .weights
            .iter()
            .flat_map(|weight| [weight.all].into_iter().chain(weight.remote));
        columns.chain(metrics).chain(weights)
    }
}
