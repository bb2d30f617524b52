//! What an earlier process knew, for a session that goes on where that one ended.

use probe_common::{CgroupId, UsageKey, UsageRow};

use super::{ByProcess, Session, SessionError};
use crate::{snapshot::Names, sys::clock::nanos};

impl Session {
    /// What tells the maps of this session from those of any other since boot. A session that goes
    /// on with the maps of another has the same.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell.
    pub fn generation(&self) -> Result<u64, SessionError> {
        self.object.maps.usage.id().map(u64::from)
    }

    /// Takes in what an earlier session knew: the names of cgroups that have gone meanwhile, and
    /// `owners`, which had counts: each that still exists has a row from the next pull on, so that
    /// its totals go on also while it sleeps. To be called before the first pull.
    ///
    /// # Errors
    ///
    /// Where a row cannot be made.
    pub fn recall(
        &mut self,
        names: &Names,
        owners: impl IntoIterator<Item = CgroupId>,
    ) -> Result<(), SessionError> {
        let exist = self.lifecycle.names();
        let exist = |id: &CgroupId| exist.cgroups.contains_key(id);
        // Rows by process end with their process.
        if self.config.by_process != ByProcess::All {
            self.make_rows(owners.into_iter().filter(exist))?;
        }
        self.lifecycle.recall(names);
        Ok(())
    }

    /// A row for each owner that has none there, on one CPU.
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
