//! Hybrid CPUs: two kinds of core, each with its own PMU.

use std::{path::Path, thread, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Hardware, MetricSettings},
    event::{self},
    machine::Pmus,
    plan::{Capacity, Plan, ResolvedRequest},
};
use test_harness::{Counting, machine, online, this_machine};

use crate::{
    accounting::{quiescent_window, run, watched},
    guest::{skip, value},
    report::row,
    testpmu::TestPmu,
};

fn plan(events: &str) -> Plan {
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::detect(&this_machine());
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let capacity = Capacity::of_this_machine(&catalogue, &machine, &pmus, online(), 1);
    let request = ResolvedRequest {
        events: &event::parse(events, &pmus).unwrap(),
        metrics: &[],
        offered: &[],
        machine,
        cpus: 2,
        settings: MetricSettings::default(),
    };
    Plan::packed(&request, &pmus, &capacity).unwrap()
}

fn hybrid() -> Option<TestPmu> {
    if value("ARCH") == "arm64" {
        skip("the test PMUs of two kinds are Intel's");
        return None;
    }
    Some(TestPmu::load("set=hybrid"))
}

/// A generic event is opened on each kind of core, and its count is the sum.
#[test]
fn counts_of_both_kinds_of_core_add_up() {
    let Some(_machine) = machine() else { return };
    let Some(pmu) = hybrid() else { return };
    let [both, odd] = ["both", "odd"].map(|name| watched(&pmu, name));
    let mut counting = Counting::with_plan(plan("cycles,instructions,task-clock"), |_| {});
    let columns = counting.session.plan().columns.iter();
    let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "cpu_atom/cycles/",
            "cpu_core/cycles/",
            "cpu_atom/instructions/",
            "cpu_core/instructions/",
            "task-clock"
        ]
    );
    run(&[
        (&both, "burn 0 200"),
        (&both, "burn 1 100"),
        (&odd, "burn 1 100"),
    ]);
    let (window, times) = quiescent_window(&pmu, &mut counting, &[&both, &odd]);
    for (cgroup, time) in [&both, &odd].into_iter().zip(times) {
        let values = row(&counting, &window, cgroup).values;
        let raw: Vec<u64> = values[..4]
            .iter()
            .map(|value| value.as_ref().unwrap().raw)
            .collect();
        println!("{}: {raw:?} in {time} ns", cgroup.path);
        assert_eq!(raw[0] + raw[1], 3 * time);
        assert_eq!(raw[2] + raw[3], 6 * time);
        assert!(raw[0] > 0);
    }
    assert_eq!(window.health.sum.read_errors, 0);
    assert_eq!(window.health.exchanges, 0);
}

/// On CPUs of the other kind nothing is read, and no counter looks dead.
#[test]
fn events_of_one_kind_are_not_read_on_other_cores() {
    let Some(_machine) = machine() else { return };
    let Some(pmu) = hybrid() else { return };
    let cgroup = watched(&pmu, "odd");
    let mut counting = Counting::with_plan(plan("cpu_core/cycles/"), |_| {});
    run(&[(&cgroup, "burn 1 300")]);
    for _ in 0..3 {
        // Waits longer than a running counter may stay unchanged.
        thread::sleep(Duration::from_millis(150));
        counting.session.pull().unwrap();
    }
    let window = counting.window();
    assert_eq!(window.health.sum.read_errors, 0);
    assert_eq!(window.health.sum.rebased, 0);
    run(&[(&cgroup, "burn 0 50")]);
    let (window, _) = quiescent_window(&pmu, &mut counting, &[&cgroup]);
    let values = row(&counting, &window, &cgroup).values;
    assert!(values[0].as_ref().unwrap().raw > 0);
}
