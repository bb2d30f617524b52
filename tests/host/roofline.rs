//! `roofline` on the running machine, which needs no rights. The tests check the measured values
//! only for consistency.

use std::{os::unix::process::CommandExt as _, process::Command};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use test_harness::pmuscope;

fn measured(mut command: Command, arguments: &[&str]) -> Value {
    let tiny = ["roofline", "--runs", "1", "--format", "json"];
    let output = command.args(tiny).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {error}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_tiny_measurement_has_every_part_and_its_arithmetic_is_right() {
    let json = measured(pmuscope(), &["--sizes", "48K,3M", "--threads", "1"]);
    assert_eq!(json["format"], 1);
    let list = |name: &str| json[name].as_array().unwrap().clone();
    let sockets = list("latencies").len() / 2;
    assert!(sockets >= 1);
    // Plain and non-temporal stores for both sizes. With several sockets there is no result for all
    // of them together.
    assert_eq!(list("bandwidths").len() % 4, 0);
    let line = number(&json["line"]);
    for bandwidth in list("bandwidths") {
        let best = number(&bandwidth["bytes_per_second"]["best"]);
        assert!(best > 0.0, "{bandwidth}");
        let latency = number(&bandwidth["latency_ns"]);
        let expected = best * latency / 1e9;
        let in_flight = number(&bandwidth["bytes_in_flight"]);
        assert!((in_flight / expected - 1.0).abs() < 1e-9, "{bandwidth}");
        let lines = number(&bandwidth["lines_in_flight_per_core"]);
        let cores = number(&bandwidth["cores"]);
        assert!((lines * line * cores / in_flight - 1.0).abs() < 1e-9);
        assert_eq!(number(&bandwidth["bytes"]) % 768.0, 0.0, "{bandwidth}");
    }
    for peak in list("peaks") {
        assert!(number(&peak["flops"]["best"]) > 0.0, "{peak}");
    }
    // With given sizes no memory is measured, so there is no roof.
    assert!(list("roofs").is_empty());
    let waited = number(&json["disturbance"]["waited"]);
    assert!((0.0..=1.0).contains(&waited), "{json}");
}

#[test]
fn no_cpu_but_the_callers_is_used() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let first = first.unwrap();
    let mut command = pmuscope();
    let pin = move || {
        let mut only = CpuSet::new();
        only.set(first);
        Ok(sched_setaffinity(None, &only)?)
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(pin) };
    let json = measured(command, &["--sizes", "48K"]);
    assert_eq!(json["cpus"], first.to_string());
    let threads = |list: &str| {
        let entries = json[list].as_array().unwrap().iter();
        let threads: Vec<u64> = entries.map(|it| it["threads"].as_u64().unwrap()).collect();
        threads
    };
    assert_eq!(threads("peaks"), [1]);
    assert_eq!(threads("bandwidths"), [1, 1]);
    let mut command = pmuscope();
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(pin) };
    let two = command.args(["roofline", "--threads", "2"]).output();
    let error = String::from_utf8(two.unwrap().stderr).unwrap();
    let expected = "pmuscope: --threads 2: this process has 1 CPUs; a thread is measured on a CPU \
                    of its own\n";
    assert_eq!(error, expected);
}
