//! Counting per container, compared with a test PMU that knows each container's true counts.
//!
//! The core test PMU counts a whole number for each nanosecond that a task runs, and all its reads
//! in one `sched_switch` tracepoint have the same time, so charged counts must be exact.

use probe_user::window::Window;
use test_harness::{Counting, Load, TestCgroup, machine};

use crate::testpmu::{TestPmu, core, event};

/// Counts per nanosecond of the events in the group; the last is cycles.
const RATES: [u64; 7] = [1, 2, 3, 5, 7, 11, 3];

/// A group that fills the PMU: 6 counters and the cycle counter.
pub(crate) fn group(pmu: &TestPmu) -> String {
    let (name, cycles) = core();
    let mut events = Vec::new();
    for (n, rate) in (0_u64..).zip(RATES) {
        let code = if n == 6 { cycles } else { event(n) };
        pmu.control(&format!("rate {name} {code} 0 0 {}", rate * 1_000_000));
        events.push(format!("{name}/config={code:#x},name=e{n}/"));
    }
    format!("{{{}}}", events.join(","))
}

/// Asserts that every count of every cgroup is the event's rate times the cgroup's time on the PMU.
#[track_caller]
pub(crate) fn assert_exact(pmu: &TestPmu, counting: &mut Counting, cgroups: &[&TestCgroup]) {
    let (window, times) = quiescent_window(pmu, counting, cgroups);
    for (cgroup, time) in cgroups.iter().zip(times) {
        assert!(time > 0, "{} did not run", cgroup.path);
        for (n, rate) in RATES.iter().enumerate() {
            let counted = counting
                .count(&window, &format!("e{n}"), cgroup.id)
                .expect("it ran, so it has a row");
            println!("{} e{n}: {counted}, {rate} x {time}", cgroup.path);
            assert_eq!(counted, rate * time, "{} e{n}", cgroup.path);
        }
    }
}

/// A window that ends while none of these cgroups runs, and each cgroup's time on the PMU.
///
/// A process that was waited for may still run, or wait for a CPU, until its last switch.
pub(crate) fn quiescent_window(
    pmu: &TestPmu,
    counting: &mut Counting,
    cgroups: &[&TestCgroup],
) -> (Window, Vec<u64>) {
    let times = || -> Vec<u64> {
        cgroups
            .iter()
            .map(|cgroup| pmu.core_time(cgroup.id))
            .collect()
    };
    for _ in 0..1_000 {
        let before = times();
        let window = counting.window();
        if times() == before {
            return (window, before);
        }
    }
    panic!("the loads have ended, and their cgroups still run");
}

/// A cgroup that the PMU watches.
pub(crate) fn watched(pmu: &TestPmu, name: &str) -> TestCgroup {
    let cgroup = TestCgroup::new(name);
    pmu.control(&format!("watch cgroup {} 0", cgroup.id.0));
    cgroup
}

/// Runs loads to their end.
pub(crate) fn run(loads: &[(&TestCgroup, &str)]) {
    let mut loads: Vec<Load> = loads
        .iter()
        .map(|(cgroup, words)| cgroup.load(words))
        .collect();
    loads.iter_mut().for_each(Load::go);
    loads.into_iter().for_each(|load| drop(load.finish()));
}

#[test]
fn every_count_is_exact() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    let [a, b, c] = ["a", "b", "c"].map(|name| watched(&pmu, name));
    let mut counting = Counting::start(&group(&pmu));
    run(&[
        (&a, "burst 0 500 700 600"),
        (&a, "burn 1 200"),
        (&b, "burn 0 300"),
        (&c, "burst 1 300 300 600"),
        (&c, "forks 20 2"),
        (&c, "execs 20"),
    ]);
    assert_exact(&pmu, &mut counting, &[&a, &b, &c]);
    assert_eq!(counting.window().health.sum.missed_switches, 0);
}

/// Pulls while loads run do not change charged counts.
#[test]
fn every_count_is_exact_beside_many_pulls() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    let [a, b] = ["a", "b"].map(|name| watched(&pmu, name));
    let mut counting = Counting::start(&group(&pmu));
    let mut loads = [
        a.load("burst 0 300 300 500"),
        b.load("burst 0 200 500 500"),
        b.load("burst 1 300 300 500"),
    ];
    loads.iter_mut().for_each(Load::go);
    for _ in 0..30 {
        counting.session.pull().unwrap();
    }
    loads.into_iter().for_each(|load| drop(load.finish()));
    assert_exact(&pmu, &mut counting, &[&a, &b]);
}
