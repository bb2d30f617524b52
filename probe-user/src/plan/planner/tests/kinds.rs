//! Machines with two kinds of core.

use super::{plan, pmus};
use crate::catalogue::Chip;

#[test]
fn each_kind_of_core_has_its_own_groups() {
    let (chip, metrics) = (Chip::named("other").unwrap(), "ipc,cpus_used");
    for (tree, kinds) in [("odd", ["0-3", "4-5"]), ("hybrid", ["4-11", "0-3"])] {
        let machine = pmus(tree);
        let cpus: Vec<String> = machine
            .cores()
            .map(|pmu| pmu.cpus.as_ref().unwrap().to_string())
            .collect();
        assert_eq!(cpus, kinds);
        let plan = plan(tree, chip, "cycles,instructions,task-clock", metrics, 1);
        assert_eq!((plan.fixed(), plan.rotated), (1, 2), "{tree}");
        for (group, pmu) in plan.groups[1..].iter().zip(machine.cores()) {
            assert_eq!(group.len(), 2);
            let counter = &group[0].counter;
            assert_eq!(counter.pmu.as_ref(), Some(&pmu.name));
        }
        for cpu in 0..64 {
            let core_pmus = machine
                .cores()
                .filter(|pmu| pmu.cpus.as_ref().unwrap().contains(cpu));
            assert_eq!(
                plan.multiplexed_groups(cpu).count(),
                core_pmus.count(),
                "CPU {cpu}"
            );
        }
        // The events of one metric on each kind are summed.
        let list = &plan.metrics.list;
        let ipc = list
            .iter()
            .find(|planned| planned.metric.name == "ipc")
            .unwrap();
        let source = &ipc.sources.as_ref().unwrap()[0];
        assert_eq!((source.units, source.events.len()), (2, 4));
    }
    // The event of one kind of core is counted on the CPUs of that kind.
    let plan = plan("hybrid", chip, "cpu_core/cycles/", "", 1);
    assert_eq!((plan.fixed(), plan.rotated), (0, 1));
    let multiplexed = |cpu| plan.multiplexed_groups(cpu).count();
    assert_eq!(
        [
            multiplexed(0),
            multiplexed(3),
            multiplexed(4),
            multiplexed(12)
        ],
        [1, 1, 0, 0]
    );
}

/// An optional metric needs its events on each kind of core.
#[test]
fn metrics_of_two_kinds_of_core_are_offered() {
    let offered = |events: &str| {
        let plan = plan("hybrid", Chip::named("other").unwrap(), events, "", 1);
        let list = plan.metrics.list.iter();
        let ipc = list.filter(|planned| planned.metric.name == "ipc");
        let events = ipc.map(|planned| planned.sources.as_ref().unwrap()[0].events.len());
        events.collect::<Vec<_>>()
    };
    assert_eq!(offered("cycles,instructions"), [4]);
    assert_eq!(offered("cpu_core/cycles/,cpu_core/instructions/"), [0; 0]);
}
