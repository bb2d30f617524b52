//! Shares of the memories of two sockets by a calibration, from the calibration itself to the
//! output. With `far 1` the test PMU counts the tasks of each CPU as if they used the memory of the
//! other socket.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use probe_user::{
    calibration::{Calibration, Pattern},
    machine::Machine,
};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};
use serde_json::Value;
use test_harness::{Load, TestCgroup, machine, on_cpu, pmuscope};

use crate::{cli, testpmu::TestPmu};

const CHIP: &str = "sapphire-rapids";
const METRIC: &str = "memory_bandwidth_read";
/// Reads of the memory of a socket: one for each ns of a watched cgroup.
const TRAFFIC: &str = "taskrate uncore_imc_* 0xcf05 0 0 1000000";
/// Reads that no task causes, by devices among them (misses of PCIRDCUR and ITOMCACHENEAR).
const NO_TRAFFIC: [&str; 3] = [
    "uncore_imc_* 0xcf05",
    "uncore_cha_* 0xc8f3fe00000435",
    "uncore_cha_* 0xcd43fe00000435",
];
/// `OCR.READS_TO_CORE` of the local and of the remote memory: config and config1.
const READS: [&str; 2] = ["0x12a 0x70c004477", "0x12a 0x730004477"];
/// The counts of [`READS`] for each read of that memory.
const COUNTS: [u64; 2] = [1, 2];

/// The memory that all tasks use from now on, as their CPUs see it.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Local,
    Remote,
    /// The caches have all data.
    None,
}

fn use_memory(pmu: &TestPmu, memory: Memory) {
    pmu.control(&format!("far {}", u8::from(memory == Memory::Remote)));
    for (event, (counts, of)) in READS
        .iter()
        .zip(COUNTS.iter().zip([Memory::Local, Memory::Remote]))
    {
        let per_ns = if memory == of { *counts } else { 0 };
        pmu.control(&format!("rate cpu {event} 0 {per_ns}000000"));
    }
}

/// Runs the calibration, whose kernels run on CPU 0. The test PMU does not see what a kernel does,
/// so this sets what it counts for each. Both programs stay on CPU 1, where they add no traffic to
/// that of the kernels.
fn calibrate(pmu: &TestPmu, kernels: &TestCgroup, file: &str) {
    let mut command = pmuscope();
    command.args([
        "calibrate",
        "shares",
        "--chip",
        CHIP,
        "-M",
        METRIC,
        "-o",
        file,
    ]);
    command.args(["--size", "4M", "--time", "200ms"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    kernels.adopt(child.id());
    let pid = Pid::from_child(&child);
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("{line}");
        if line.contains(" on ") {
            // It has read which CPUs it may use.
            let mut other_cpu = CpuSet::new();
            other_cpu.set(1);
            sched_setaffinity(Some(pid), &other_cpu).unwrap();
            let memory = match (line.contains("cached-read"), line.contains(", remote")) {
                (true, _) => Memory::None,
                (false, true) => Memory::Remote,
                (false, false) => Memory::Local,
            };
            use_memory(pmu, memory);
        }
    }
    let output = child.wait_with_output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success());
}

fn assert_counts(patterns: &[Pattern], expected: u64) {
    assert_eq!(patterns.len(), 8, "{patterns:?}");
    #[expect(clippy::cast_precision_loss, reason = "1 or 2")]
    for pattern in patterns {
        let [found] = pattern.counts[..] else {
            panic!("{pattern:?}")
        };
        assert!((found / expected as f64 - 1.0).abs() < 0.02, "{pattern:?}");
    }
}

#[test]
fn remote_accesses_have_their_container() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=intel,core core=intel imc=1 cha=1 iio=1");
    pmu.control("idle 0");
    for event in NO_TRAFFIC {
        pmu.control(&format!("rate {event} 0 0 0"));
    }
    pmu.control(TRAFFIC);
    let [kernels, first, second] = ["kernels", "first", "second"].map(TestCgroup::new);
    for cgroup in [1, kernels.id.0, first.id.0, second.id.0] {
        pmu.control(&format!("watch cgroup {cgroup} 1"));
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("calibration.toml");
    let file = file.to_str().unwrap();
    calibrate(&pmu, &kernels, file);
    let read = Calibration::read(Path::new(file), &Machine::this()).unwrap();
    let [traffic] = &read.traffics[..] else {
        panic!("{read:?}")
    };
    assert_eq!(traffic.events, ["dram_reads"]);
    assert_counts(&traffic.patterns, COUNTS[0]);
    assert_counts(&traffic.remote, COUNTS[1]);

    use_memory(&pmu, Memory::Remote);
    let mut loads = [
        first.load("burst 0 3000 7000 3600000"),
        second.load("burst 1 6000 4000 3600000"),
    ];
    loads.iter_mut().for_each(Load::go);
    let (report, _) = on_cpu(0, || {
        cli::run(&format!(
            "stat --by cgroup --chip {CHIP} -e \
             cpu/event=0x2a,umask=0x1,offcore_rsp=0x730004477,name=remote/ -M {METRIC} \
             --calibration {file} --timeout 2s --format json"
        ))
    });
    // Kills the loads.
    drop(loads);
    // Each container's memory is that of the other CPU's socket.
    for (name, memory) in [("first", 1), ("second", 0)] {
        let is_of = |row: &&Value| row["name"].as_str().unwrap().ends_with(name);
        let mut shares = report["shares"].as_array().unwrap().iter();
        let share = shares
            .find(|row| is_of(row) && row["socket"] == memory)
            .unwrap();
        assert_eq!(share["method"], "calibrated", "{share}");
        let mut rows = report["rows"].as_array().unwrap().iter();
        let row = rows.find(is_of).unwrap();
        let reads = row["events"]["remote"]["raw"].as_f64().unwrap() / 2.0;
        let micros = report["duration_ns"].as_f64().unwrap() / 1e3;
        let expected = 64.0 * reads / micros;
        let found = share["value"].as_f64().unwrap();
        let error = share["rel_error"].as_f64().unwrap();
        println!(
            "{name}: {expected:.2} MB/s, found {found:.2}, error {:.2}%",
            error * 100.0
        );
        assert!(error < 0.1, "{share}");
        // The window does not start and end exactly with the uncore counter.
        assert!(
            (found / expected - 1.0).abs() < error + 0.01,
            "{expected}: {share}"
        );
    }
    drop(pmu);
}
