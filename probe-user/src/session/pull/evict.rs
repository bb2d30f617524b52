//! Room in a map that fills up. Whoever may make cgroups could fill it by a process that visits
//! thousands of them, and a container that starts then would have no row.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use probe_common::{CgroupId, FlushMode, ROW_FREED, UsageKey, UsageRow};

use crate::{
    names::{Kind, named},
    session::{Session, SessionError, object::FLUSH},
    snapshot::{OVERFLOW, UsageRows},
};

/// Rows that are evicted if they did not run until the map is half full again.
#[derive(Default)]
pub(crate) struct EvictionCandidates {
    /// Their sums.
    sums: HashMap<UsageKey, u64>,
    /// Rows that were evicted since the session began.
    pub(super) evicted: u64,
    /// When that was tried last between two pulls.
    tried: Option<Instant>,
}

/// The time between two tries, each of which reads all rows.
const PAUSE: Duration = Duration::from_millis(250);

impl Session {
    /// Evicts rows where the map of counts is more than half full: those of cgroups that have no
    /// process, and those of no container that did not run since the last time. Returns them as
    /// they were. They have new rows as soon as they run.
    pub(super) fn evict_rows(
        &mut self,
        rows: &UsageRows,
    ) -> Result<Vec<(UsageKey, UsageRow)>, SessionError> {
        // Those of overflow are in another map.
        let live = rows.keys().filter(|key| key.cgroup != OVERFLOW).count();
        if live <= self.max_rows as usize / 2 {
            return Ok(Vec::new());
        }
        let before = std::mem::take(&mut self.candidates.sums);
        let names = self.lifecycle.names();
        // Whether it has processes, and whether it is a container.
        let mut cgroups: HashMap<CgroupId, Option<(bool, bool)>> = HashMap::new();
        let mut evicted = Vec::new();
        for (key, row) in rows.iter() {
            let cgroup = *cgroups.entry(key.cgroup).or_insert_with(|| {
                let path = names.cgroups.get(&key.cgroup)?;
                let container = named(path).any(|named| named.kind == Kind::Container);
                Some((self.hierarchy.is_populated(path)?, container))
            });
            // Those of idle, and others that are never freed, have no time at which they were made.
            let Some((populated, container)) = cgroup.filter(|_| row.made != 0) else {
                continue;
            };
            let idle = before.get(key) == Some(&row.sum());
            if (!populated || idle && !container) && self.free_row(key, row)? {
                evicted.push((*key, *row));
            } else if !container {
                self.candidates.sums.insert(*key, row.sum());
            }
        }
        if self.candidates.evicted == 0 && !evicted.is_empty() {
            tracing::info!(
                "{live} of {} rows of counts are in use: those of cgroups without processes, and \
                 of idle ones that are no container, are evicted; count.max_rows, or --max-rows, \
                 makes room for more",
                self.max_rows
            );
        }
        self.candidates.evicted += evicted.len() as u64;
        Ok(evicted)
    }

    /// The same between two pulls, when the map was found full. The next snapshot has the rows.
    pub(super) fn evict_in_between(&mut self) -> Result<(), SessionError> {
        let now = Instant::now();
        let tried = self.candidates.tried;
        if tried.is_some_and(|tried| now.duration_since(tried) < PAUSE) {
            return Ok(());
        }
        self.candidates.tried = Some(now);
        let rows = self.object.maps.usage.all()?.into_iter().collect();
        let evicted = self.evict_rows(&rows)?;
        self.freed.add(evicted, self.max_rows as usize);
        Ok(())
    }

    /// Frees a row if nothing was added to it since it was read, and returns whether it did. Its
    /// CPU may be busy with a charge, or offline.
    fn free_row(&mut self, key: &UsageKey, row: &UsageRow) -> Result<bool, SessionError> {
        let [owner, place] = key.to_words();
        let arguments = [FlushMode::FreeRow as u64, owner, place, row.sum()];
        let programs = &mut self.object.programs;
        let returned = programs.run(FLUSH, Some(key.cpu.into()), &arguments)?;
        Ok(returned == Some(ROW_FREED))
    }
}
