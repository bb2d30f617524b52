//! Level 1 of top-down on Intel: one group, so that its shares are exact and add up.

use std::path::Path;

use probe_user::{
    catalogue::{Catalogue, Chip, Hardware},
    derive::Subject,
    join::Entity,
};
use test_harness::{Counting, machine};

use super::by_cgroup;
use crate::{
    accounting::{quiescent_window, watched},
    guest::{skip, value},
    plans::metric_plan,
    testpmu::{TestPmu, core},
};

/// Counts per ns by raw code, of a thousand slots.
const RATES: [(u64, u64); 5] = [
    (0x01a4, 1_000),
    (0x02c2, 300),
    (0x019c, 150),
    (0x02a4, 350),
    // INT_MISC.CLEARS_COUNT, of Ice Lake's formula: five slots each.
    (0x0104_010d, 4),
];

#[test]
fn level_1_of_intel_adds_up() {
    if value("ARCH") == "arm64" {
        return skip("the test PMU looks like an Arm core here");
    }
    let Some(_machine) = machine() else { return };
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    let pmu = TestPmu::load("set=core");
    let (core, _) = core();
    for (code, rate) in RATES {
        pmu.control(&format!("rate {core} {code:#x} 0 0 {}", rate * 1_000_000));
    }
    let catalogue = Catalogue::builtin().unwrap();
    for (chip, backend, speculation) in [
        ("sapphire-rapids", 35.0, 20.0),
        ("granite-rapids", 35.0, 20.0),
        ("ice-lake-server", 37.0, 18.0),
    ] {
        let hardware = Hardware::of_chip(Chip::named(chip).unwrap());
        let metrics = catalogue.select("group:topdown", &hardware).unwrap();
        let plan = metric_plan(hardware, &metrics);
        assert_eq!((plan.groups.len(), plan.rotated), (1, 0), "{chip}");
        let cgroup = watched(&pmu, chip);
        let mut counting = Counting::with_plan(plan.clone(), |_| {});
        let mut load = cgroup.load("burst 0 700 900 1000");
        load.go();
        load.finish();
        let (window, _) = quiescent_window(&pmu, &mut counting, &[&cgroup]);
        let report = by_cgroup(&plan, &window);
        let subject = Subject::Entity(Entity::Cgroup(cgroup.path.as_str().into()));
        let share = |name: &str| {
            let mut series = report.find_series(&subject, name);
            series.next().unwrap().estimate().unwrap().value
        };
        let mut sum = 0.0;
        for (name, expected) in [
            ("retiring", 30.0),
            ("frontend_bound", 15.0),
            ("backend_bound", backend),
            ("bad_speculation", speculation),
        ] {
            let found = share(name);
            println!("{chip} {name}: {found}%");
            assert!((found - expected).abs() < 1e-9, "{chip} {name}: {found}");
            sum += found;
        }
        assert!((sum - 100.0).abs() < 1e-9, "{chip}: {sum}");
    }
}
