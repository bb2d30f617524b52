//! Values of metrics by time base, running ratio and bound, and the reasons for having none.

use std::time::Duration;

use super::{
    super::{Chip, Hardware, MetricCounts},
    metric,
};
use crate::formula::{Implicit, NoValue};

const SECOND: u64 = 1_000_000_000;

#[test]
fn core_counts_are_scaled_and_divided_by_wall_time() {
    let machine = Hardware::of_chip(Chip::named("grace-cpu-superchip").unwrap());
    let mut counts = MetricCounts::for_cpus(Duration::from_secs(2));
    // The events ran for a quarter of the 0.4 s for which their container had a CPU, so that counts
    // are scaled by 4.
    counts.add("FP_SCALE_OPS_SPEC", 1_000, 4 * SECOND / 10, SECOND / 10);
    counts.add("FP_FIXED_OPS_SPEC", 500, 4 * SECOND / 10, SECOND / 10);
    let value = metric("neoverse-v2", "flops")
        .evaluate(&machine, &counts)
        .unwrap();
    assert_eq!((value.value, value.running_ratio), (3_000.0, 0.25));
    // The ratio of two events of a group is exact even if the running ratio is very low.
    counts.add("INST_RETIRED", 30, SECOND, 1);
    counts.add("CPU_CYCLES", 20, SECOND, 1);
    let ipc = metric("neoverse-v2", "ipc")
        .evaluate(&machine, &counts)
        .unwrap();
    assert_eq!(ipc.value, 1.5);
    assert!(ipc.running_ratio < 1e-8);
}

#[test]
fn uncore_time_is_the_running_time_of_the_group() {
    let machine = Hardware::of_chip(Chip::named("grace-cpu-superchip").unwrap());
    let mut counts = MetricCounts::for_uncore();
    counts.add("CMEM_RD_DATA", 1_000, 4_000, 1_000);
    let value = metric("nvidia-grace-scf", "cmem_read_bandwidth")
        .evaluate(&machine, &counts)
        .unwrap();
    assert_eq!((value.value, value.running_ratio), (32.0, 0.25));
    let mut counts = MetricCounts::for_uncore();
    counts.add("CYCLES", 2_000, 4_000, 1_000);
    let duration = metric("nvidia-grace-scf", "scf_duration");
    assert_eq!(duration.events(), ["CYCLES"]);
    assert_eq!(duration.evaluate(&machine, &counts).unwrap().value, 1_000.0);
}

#[test]
fn units_of_a_socket_are_added_up() {
    let machine = Hardware::of_chip(Chip::named("sapphire-rapids").unwrap());
    let depth = metric("intel-spr", "io_read_tor_depth");
    let latency = metric("intel-spr", "io_read_tor_latency");
    let mut counts = MetricCounts::for_uncore();
    // Two CHAs with 10 and 5 cycles in 5 ns: 5 requests are pending on the first, 1 on the second.
    for (occupancy, inserts, cycles, running) in [(50, 10, 10, 5), (5, 1, 5, 5)] {
        counts.add("UNC_CHA_TOR_OCCUPANCY.IO_PCIRDCUR", occupancy, 5, running);
        counts.add("UNC_CHA_TOR_INSERTS.IO_PCIRDCUR", inserts, 5, running);
        counts.add("UNC_CHA_CLOCKTICKS", cycles, 5, running);
    }
    counts.set(Implicit::NumUnits, 2.0);
    let value = |metric: &super::Metric| metric.evaluate(&machine, &counts).unwrap().value;
    assert_eq!(value(depth), 55.0 / 15.0);
    // 55 / 11 = 5 cycles; a CHA has 7.5 cycles in 5 ns on average.
    assert!((value(latency) - 5.0 / 1.5).abs() < 1e-12);
    // The second unit ran for half of the time, so its count is scaled to the time of the first.
    let mut unequal = MetricCounts::for_uncore();
    unequal.add("UNC_M_CAS_COUNT.RD", 100, 1_000, 1_000);
    unequal.add("UNC_M_CAS_COUNT.RD", 50, 1_000, 500);
    let read = metric("intel-spr", "memory_bandwidth_read");
    let value = read.evaluate(&machine, &unequal).unwrap();
    assert_eq!(value.running_ratio, 0.5);
    assert!((value.value - 200.0 * 64.0 / 1e6 / 1e-6).abs() < 1e-6);
}

#[test]
fn a_unit_that_never_ran_leaves_the_socket_without_a_value() {
    let machine = Hardware::of_chip(Chip::named("sapphire-rapids").unwrap());
    let read = metric("intel-spr", "memory_bandwidth_read");
    for order in [[(100, 10), (0, 0)], [(0, 0), (100, 10)]] {
        let mut counts = MetricCounts::for_uncore();
        for (raw, running) in order {
            counts.add("UNC_M_CAS_COUNT.RD", raw, 10, running);
        }
        assert_eq!(
            read.evaluate(&machine, &counts),
            Err(NoValue::NeverRan("UNC_M_CAS_COUNT.RD".to_owned()))
        );
    }
}

#[test]
fn slots_are_those_of_sysfs_or_of_the_core() {
    let machine = Hardware::of_chip(Chip::named("neoverse-v2").unwrap());
    let mut counts = MetricCounts::for_cpus(Duration::from_secs(1));
    for (event, count) in [
        ("OP_RETIRED", 80),
        ("OP_SPEC", 100),
        ("STALL_SLOT", 400),
        ("CPU_CYCLES", 200),
    ] {
        counts.add(event, count, 1, 1);
    }
    let retiring = metric("neoverse-v2", "retiring");
    assert_eq!(retiring.evaluate(&machine, &counts).unwrap().value, 60.0);
    counts.set(Implicit::Slots, 4.0);
    assert_eq!(retiring.evaluate(&machine, &counts).unwrap().value, 40.0);
}

#[test]
fn utilisation_divides_by_the_ports_selected() {
    let machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    let metric = metric("nvidia-grace-pcie", "pcie_read_utilization");
    let mut counts = MetricCounts::for_uncore();
    counts.add("RD_REQ_LOC", 500, 10, 10);
    counts.add("RD_REQ_REM", 0, 10, 10);
    counts.add("CYCLES", 1_000, 10, 10);
    assert_eq!(
        metric.evaluate(&machine, &counts),
        Err(NoValue::NotKnown(Implicit::NumPorts))
    );
    counts.set(Implicit::NumPorts, 1.0);
    assert_eq!(metric.evaluate(&machine, &counts).unwrap().value, 50.0);
    counts.set(Implicit::NumPorts, 10.0);
    assert_eq!(metric.evaluate(&machine, &counts).unwrap().value, 5.0);
}

#[test]
fn a_share_above_its_bound_is_marked_or_refused() {
    let machine = Hardware::of_chip(Chip::named("emerald-rapids").unwrap());
    let metric = metric(
        "intel-spr",
        "io_percent_of_inbound_partial_writes_that_miss_l3",
    );
    let share = |miss, all| {
        let mut counts = MetricCounts::for_uncore();
        counts.add("UNC_CHA_TOR_INSERTS.IO_MISS_ITOMCACHENEAR", miss, 1, 1);
        counts.add("UNC_CHA_TOR_INSERTS.IO_ITOMCACHENEAR", all, 1, 1);
        metric.evaluate(&machine, &counts)
    };
    let reason = share(644, 40).unwrap_err();
    assert!(matches!(reason, NoValue::DenominatorTooSmall { .. }));
    assert!(
        reason
            .to_string()
            .starts_with("denominator too small: 40 counts")
    );
    let above = share(3_000, 2_000).unwrap();
    assert_eq!((above.value, above.exceeded_bound), (150.0, Some(100.0)));
    // One count more than possible, such as a request that was in flight at the start.
    let above = share(653_237_921, 653_237_920).unwrap();
    assert!(above.value > 100.0 && above.value < 100.000_001);
    assert_eq!(above.exceeded_bound, Some(100.0));
    assert_eq!(share(1_999, 2_000).unwrap().exceeded_bound, None);
    // A share at the bound has a value, whatever its denominator.
    assert_eq!(share(40, 40).unwrap().value, 100.0);
    assert_eq!(share(0, 40).unwrap().value, 0.0);
    assert_eq!(
        share(644, 0),
        Err(NoValue::DenominatorZero(
            "UNC_CHA_TOR_INSERTS.IO_ITOMCACHENEAR".to_owned()
        ))
    );
}
