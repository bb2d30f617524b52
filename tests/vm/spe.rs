//! SPE records decoded and attributed in the kernel, against a PMU that knows what it wrote.

use crate::{
    spe_support::{Sampling, assert_conserved, assert_exact, stat, truth},
    support::{TestCgroup, machine},
    testpmu::TestPmu,
};

#[test]
fn every_record_is_its_containers() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let [a, b, c] = ["a", "b", "c"].map(TestCgroup::new);
    pmu.control("spe reset");
    let mut sampling = Sampling::start();
    println!("hook {:?}", sampling.pull().health.hook);
    let mut loads = [
        (&a, a.load("burst 0 500 700 400")),
        (&a, a.load("burn 1 200")),
        (&b, b.load("burn 0 300")),
        (&c, c.load("burst 1 300 300 400")),
    ];
    loads.iter_mut().for_each(|(_, load)| load.go());
    let owned: Vec<_> = loads.iter().map(|(of, load)| (of.id, load.pid())).collect();
    loads.into_iter().for_each(|(_, load)| drop(load.finish()));
    let reading = sampling.end(&pmu);
    let truth = truth();
    for cgroup in [&a, &b, &c] {
        let own = owned.iter().filter(|(id, _)| *id == cgroup.id);
        let processes: Vec<u32> = own.map(|(_, pid)| *pid).collect();
        assert_exact(&reading, &truth, &cgroup.path, cgroup.id, &processes);
    }
    assert_conserved(&reading);
    assert_eq!(reading.health.sum.unattributed, [0; 4]);
    assert!(stat("full") > 10, "buffers ran full");
}
