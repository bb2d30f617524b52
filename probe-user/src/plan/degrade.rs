//! Degraded plans, without the last counters of each group: for an agent over its overhead budget.

use std::collections::BTreeMap;

use super::{CountSource, Plan, Planned};

impl Plan {
    /// Numbers of hardware and of software counters that are read on a CPU when a slice is charged.
    #[must_use]
    pub fn reads(&self) -> (usize, usize) {
        let count = |groups: &[Vec<Planned>], software| {
            let in_group = |group: &Vec<Planned>| {
                group
                    .iter()
                    .filter(|it| it.counter.is_hardware() != software)
                    .count()
            };
            groups.iter().map(in_group).collect::<Vec<_>>()
        };
        let (fixed, rotated) = self.groups.split_at(self.fixed());
        let total = |software| {
            let largest = count(rotated, software).into_iter().max();
            count(fixed, software).iter().sum::<usize>() + largest.unwrap_or(0)
        };
        (total(false), total(true))
    }

    /// The plan with at most this many hardware and software counters at one time. The first
    /// counters of each group stay. Metrics and weights that need a dropped counter are left out.
    #[must_use]
    pub fn degraded(mut self, hardware: usize, software: usize) -> Self {
        let fixed = self.fixed();
        let mut free_counters = (hardware, software);
        // The new source of each counter, by its old group and position.
        let mut new_sources: Vec<Vec<Option<CountSource>>> = Vec::new();
        let mut groups: Vec<Vec<Planned>> = Vec::new();
        let mut rotated = 0;
        for (at, group) in std::mem::take(&mut self.groups).into_iter().enumerate() {
            // Only one multiplexed group runs at a time.
            let mut group_budget = free_counters;
            let budget = if at < fixed {
                &mut free_counters
            } else {
                &mut group_budget
            };
            let mut remaining = Vec::new();
            let mut group_sources = Vec::new();
            for planned in group {
                let free = match planned.counter.is_hardware() {
                    true => &mut budget.0,
                    false => &mut budget.1,
                };
                let stays = *free > 0;
                *free -= usize::from(stays);
                group_sources.push(stays.then_some(CountSource::Core {
                    group: groups.len(),
                    at: remaining.len(),
                }));
                if stays {
                    remaining.push(planned);
                }
            }
            new_sources.push(group_sources);
            if !remaining.is_empty() {
                groups.push(remaining);
                rotated += usize::from(at >= fixed);
            }
        }
        (self.groups, self.rotated) = (groups, rotated);
        let new_source = |place: CountSource| match place {
            CountSource::Core { group, at } => new_sources[group][at],
            other => Some(other),
        };
        self.retain_columns(new_source);
        self.metrics.list.retain_mut(|planned| {
            let Ok(sources) = &mut planned.sources else {
                return true;
            };
            let events = sources.iter_mut().flat_map(|source| &mut source.events);
            let mut places = events.map(|(_, place)| place).chain(&mut planned.io);
            places.all(|place| new_source(*place).map(|new| *place = new).is_some())
        });
        self.weights.retain_mut(|weight| {
            let (all, remote) = (new_source(weight.all), weight.remote.map(new_source));
            let is_complete = all.is_some() && remote != Some(None);
            if let Some(all) = all {
                (weight.all, weight.remote) = (all, remote.flatten());
            }
            is_complete
        });
        self
    }

    /// Drops the columns of the counters that were dropped.
    fn retain_columns(&mut self, new_source: impl Fn(CountSource) -> Option<CountSource>) {
        // A counter that stays keeps its column, even if the column showed a counter of another
        // group.
        let mut by_column = BTreeMap::new();
        for (group, planned) in self.groups.iter().enumerate() {
            for (at, planned) in planned.iter().enumerate() {
                by_column.insert(planned.column, CountSource::Core { group, at });
            }
        }
        let mut new_numbers = Vec::new();
        let mut columns = Vec::new();
        for (number, mut column) in std::mem::take(&mut self.columns).into_iter().enumerate() {
            new_numbers.push(columns.len());
            if let Some(place) =
                new_source(column.place).or_else(|| by_column.get(&number).copied())
            {
                column.place = place;
                columns.push(column);
            }
        }
        self.columns = columns;
        let planned = self.groups.iter_mut().flatten().chain(&mut self.uncore);
        for planned in planned {
            planned.column = new_numbers[planned.column];
        }
    }

    /// The events of each group as they are opened, which identify the group: groups of cores
    /// first, then those of sockets.
    #[must_use]
    pub fn opened(&self) -> Vec<Vec<String>> {
        let uncore = self
            .uncore_groups
            .iter()
            .map(|group| &self.uncore[group.clone()]);
        let groups = self.groups.iter().map(Vec::as_slice).chain(uncore);
        groups
            .map(|group| group.iter().map(Planned::opened).collect())
            .collect()
    }
}

impl Planned {
    /// The attributes that are opened, as text.
    pub(crate) fn opened(&self) -> String {
        serde_json::to_string(&(&self.counter, self.exclude)).expect("plain data")
    }
}
