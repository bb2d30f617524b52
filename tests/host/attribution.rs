//! Attribution, checked against the kernel's CPU accounting for each cgroup. A correct sum over all
//! rows does not prove that each row is correct.

use test_harness::{Counting, Load, TestCgroup, machine, online_cpus};

fn check(counting: &mut Counting, cgroups: &[&TestCgroup]) {
    let window = counting.window();
    for cgroup in cgroups {
        let counted = counting
            .count(&window, "task-clock", cgroup.id)
            .expect("it ran, so it has a row");
        counting.assert_cpu_time(&window, &cgroup.path, counted, cgroup.cpu_time());
    }
}

#[test]
fn cpu_time_of_two_cgroups_on_one_cpu_is_attributed() {
    let Some(_machine) = machine() else { return };
    let (a, b) = (TestCgroup::new("two"), TestCgroup::new("one"));
    let mut counting = Counting::start("task-clock");
    let loads = [
        a.load("burn 0 400"),
        a.load("burn 0 400"),
        b.load("burn 0 400"),
    ];
    loads.into_iter().for_each(|load| drop(load.finish()));
    check(&mut counting, &[&a, &b]);
}

#[test]
fn short_bursts_on_each_cpu_are_attributed() {
    let Some(_machine) = machine() else { return };
    for cpu in online_cpus() {
        let a = TestCgroup::new("burst");
        let mut counting = Counting::start("task-clock");
        a.load(&format!("burst {cpu} 1000 10000 1500")).finish();
        check(&mut counting, &[&a]);
    }
}

#[test]
fn cpu_time_is_attributed_beside_a_task_that_updates_maps() {
    let Some(_machine) = machine() else { return };
    let maps = TestCgroup::new("maps");
    let mut counting = Counting::start("task-clock");
    let mut noise = maps.load("maps 2500");
    noise.go();
    for cpu in online_cpus() {
        let (a, b, c) = (
            TestCgroup::new("two"),
            TestCgroup::new("one"),
            TestCgroup::new("burst"),
        );
        let mut loads = [
            a.load(&format!("burn {cpu} 200")),
            a.load(&format!("burn {cpu} 200")),
            b.load(&format!("burn {cpu} 200")),
            c.load(&format!("burst {cpu} 1000 10000 600")),
        ];
        loads.iter_mut().for_each(Load::go);
        loads.into_iter().for_each(|load| drop(load.finish()));
        check(&mut counting, &[&a, &b, &c]);
    }
    noise.finish();
    check(&mut counting, &[&maps]);
}

/// If the kernel is not preemptible, a task that wakes waits for the end of the running system
/// call. The scheduler dates the switch back to the wake-up, so `cpu.stat` charges the rest of the
/// call to the cgroup of the task that woke. perf's clock charges it to the caller.
#[test]
fn a_system_call_is_charged_to_its_caller_also_after_a_wake_up() {
    const NAPS: u64 = 500;
    /// At each of the two switches of a nap, the program may take up to this many ns of a call for
    /// its own delay.
    const SLACK: u64 = 50_000;
    let Some(_machine) = machine() else { return };
    let (calls, naps) = (TestCgroup::new("calls"), TestCgroup::new("naps"));
    let mut caller = calls.load("longcalls 0 60000");
    let napper = naps.load(&format!("naps 0 100 1000 {NAPS}"));
    let mut counting = Counting::start("task-clock");
    caller.go();
    let text = napper.finish();
    drop(caller);
    let window = counting.window();
    let expected: u64 = text.trim().parse().unwrap();
    let counted = counting.count(&window, "task-clock", naps.id).unwrap();
    let scheduled = naps.cpu_time();
    println!("counted {counted}, perf {expected}, cpu.stat {scheduled}");
    let allowed = 2 * SLACK * NAPS;
    if scheduled.abs_diff(expected) <= allowed {
        println!("shows nothing here: this kernel is preemptible, or its calls are short");
    }
    assert!(counted.abs_diff(expected) <= allowed);
}
