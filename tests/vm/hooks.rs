//! The hook `cgroup-switches`: used if it sees all switches, else replaced, and exact in both
//! cases.

use probe_user::{session::Session, snapshot::Hook};
use test_harness::{Counting, TestCgroup, assert_within, machine};

use crate::{
    accounting::{assert_exact, group, run, watched},
    guest::{clock_slack, preempts_itself, skip, value},
    testpmu::TestPmu,
};

fn hook(counting: &Counting) -> Hook {
    Session::hook(&counting.session)
}

#[test]
fn without_the_perf_event_css_the_hook_is_replaced() {
    let Some(_machine) = machine() else { return };
    if !value("CONTROLLERS").is_empty() {
        return skip("a controller is on in this guest");
    }
    let pmu = TestPmu::load("set=core");
    let [a, b] = ["a", "b"].map(|name| watched(&pmu, name));
    let mut counting = Counting::with(&group(&pmu), |config| config.hook = Hook::CgroupSwitches);
    assert_eq!(hook(&counting), Hook::SchedSwitch);
    run(&[
        (&a, "burst 0 500 700 500"),
        (&b, "burn 0 100"),
        (&b, "burst 1 300 300 500"),
    ]);
    assert_exact(&pmu, &mut counting, &[&a, &b]);
}

#[test]
fn a_complete_hook_counts_the_time_of_each_cgroup() {
    let Some(_machine) = machine() else { return };
    if value("CONTROLLERS").is_empty() {
        return skip("no controller is on in this guest");
    }
    let pmu = TestPmu::load("set=core");
    let events = group(&pmu);
    let [a, b] = ["a", "b"].map(|name| watched(&pmu, name));
    let mut counting = Counting::with(&events, |config| config.hook = Hook::CgroupSwitches);
    assert_eq!(hook(&counting), Hook::CgroupSwitches);
    run(&[(&a, "burn 0 1000"), (&b, "burn 1 1000")]);
    run(&[(&b, "burn 0 500"), (&a, "burn 1 500")]);
    let window = counting.window();
    for cgroup in [&a, &b] {
        let counted = counting.count(&window, "e0", cgroup.id).unwrap();
        // At every switch the hook runs shortly after the PMU's time has ended. If the guest's
        // clock follows the host, the bound is a tenth: QEMU may run the other CPU for 100 ms in
        // between.
        let percent = 100.0 * clock_slack().min(0.1);
        assert_within(&cgroup.path, counted, pmu.core_time(cgroup.id), percent);
    }
    assert_eq!(window.health.sum.missed_switches, 0);
    assert_eq!(hook(&counting), Hook::CgroupSwitches);
}

/// While a task copies a value out of a map, the kernel runs no `perf_event` program on its CPU.
/// With full preemption the hook misses switches then. This must be noticed, and the default hook
/// must stay exact.
#[test]
fn missed_switches_are_noticed() {
    let Some(_machine) = machine() else { return };
    if !preempts_itself() {
        return skip("this kernel does not preempt itself");
    }
    let pmu = TestPmu::load("set=core");
    let events = group(&pmu);
    let maps = TestCgroup::new("maps");
    let [a, b] = ["a", "b"].map(|name| watched(&pmu, name));
    let mut noise = maps.load("maps 60000");
    let mut counting = Counting::with(&events, |config| config.hook = Hook::CgroupSwitches);
    assert_eq!(hook(&counting), Hook::CgroupSwitches);
    noise.go();
    for _ in 0..20 {
        // Lazy preemption leaves an ordinary task on its CPU until the next tick.
        run(&[
            (&a, "burst 0 200 200 300 fifo"),
            (&b, "burst 1 200 200 300 fifo"),
        ]);
        let missed = counting.session.pull().unwrap().health.sum.missed_switches;
        println!("missed {missed}");
        if missed > 0 {
            break;
        }
    }
    assert_eq!(
        hook(&counting),
        Hook::SchedSwitch,
        "no switch was missed in 6 s"
    );
    drop(counting);

    let [c, d] = ["c", "d"].map(|name| watched(&pmu, name));
    let mut counting = Counting::start(&events);
    run(&[
        (&c, "burst 0 200 200 500"),
        (&d, "burst 1 200 200 500"),
        (&d, "burn 0 100"),
    ]);
    assert_exact(&pmu, &mut counting, &[&c, &d]);
}
