//! Level 1 of top-down on Intel and AMD: one group, so that its shares are exact and add up.

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
const INTEL: [(u64, u64); 5] = [
    (0x01a4, 1_000),
    (0x02c2, 300),
    (0x019c, 150),
    (0x02a4, 350),
    // INT_MISC.CLEARS_COUNT, of Ice Lake's formula: five slots each.
    (0x0104_010d, 4),
];

/// Counts per ns by raw code: cycles of six slots on Zen 4 and of eight on Zen 5, dispatched and
/// retired operations, and slots without an operation because of the frontend or the backend.
const AMD: [(u64, u64); 5] = [
    (0x76, 500),
    (0x07aa, 1_500),
    (0xc1, 1_200),
    (0x1_0000_01a0, 300),
    (0x1_0000_1ea0, 900),
];

#[test]
fn level_1_of_intel_adds_up() {
    let shares = |backend, speculation| {
        [
            ("retiring", 30.0),
            ("frontend_bound", 15.0),
            ("backend_bound", backend),
            ("bad_speculation", speculation),
        ]
    };
    assert_shares(
        "set=core",
        &INTEL,
        &[
            ("sapphire-rapids", &shares(35.0, 20.0)),
            ("granite-rapids", &shares(35.0, 20.0)),
            ("ice-lake-server", &shares(37.0, 18.0)),
        ],
    );
}

/// Slots that the other thread of a core takes are a share too.
#[test]
fn level_1_of_amd_adds_up() {
    assert_shares(
        "set=core core=amd",
        &AMD,
        &[
            (
                "epyc-zen4",
                &[
                    ("retiring", 40.0),
                    ("frontend_bound", 10.0),
                    ("backend_bound", 30.0),
                    ("bad_speculation", 10.0),
                    ("smt_contention", 10.0),
                ],
            ),
            (
                "epyc-zen5",
                &[
                    ("retiring", 30.0),
                    ("frontend_bound", 7.5),
                    ("backend_bound", 22.5),
                    ("bad_speculation", 7.5),
                    ("smt_contention", 32.5),
                ],
            ),
        ],
    );
}

/// Asserts a container's shares on each chip, with these parameters and rates of the test PMU.
fn assert_shares(parameters: &str, rates: &[(u64, u64)], chips: &[(&str, &[(&str, f64)])]) {
    if value("ARCH") == "arm64" {
        return skip("the test PMU looks like an Arm core here");
    }
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load(parameters);
    let (core, _) = core();
    for (code, rate) in rates {
        pmu.control(&format!("rate {core} {code:#x} 0 0 {}", rate * 1_000_000));
    }
    let catalogue = Catalogue::builtin().unwrap();
    for (chip, expected) in chips {
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
        for (name, expected) in *expected {
            let found = share(name);
            println!("{chip} {name}: {found}%");
            assert!((found - expected).abs() < 1e-9, "{chip} {name}: {found}");
            sum += found;
        }
        assert!((sum - 100.0).abs() < 1e-9, "{chip}: {sum}");
    }
}
