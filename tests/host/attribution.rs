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
