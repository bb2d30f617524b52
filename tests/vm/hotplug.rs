//! CPUs that go offline and come back while counting goes on.

use std::fs;

use crate::{
    accounting::{assert_exact, group, run, watched},
    support::{Counting, machine},
    testpmu::TestPmu,
};

fn set_online(cpu: u32, online: bool) {
    fs::write(
        format!("/sys/devices/system/cpu/cpu{cpu}/online"),
        if online { "1" } else { "0" },
    )
    .unwrap();
}

#[test]
fn a_cpu_that_leaves_and_comes_back_counts_on() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core");
    let [a, b] = ["a", "b"].map(|name| watched(&pmu, name));
    let mut counting = Counting::start(&group(&pmu));
    for round in 0..3 {
        run(&[
            (&a, "burst 1 300 300 200"),
            (&b, "burn 1 50"),
            (&b, "burn 0 50"),
        ]);
        // It runs on when its CPU leaves: on the other one.
        let mut displaced = a.load("burn 1 150");
        displaced.go();
        set_online(1, false);
        // In one round nobody looks while it is away.
        if round != 1 {
            counting.session.pull().unwrap();
        }
        displaced.finish();
        set_online(1, true);
        counting.session.drain().unwrap();
    }
    run(&[(&a, "burst 1 300 300 200"), (&b, "burn 1 50")]);

    assert_exact(&pmu, &mut counting, &[&a, &b]);
}
