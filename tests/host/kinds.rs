//! Counters that only one kind of core has. Software events limited to CPU 0 stand for them.

use std::path::Path;

use probe_user::{
    event::{self, Scope},
    machine::Pmus,
    plan::Plan,
    window::Owner,
};
use test_harness::{Counting, TestCgroup, machine, on_cpu};

/// CPUs of another kind do not read such counters and charge nothing for them.
#[test]
fn counters_of_one_kind_are_read_on_their_own_cpus_only() {
    let Some(_machine) = machine() else { return };
    if probe_user::machine::cpus::online(Path::new("/sys"))
        .unwrap()
        .len()
        < 2
    {
        println!("skipped: there is one CPU only");
        return;
    }
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let events = event::parse("{task-clock},{page-faults,minor-faults}", &pmus).unwrap();
    let mut plan = Plan::new(&events).unwrap();
    for planned in &mut plan.groups[1] {
        planned.counter.scope = Scope::Cpus([0].into_iter().collect());
    }
    plan.rotated = 1;
    plan.cores = [0, 1].map(|cpu| [cpu].into_iter().collect()).to_vec();
    let cgroups = [0, 1].map(|cpu| (cpu, TestCgroup::new(&format!("kind{cpu}"))));
    let mut counting = Counting::with_plan(plan, |_| {});
    for (cpu, cgroup) in &cgroups {
        // The load is started from its own CPU, so it does not run on the other one.
        on_cpu(*cpu, || cgroup.load(&format!("burn {cpu} 30")).finish());
    }
    // `cost` describes the CPU with the highest overhead, here CPU 1. A CPU of another kind reads
    // other counters.
    on_cpu(1, || cgroups[1].1.load("bursts 1 20 20 2000").finish());
    let window = counting.window();
    assert_eq!(window.health.sum.read_errors, 0);
    let cost = window.health.cost;
    println!("{cost:?}");
    assert_eq!(cost.read.software, if cost.cpu == 0 { 3 } else { 1 });
    for (cpu, cgroup) in &cgroups {
        let owner = Owner {
            cgroup: cgroup.id,
            tgid: 0,
        };
        let usage = &window.usage[&owner];
        let clock = usage[0].as_ref().unwrap();
        // A CPU that does not have a group charges no time for it.
        assert_eq!(clock.enabled, clock.running, "CPU {cpu}");
        assert_eq!(usage[1].is_some(), *cpu == 0, "CPU {cpu}");
    }
}
