//! Fewer events: a plan without the last counters of its groups, for who may not take more time.

use std::collections::BTreeMap;

use super::{CountSource, Plan, Planned, SOFTWARE};

impl Planned {
    fn is_software(&self) -> bool {
        self.counter.type_ == SOFTWARE
    }
}

impl Plan {
    /// Counters that are read on a CPU when a slice is charged: of hardware, and the kernel's own.
    #[must_use]
    pub fn reads(&self) -> (usize, usize) {
        let count = |groups: &[Vec<Planned>], software| {
            let of = |group: &Vec<Planned>| {
                let of = group.iter().filter(|it| it.is_software() == software);
                of.count()
            };
            groups.iter().map(of).collect::<Vec<_>>()
        };
        let (fixed, rotated) = self.groups.split_at(self.fixed());
        let read = |software| {
            let live = count(rotated, software).into_iter().max();
            count(fixed, software).iter().sum::<usize>() + live.unwrap_or(0)
        };
        (read(false), read(true))
    }

    /// The plan with at most so many of these: the first ones of each group stay. What needs one of
    /// the others is not there.
    #[must_use]
    pub fn with_fewer(mut self, hardware: usize, software: usize) -> Self {
        let fixed = self.fixed();
        let mut left = (hardware, software);
        // By group and position: where it is now.
        let mut places: Vec<Vec<Option<CountSource>>> = Vec::new();
        let mut groups: Vec<Vec<Planned>> = Vec::new();
        let mut rotated = 0;
        for (at, group) in std::mem::take(&mut self.groups).into_iter().enumerate() {
            // Of groups in turns one is live.
            let mut of_group = left;
            let budget = if at < fixed { &mut left } else { &mut of_group };
            let mut kept = Vec::new();
            let mut moved = Vec::new();
            for planned in group {
                let room = match planned.is_software() {
                    true => &mut budget.1,
                    false => &mut budget.0,
                };
                let stays = *room > 0;
                *room -= usize::from(stays);
                moved.push(stays.then_some(CountSource::Core {
                    group: groups.len(),
                    at: kept.len(),
                }));
                if stays {
                    kept.push(planned);
                }
            }
            places.push(moved);
            if !kept.is_empty() {
                groups.push(kept);
                rotated += usize::from(at >= fixed);
            }
        }
        (self.groups, self.rotated) = (groups, rotated);
        let now = |place: CountSource| match place {
            CountSource::Core { group, at } => places[group][at],
            other => Some(other),
        };
        self.keep_columns(now);
        self.metrics.list.retain_mut(|planned| {
            let Ok(sources) = &mut planned.sources else {
                return true;
            };
            let events = sources.iter_mut().flat_map(|source| &mut source.events);
            let mut places = events.map(|(_, place)| place).chain(&mut planned.io);
            places.all(|place| now(*place).map(|now| *place = now).is_some())
        });
        self.weights.retain_mut(|weight| {
            let (all, remote) = (now(weight.all), weight.remote.map(now));
            let whole = all.is_some() && remote != Some(None);
            if let Some(all) = all {
                (weight.all, weight.remote) = (all, remote.flatten());
            }
            whole
        });
        self
    }

    /// Leaves out the columns whose counter went.
    fn keep_columns(&mut self, now: impl Fn(CountSource) -> Option<CountSource>) {
        // A counter that stays keeps its column, also where that showed another group's.
        let mut own = BTreeMap::new();
        for (group, planned) in self.groups.iter().enumerate() {
            for (at, planned) in planned.iter().enumerate() {
                own.insert(planned.column, CountSource::Core { group, at });
            }
        }
        let mut numbers = Vec::new();
        let mut columns = Vec::new();
        for (number, mut column) in std::mem::take(&mut self.columns).into_iter().enumerate() {
            numbers.push(columns.len());
            if let Some(place) = now(column.place).or_else(|| own.get(&number).copied()) {
                column.place = place;
                columns.push(column);
            }
        }
        self.columns = columns;
        let planned = self.groups.iter_mut().flatten().chain(&mut self.uncore);
        for planned in planned {
            planned.column = numbers[planned.column];
        }
    }

    /// The events of each group as they are opened, those of sockets after those of cores: what
    /// tells a group from any other.
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
    /// What is opened, as a text.
    pub(crate) fn opened(&self) -> String {
        serde_json::to_string(&(&self.counter, self.exclude)).expect("plain data")
    }
}
