//! Restores the knowledge of an earlier process in a session that continues its counts.

use probe_common::{CgroupId, UsageKey, UsageRow};

use super::{ByProcess, Session, SessionError};
use crate::{snapshot::Names, sys::clock::nanos};

impl Session {
    /// Identifies the maps of this session among all since boot. A session that takes over the maps
    /// of another has the same generation.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to describe the map.
    pub fn generation(&self) -> Result<u64, SessionError> {
        self.object.maps.usage.id().map(u64::from)
    }

    /// Restores the state of an earlier session. `names` has the names of cgroups that are gone by
    /// now. `owners` had counts: each that still exists gets a row for the next pull, so that its
    /// totals continue even while it sleeps. Call it before the first pull.
    ///
    /// # Errors
    ///
    /// If a row cannot be inserted.
    pub fn restore(
        &mut self,
        names: &Names,
        owners: impl IntoIterator<Item = CgroupId>,
    ) -> Result<(), SessionError> {
        let current = self.lifecycle.names();
        let exists = |id: &CgroupId| current.cgroups.contains_key(id);
        // Rows by process end with their process.
        if self.config.by_process != ByProcess::All {
            self.make_rows(owners.into_iter().filter(exists))?;
        }
        self.lifecycle.restore(names);
        Ok(())
    }

    /// Inserts a row on one CPU for each of these owners, unless it has one.
    pub(super) fn make_rows(
        &self,
        owners: impl Iterator<Item = CgroupId>,
    ) -> Result<(), SessionError> {
        let counts =
            |cpu: &u32| self.config.counts_on_cpus() && self.config.plan.counts_on(0, *cpu);
        let mut cpus = self.counters.iter().map(|counters| counters.cpu);
        let Some(cpu) = cpus.find(counts) else {
            return Ok(());
        };
        let cpu = u16::try_from(cpu).expect("the key's CPU is 16 bits wide");
        let row = UsageRow {
            made: nanos(self.clock.now()),
            ..UsageRow::ZERO
        };
        for cgroup in owners {
            let key = UsageKey {
                cgroup,
                tgid: 0,
                cpu,
                group: 0,
            };
            self.object.maps.usage.add(&key, &row)?;
        }
        Ok(())
    }
}
