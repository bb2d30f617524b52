//! Eviction of rows from a map that fills up. Without it, anyone who may create cgroups could fill
//! the map with a process that visits thousands of cgroups, and a container that starts then would
//! have no row.

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
    /// The candidates, each with the sum of its numbers, which changes if the row does.
    sums: HashMap<UsageKey, u64>,
    /// Rows that were evicted since the session began.
    pub(super) evicted: u64,
    /// Time of the last eviction that was tried between two pulls.
    last_try: Option<Instant>,
}

/// Between two pulls, evictions are tried at least this long apart: each try reads all rows.
const PAUSE: Duration = Duration::from_millis(250);

impl EvictionCandidates {
    /// Evicts rows if the map of counts is more than half full: all rows of cgroups without
    /// processes; of cgroups that are no containers, the rows that have not changed since the last
    /// call. Returns the evicted rows with their last values. Their owners get new rows as soon as
    /// they run.
    pub(super) fn evict(
        &mut self,
        object: &mut EbpfObject,
        lifecycle: &mut LifecycleTracker,
        rows: &UsageRows,
        max_rows: u32,
    ) -> Result<Vec<(UsageKey, UsageRow)>, SessionError> {
        // Overflow rows are in another map.
        let live = rows.keys().filter(|key| key.cgroup != OVERFLOW).count();
        if live <= max_rows as usize / 2 {
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
                let container = path_ids(path).any(|found| found.kind == IdKind::Container);
                Some((lifecycle.hierarchy.is_populated(path)?, container))
            });
            // Rows of the idle task, and others that are never freed, have no creation time.
            let Some((populated, container)) = cgroup.filter(|_| row.made != 0) else {
                continue;
            };
            let idle = before.get(key) == Some(&row.sum());
            if (!populated || idle && !container) && free_row(object, key, row)? {
                evicted.push((*key, *row));
            } else if !container {
                self.sums.insert(*key, row.sum());
            }
        }
        if self.evicted == 0 && !evicted.is_empty() {
            tracing::info!(
                "{live} of {max_rows} rows of counts are in use: those of cgroups without \
                 processes, and of idle ones that are no container, are evicted; count.max_rows, \
                 or --max-rows, makes room for more"
            );
        }
        self.evicted += evicted.len() as u64;
        Ok(evicted)
    }

    /// Whether an eviction may be tried now, between two pulls. If so, notes the time.
    pub(super) fn begin_try(&mut self) -> bool {
        let now = Instant::now();
        let last = self.last_try;
        if last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            return false;
        }
        self.last_try = Some(now);
        true
    }
}

/// Frees a row if nothing was added to it since it was read, and returns whether it did. The row is
/// not freed if the CPU is busy with a charge or offline.
fn free_row(object: &mut EbpfObject, key: &UsageKey, row: &UsageRow) -> Result<bool, SessionError> {
    let [first, second] = key.to_words();
    let arguments = [FlushMode::FreeRow as u64, first, second, row.sum()];
    let programs = &mut object.programs;
    let returned = programs.run(FLUSH, Some(key.cpu.into()), &arguments)?;
    Ok(returned == Some(ROW_FREED))
}
