//! Room in a map that fills up. Whoever may make cgroups could fill it by a process that visits
//! thousands of them, and a container that starts then would have no row.

use std::collections::HashMap;

use probe_common::{CgroupId, FlushMode, UsageKey, UsageRow};

use crate::{
    names::{Kind, named},
    session::{Session, SessionError, object::FLUSH},
    snapshot::UsageRows,
};

/// The enabled times of rows that may be spared, at the last pull that found the map half full.
pub(crate) type SpareRows = HashMap<UsageKey, u64>;

impl Session {
    /// Frees rows that nobody misses where the map of counts is more than half full: of cgroups
    /// that have no process, and of those that are no container and did not run since the last
    /// time. They are in this snapshot as they were, and have new rows as soon as they run.
    pub(super) fn spare_rows(&mut self, rows: &UsageRows, live: usize) -> Result<(), SessionError> {
        if live <= self.max_rows as usize / 2 {
            return Ok(());
        }
        let before = std::mem::take(&mut self.spare);
        let names = self.lifecycle.names();
        // Whether it has processes, and whether it is a container.
        let mut cgroups: HashMap<CgroupId, Option<(bool, bool)>> = HashMap::new();
        let mut spared = 0;
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
            let idle = before.get(key) == Some(&row.enabled);
            if !populated || idle && !container {
                self.free_row(key, row)?;
                spared += 1;
            } else if !container {
                self.spare.insert(*key, row.enabled);
            }
        }
        if spared > 0 {
            tracing::info!(
                "{live} of {} rows of counts were in use: freed {spared} of cgroups without \
                 processes, or idle ones that are no container",
                self.max_rows
            );
        }
        Ok(())
    }

    /// Frees a row where nothing was added to it since it was read. Where its CPU is busy or
    /// offline it stays.
    fn free_row(&mut self, key: &UsageKey, row: &UsageRow) -> Result<(), SessionError> {
        let [owner, place] = key.to_words();
        let mode = FlushMode::FreeRow as u64;
        let arguments = [mode, owner, place, row.made, row.enabled];
        let programs = &mut self.object.programs;
        programs.run(FLUSH, Some(key.cpu.into()), &arguments)?;
        Ok(())
    }
}
