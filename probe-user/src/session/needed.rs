//! The descriptors that a session opens: all of them, before the first.

use super::{Config, object};
use crate::{event::Scope, machine::Machine, plan::Plan, snapshot::Hook, sys::descriptors::Needed};

/// For each CPU the program's event, its link, and the event that counts the same switches.
const OF_CGROUP_SWITCHES: usize = 3;

impl Config {
    /// The descriptors of a session that counts on these CPUs.
    #[must_use]
    pub fn descriptors(&self, machine: &Machine, cpus: &[u32]) -> Needed {
        self.descriptors_on(machine, cpus)
            .with("uncore events", self.plan.on_sockets())
            .with("maps and programs", object::DESCRIPTORS)
    }

    /// Those that each of these CPUs adds.
    pub(super) fn descriptors_on(&self, machine: &Machine, cpus: &[u32]) -> Needed {
        let hook = match self.hook {
            Hook::SchedSwitch => 0,
            Hook::CgroupSwitches => OF_CGROUP_SWITCHES * cpus.len(),
        };
        let spe = self.spe.as_ref();
        let samples = spe.map_or(0, |spe| spe.descriptors(machine, cpus));
        let sampling = self.sampling.as_ref();
        let sampled = sampling.map_or(0, |sampling| sampling.descriptors(cpus));
        Needed::default()
            .with("events on CPUs", self.plan.on_cpus(cpus))
            .with("the hook cgroup-switches", hook)
            .with("samples of memory accesses", samples)
            .with("sampled events", sampled)
    }
}

impl Plan {
    /// Counters of all groups, live or not, of the kinds of core that these CPUs are.
    fn on_cpus(&self, cpus: &[u32]) -> usize {
        let on = |cpu: &u32| -> usize {
            let groups = self.groups.iter().enumerate();
            let on = groups.filter(|(at, _)| self.counts_on(*at, *cpu));
            on.map(|(_, group)| group.len()).sum()
        };
        cpus.iter().map(on).sum()
    }

    /// One for each CPU of an uncore PMU's cpumask. Where a group moves to another CPU the new one
    /// is opened before the old one is closed.
    fn on_sockets(&self) -> usize {
        let units = |event: usize| match &self.uncore[event].counter.scope {
            Scope::Uncore { cpus } => cpus.len(),
            _ => 0,
        };
        let groups = || self.uncore_groups.iter().filter(|group| !group.is_empty());
        let open: usize = groups().map(|group| group.len() * units(group.start)).sum();
        open + groups().map(ExactSizeIterator::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::descriptors::BESIDE_EVENTS;

    /// So that doctor's advice is enough.
    #[test]
    fn the_round_number_covers_all_objects() {
        const { assert!(object::DESCRIPTORS > 40) };
        // With what a process has open by itself.
        const { assert!(object::DESCRIPTORS as u64 + 64 <= BESIDE_EVENTS) };
    }
}
