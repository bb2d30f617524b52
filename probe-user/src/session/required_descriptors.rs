//! The number of file descriptors that a session needs, before it opens the first.

use super::{Config, object};
use crate::{event::Scope, machine::Machine, plan::Plan, snapshot::Hook, sys::descriptors::Needed};

/// Descriptors of the hook `cgroup-switches` on a CPU: the program's event, its link, and the event
/// that counts the same switches.
const CGROUP_SWITCHES_PER_CPU: usize = 3;

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
            Hook::CgroupSwitches => CGROUP_SWITCHES_PER_CPU * cpus.len(),
        };
        let spe = self.spe.as_ref();
        let spe_descriptors = spe.map_or(0, |spe| spe.descriptors(machine, cpus));
        let sampling = self.sampling.as_ref();
        let sampling_descriptors = sampling.map_or(0, |sampling| sampling.descriptors(cpus));
        Needed::default()
            .with("events on CPUs", self.plan.on_cpus(cpus))
            .with("the hook cgroup-switches", hook)
            .with("samples of memory accesses", spe_descriptors)
            .with("sampled events", sampling_descriptors)
    }
}

impl Plan {
    /// Number of counters on these CPUs. Includes the multiplexed groups that are not running.
    fn on_cpus(&self, cpus: &[u32]) -> usize {
        let counters_on = |cpu: &u32| -> usize {
            let groups = self.groups.iter().enumerate();
            let counting = groups.filter(|(at, _)| self.counts_on(*at, *cpu));
            let opened = counting.flat_map(|(_, group)| group);
            opened.filter(|it| !it.counter.is_of_scheduler()).count()
        };
        cpus.iter().map(counters_on).sum()
    }

    /// Number of uncore events that are open at once: one for each event and CPU of its PMU's
    /// cpumask, and the largest group once more. A group that moves to another CPU is opened there
    /// before its old events are closed.
    fn on_sockets(&self) -> usize {
        let cpumask_size = |event: usize| match &self.uncore[event].counter.scope {
            Scope::Uncore { cpus } => cpus.len(),
            _ => 0,
        };
        let groups = || self.uncore_groups.iter().filter(|group| !group.is_empty());
        let open: usize = groups()
            .map(|group| group.len() * cpumask_size(group.start))
            .sum();
        open + groups().map(ExactSizeIterator::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::descriptors::OTHER_DESCRIPTORS;

    /// `doctor` advises enough descriptors.
    #[test]
    fn the_advised_number_covers_all_objects() {
        const { assert!(object::DESCRIPTORS > 40) };
        // 64 are for the descriptors that a process has open anyway.
        const { assert!(object::DESCRIPTORS as u64 + 64 <= OTHER_DESCRIPTORS) };
    }
}
