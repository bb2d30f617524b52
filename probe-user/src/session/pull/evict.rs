//! Eviction of rows from a map that fills up. Without it, anyone who may create cgroups could fill
//! the map with a process that visits thousands of cgroups. A container that starts later would
//! then have no row.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use probe_common::{CgroupId, FlushMode, ROW_FREED, UsageKey, UsageRow};

use super::LifecycleTracker;
use crate::{
    names::{IdKind, path_ids},
    session::{EbpfObject, SessionError, object::FLUSH},
    snapshot::{OVERFLOW, UsageRows},
};

/// Rows that are evicted if they have not changed by the next eviction.
#[derive(Default)]
pub(crate) struct EvictionCandidates {
    /// Each candidate with the sum of its numbers: the sum changes if the row changes.
    sums: HashMap<UsageKey, u64>,
    /// Number of rows evicted since the session began.
    pub(super) evicted: u64,
    /// Time of the last eviction that was tried between two pulls.
    last_try: Option<Instant>,
}

/// Minimum time between two evictions that are tried between pulls: each try reads all rows.
const MIN_TRY_INTERVAL: Duration = Duration::from_millis(250);

impl EvictionCandidates {
    /// Evicts rows if the map of counts is more than half full: all rows of cgroups without
    /// processes, and rows of other cgroups that have not changed since the last call, except those
    /// of containers. Returns the evicted rows with their last values. Their owners get new rows as
    /// soon as they run.
    pub(super) fn evict(
        &mut self,
        object: &mut EbpfObject,
        lifecycle: &mut LifecycleTracker,
        rows: &UsageRows,
        max_rows: u32,
    ) -> Result<Vec<(UsageKey, UsageRow)>, SessionError> {
        // Overflow rows are in another map.
        let used = rows.keys().filter(|key| key.cgroup != OVERFLOW).count();
        if used <= max_rows as usize / 2 {
            return Ok(Vec::new());
        }
        let before = std::mem::take(&mut self.sums);
        let names = lifecycle.names();
        // Whether a cgroup has processes, and whether it is a container.
        let mut cgroups: HashMap<CgroupId, Option<(bool, bool)>> = HashMap::new();
        let mut evicted = Vec::new();
        for (key, row) in rows.iter() {
            let cgroup = *cgroups.entry(key.cgroup).or_insert_with(|| {
                let path = names.cgroups.get(&key.cgroup)?;
                let is_container = path_ids(path).any(|found| found.kind == IdKind::Container);
                Some((lifecycle.hierarchy.is_populated(path)?, is_container))
            });
            // Rows that are never freed, such as those of the idle task, have no creation time.
            let Some((is_populated, is_container)) = cgroup.filter(|_| row.made != 0) else {
                continue;
            };
            let is_unchanged = before.get(key) == Some(&row.sum());
            if (!is_populated || is_unchanged && !is_container) && free_row(object, key, row)? {
                evicted.push((*key, *row));
            } else if !is_container {
                self.sums.insert(*key, row.sum());
            }
        }
        if self.evicted == 0 && !evicted.is_empty() {
            tracing::info!(
                "{used} of {max_rows} rows of counts are in use: those of cgroups without \
                 processes, and of idle ones that are no container, are evicted; count.max_rows, \
                 or --max-rows, makes room for more"
            );
        }
        self.evicted += evicted.len() as u64;
        Ok(evicted)
    }

    /// Whether an eviction may be tried now, between two pulls. If so, this counts as the try.
    pub(super) fn begin_try(&mut self) -> bool {
        let now = Instant::now();
        let last = self.last_try;
        if last.is_some_and(|last| now.duration_since(last) < MIN_TRY_INTERVAL) {
            return false;
        }
        self.last_try = Some(now);
        true
    }
}

/// Frees a row if nothing was added to it since it was read. Returns whether it was freed: also not
/// if the CPU is busy with a charge, or offline.
fn free_row(object: &mut EbpfObject, key: &UsageKey, row: &UsageRow) -> Result<bool, SessionError> {
    let [first, second] = key.to_words();
    let arguments = [FlushMode::FreeRow as u64, first, second, row.sum()];
    let programs = &mut object.programs;
    let returned = programs.run(FLUSH, Some(key.cpu.into()), &arguments)?;
    Ok(returned == Some(ROW_FREED))
}
