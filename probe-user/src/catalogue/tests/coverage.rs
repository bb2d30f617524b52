//! The metrics without a value on each of the three configurations of Grace.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::{Chip, Hardware, MetricCounts},
    CATALOGUE, metric,
};
use crate::formula::{Implicit, NoValue};

/// The metrics without a value on a chip, although all their events have counts.
fn without_value(chip: Chip) -> BTreeSet<&'static str> {
    let machine = Hardware::of_chip(chip);
    let mut counts = MetricCounts::for_cpus(Duration::from_nanos(1_000));
    for metric in CATALOGUE.on(&machine) {
        for event in metric.events() {
            if !counts.has(event) {
                counts.add(event, 2_000, 1, 1);
            }
        }
    }
    counts.set(Implicit::NumPorts, 10.0);
    counts.set(Implicit::CounterTime, 1_000.0);
    let mut names = BTreeSet::new();
    for metric in CATALOGUE.on(&machine) {
        match metric.evaluate(&machine, &counts) {
            Err(NoValue::NotOnChip { chip: key, why }) => {
                assert_eq!(key, chip.to_string());
                assert!(why.len() > 20, "{}", metric.name);
                names.insert(metric.name.as_str());
            }
            Err(NoValue::NotConfigured(why)) => {
                assert!(why.contains("GPU"));
                names.insert(metric.name.as_str());
            }
            Ok(_) => {}
            Err(other) => panic!("{}: {other}", metric.name),
        }
    }
    names
}

const GMEM: [&str; 6] = [
    "gmem_write_bandwidth",
    "gmem_read_bandwidth",
    "gmem_write_utilization",
    "gmem_read_utilization",
    "gmem_read_latency",
    "gmem_read_bytes_in_flight",
];
const REMOTE: [&str; 6] = [
    "remote_write_bandwidth",
    "remote_read_bandwidth",
    "remote_write_utilization",
    "remote_read_utilization",
    "remote_read_latency",
    "pcie_remote_read_latency",
];
const C2C1: [&str; 7] = [
    "c2c1_frequency",
    "c2c1_read_bandwidth",
    "c2c1_write_bandwidth",
    "c2c1_bandwidth",
    "c2c1_read_utilization",
    "c2c1_write_utilization",
    "c2c1_read_latency",
];
const C2C0_UTILIZATION: [&str; 2] = ["c2c0_read_utilization", "c2c0_write_utilization"];
const CNVLINK: [&str; 5] = [
    "cnvlink_frequency",
    "cnvlink_read_bandwidth",
    "cnvlink_write_bandwidth",
    "cnvlink_bandwidth",
    "cnvlink_read_latency",
];

#[test]
fn grace_cpu_superchip_has_no_gpu() {
    let expected: Vec<_> = [&GMEM[..], &C2C1, &C2C0_UTILIZATION, &CNVLINK].concat();
    assert_eq!(
        without_value(Chip::named("grace-cpu-superchip").unwrap()),
        expected.into_iter().collect()
    );
}

#[test]
fn grace_hopper_has_no_remote_socket() {
    let expected: Vec<_> = [&REMOTE[..], &CNVLINK].concat();
    assert_eq!(
        without_value(Chip::named("grace-hopper").unwrap()),
        expected.into_iter().collect()
    );
}

#[test]
fn multi_socket_grace_hopper_has_all_metrics() {
    assert_eq!(
        without_value(Chip::named("grace-hopper-multi").unwrap()),
        BTreeSet::new()
    );
}

#[test]
fn an_unknown_chip_excludes_no_metric() {
    let machine = Hardware {
        chip: None,
        gpus_per_socket: None,
        ..Hardware::of_chip(Chip::named("grace-hopper").unwrap())
    };
    for name in ["gmem_read_bandwidth", "remote_read_bandwidth"] {
        metric("nvidia-grace-scf", name).valid_on(&machine).unwrap();
    }
    // The documented limit of requests is for one GPU per socket. That number is unknown here, and
    // is not assumed.
    let reason = metric("nvidia-grace-nvlink-c2c0", "c2c0_read_utilization")
        .valid_on(&machine)
        .unwrap_err();
    assert!(
        reason.to_string().contains("--chip grace-hopper"),
        "{reason}"
    );
}

#[test]
fn c2c_utilisation_needs_one_gpu_per_socket() {
    let mut machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    let metric = metric("nvidia-grace-nvlink-c2c1", "c2c1_read_utilization");
    metric.valid_on(&machine).unwrap();
    machine.gpus_per_socket = Some(2);
    let reason = metric.valid_on(&machine).unwrap_err().to_string();
    assert!(reason.ends_with("each socket has 2"), "{reason}");
}

#[test]
fn every_metric_is_valid_somewhere() {
    for metric in CATALOGUE.metrics() {
        assert!(!metric.chips().is_empty(), "{}", metric.name);
    }
}
