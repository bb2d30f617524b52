//! The number of descriptors that a session needs, known before it opens the first.

use super::{Config, object};
use crate::{event::Scope, machine::Machine, plan::Plan, snapshot::Hook, sys::descriptors::Needed};

/// For each CPU the program's event, its link, and the event that counts the same switches.
const PER_CGROUP_SWITCH: usize = 3;

impl Config {
    /// The descriptors of a session that counts on these CPUs.
    #[must_use]
    pub fn descriptors(&self, machine: &Machine, cpus: &[u32]) -> Needed {
        self.descriptors_on(machine, cpus)
            .with("uncore events", self.plan.on_sockets())
            .with("maps and programs", object::DESCRIPTORS)
    }

    /// The descriptors that these CPUs add.
    pub(super) fn descriptors_on(&self, machine: &Machine, cpus: &[u32]) -> Needed {
        let hook = match self.hook {
            Hook::SchedSwitch => 0,
            Hook::CgroupSwitches => PER_CGROUP_SWITCH * cpus.len(),
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
    /// Number of counters on these CPUs, of all groups that count there, running or not.
    fn on_cpus(&self, cpus: &[u32]) -> usize {
        let counters_on = |cpu: &u32| -> usize {
            let groups = self.groups.iter().enumerate();
            let counting = groups.filter(|(at, _)| self.counts_on(*at, *cpu));
            let opened = counting.flat_map(|(_, group)| group);
            opened.filter(|it| !it.counter.is_of_scheduler()).count()
        };
        cpus.iter().map(counters_on).sum()
    }

    /// One descriptor for each event and CPU of an uncore PMU's cpumask, and those of the largest
    /// group once more: a group that moves to another CPU is opened there before its old events are
    /// closed.
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
    use crate::sys::descriptors::OTHER_DESCRIPTORS;

    /// The number of descriptors that `doctor` advises suffices.
    #[test]
    fn the_advised_number_covers_all_objects() {
        const { assert!(object::DESCRIPTORS > 40) };
        // Includes the descriptors that a process has open anyway.
        const { assert!(object::DESCRIPTORS as u64 + 64 <= OTHER_DESCRIPTORS) };
    }
}
