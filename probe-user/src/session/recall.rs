//! What an earlier process knew, for a session that goes on where that one ended.

use probe_common::{CgroupId, UsageKey, UsageRow};

use super::{Session, SessionError};
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
        let counted = |at: usize| self.config.plan.counts_on(0, self.counters[at].cpu);
        let cpu = (0..self.counters.len()).find(|at| self.config.counts_on_cpus() && counted(*at));
        // Rows by process end with their process.
        if let Some(at) = cpu.filter(|_| !self.config.by_process) {
            let row = UsageRow {
                made: nanos(self.clock.now()),
                ..UsageRow::ZERO
            };
            let cpu = u16::try_from(self.counters[at].cpu).expect("the key's CPU is 16 bits wide");
            for cgroup in owners
                .into_iter()
                .filter(|id| exist.cgroups.contains_key(id))
            {
                let key = UsageKey {
                    cgroup,
                    tgid: 0,
                    cpu,
                    group: 0,
                };
                self.object.maps.usage.add(&key, &row)?;
            }
        }
        self.lifecycle.recall(names);
        Ok(())
    }
}
