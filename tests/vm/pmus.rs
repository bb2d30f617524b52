//! The test PMUs behave like real ones, and pmuscope counts on them.

use std::process::Command;

use test_harness::{Counting, machine};

use crate::{
    counter::pmu_type,
    guest::{is_6_1, value},
    testpmu::TestPmu,
};

/// Limit of attempts at the self-check. It compares counts with clocks that it reads later, and
/// fails if the host stops the guest in between.
const TRIES: usize = 3;

/// The module's own self-check: opens, counts, refusals, counter limits, SPE records. All checks
/// must pass in one run.
#[test]
fn test_pmus_open_count_and_refuse_like_real_ones() {
    // On arm64 with 6.1 the test PMU refuses per-task events: see TP_CORE_CONTEXT in
    // tests/vm/kmod/count.c.
    let parts: &[&str] = if value("ARCH") == "arm64" && is_6_1() {
        &["uncore", "spe"]
    } else {
        &["uncore", "core", "spe"]
    };
    let passes = || {
        let _pmu = TestPmu::load("set=grace,tegra410,vera,intel,core,spe");
        let output = Command::new("/bin/selftest").args(parts).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        println!("{printed}");
        let ok = printed
            .lines()
            .filter(|line| line.starts_with("ok"))
            .count();
        assert!(ok > 50, "few checks ran");
        output.status.success()
    };
    assert!((0..TRIES).any(|_| passes()), "a check failed");
}

/// Uncore events are opened once per CPU of the cpumask. Each socket has exactly its own counts.
#[test]
fn each_socket_has_its_own_uncore_counts() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,tegra410,intel rates=0");
    let cases = [
        (
            "nvidia_scf_pmu_0/cmem_rd_data/",
            "add nvidia_scf_pmu_0 0x1a5 0 0 1000001",
        ),
        (
            "nvidia_scf_pmu_1/cmem_rd_data/",
            "add nvidia_scf_pmu_1 0x1a5 0 0 2000003",
        ),
        (
            "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x3/",
            "add nvidia_pcie_pmu_0 0 0x3 0 77",
        ),
        (
            "nvidia_ucf_pmu_0/event=0x0,src_loc_cpu=0x1,dst_loc_cmem=0x1/",
            "add nvidia_ucf_pmu_0 0 0x102 0 4242",
        ),
    ];
    let events: Vec<_> = cases.iter().map(|(event, _)| *event).collect();
    let mut counting = Counting::start(&format!("task-clock,{}", events.join(",")));
    for (_, add) in cases {
        pmu.control(add);
    }
    let window = counting.window();
    let counted: Vec<_> = window
        .uncore
        .iter()
        .map(|reading| (reading.at, reading.count))
        .collect();
    assert_eq!(
        counted,
        [
            (0, Some(1_000_001)),
            (1, Some(2_000_003)),
            (2, Some(77)),
            (3, Some(4242))
        ]
    );
    // An event with another filter has a separate count.
    drop(counting);
    let mut counting = Counting::start("nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x4/");
    pmu.control("add nvidia_pcie_pmu_0 0 0x3 0 5");
    assert_eq!(counting.window().uncore[0].count, Some(0));
}

/// `cycles` is not opened on uncore PMUs with an event of that name.
#[test]
fn cycles_are_only_opened_on_the_core_pmu() {
    let Some(_machine) = machine() else { return };
    // Only one core PMU: QEMU's own, if there is one.
    let has_core_pmu =
        (["armv8_pmuv3", "armv8_pmuv3_0"].iter()).any(|name| pmu_type(name).is_some());
    let pmu = TestPmu::load(if has_core_pmu {
        "set=grace"
    } else {
        "set=grace,core"
    });
    let counting = Counting::start("cycles");
    let plan = counting.session.plan();
    assert_eq!((plan.groups.len(), plan.uncore.len()), (1, 0));
    let name = plan.groups[0][0].counter.pmu.as_deref();
    println!("cycles on {name:?} of {}", value("ARCH"));
    drop(counting);
    drop(pmu);
}
