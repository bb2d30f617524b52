//! Shares by a calibration, from the calibration itself to the output. The core test PMU counts at
//! different rates on CPUs 0 and 1, so each CPU has its own pattern. The uncore test PMU counts the
//! nanoseconds of each watched cgroup times the cgroup's weight, so the traffic is known.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use probe_user::{
    calibration::{CalibratedMachine, CalibratedTraffic, Calibration, Pattern},
    machine::Machine,
};
use serde_json::Value;
use test_harness::{Load, TestCgroup, machine, on_cpu, pmuscope};

use crate::{
    cli,
    testpmu::{TestPmu, core},
};

/// The socket's traffic: one count for each ns of a watched cgroup, times the cgroup's weight.
const TRAFFIC: &str = "taskrate nvidia_scf_pmu_0 0x1a5 0 0 1000000";
/// Misses of the last-level cache and refills of the L2, with the core PMU's event codes.
const EVENTS: [(&str, u64); 2] = [("llc_read_misses", 0x37), ("l2_refills", 0x17)];
/// Counts per ns of [`EVENTS`] on each CPU. CPU 0 runs a pointer chase. CPU 1 runs a stream, which
/// has four refills for each miss because prefetches avoid most misses.
const RATES: [[u64; 2]; 2] = [[1, 1], [1, 4]];
/// Rates of a chase on both CPUs.
const CHASE: [[u64; 2]; 2] = [[1, 1], [1, 1]];

/// While it exists, sysfs shows both CPUs as one socket.
struct OneSocket {
    // Removed after the mounts of its file.
    _dir: tempfile::TempDir,
}

impl OneSocket {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("0");
        fs::write(&file, "0\n").unwrap();
        for id in Self::ids() {
            let mount = Command::new("mount")
                .args(["--bind", file.to_str().unwrap(), &id])
                .status();
            assert!(mount.unwrap().success(), "{id}");
        }
        assert_eq!(Machine::this().topology().sockets(), 1);
        Self { _dir: dir }
    }

    fn ids() -> [String; 2] {
        [0, 1].map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"))
    }
}

impl Drop for OneSocket {
    fn drop(&mut self) {
        for id in Self::ids() {
            let _ended = Command::new("umount").arg(id).status();
        }
    }
}

fn set_rates(pmu: &TestPmu, by_cpu: [[u64; 2]; 2]) {
    let (core, _) = core();
    for (cpu, rates) in by_cpu.into_iter().enumerate() {
        for ((_, code), rate) in EVENTS.into_iter().zip(rates) {
            pmu.control(&format!("rate {core} {code:#x} 0 0 {rate}000000 {cpu}"));
        }
    }
}

fn load() -> TestPmu {
    let pmu = TestPmu::load("set=grace,core sockets=1");
    pmu.control("idle 0");
    set_rates(&pmu, RATES);
    pmu.control("rate nvidia_scf_pmu_0 0x1a5 0 0 0");
    pmu.control(TRAFFIC);
    pmu
}

const METRIC: &str = "cmem_read_bandwidth";
const CHIP: &str = "grace-cpu-superchip";

#[test]
fn containers_of_different_patterns_have_their_traffic() {
    let Some(_machine) = machine() else { return };
    let _one_socket = OneSocket::new();
    let pmu = load();
    let pattern = |name: &str, counts: [f64; 2]| Pattern {
        name: name.to_owned(),
        counts: counts.to_vec(),
    };
    let traffic = CalibratedTraffic {
        metric: METRIC.to_owned(),
        events: EVENTS.map(|(name, _)| name.to_owned()).to_vec(),
        spreads: vec![0.001; 2],
        patterns: vec![pattern("chase", [1.0, 1.0]), pattern("stream", [0.25, 1.0])],
        remote: Vec::new(),
    };
    let this = CalibratedMachine::of(&Machine::this());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("calibration.toml");
    fs::write(&file, Calibration::new(this, vec![traffic]).text()).unwrap();

    let [chase, stream] = ["chase", "stream"].map(TestCgroup::new);
    // Everything else runs on CPU 0, so it counts as a chase.
    pmu.control("watch cgroup 1 1");
    for (cgroup, weight) in [(&chase, 1), (&stream, 4)] {
        pmu.control(&format!("watch cgroup {} {weight}", cgroup.id.0));
    }
    let mut loads = [
        chase.load("burst 0 3000 7000 3600000"),
        stream.load("burst 1 6000 4000 3600000"),
    ];
    loads.iter_mut().for_each(Load::go);
    let (core, _) = core();
    let (report, _) = on_cpu(0, || {
        cli::run(&format!(
            "stat --by cgroup --chip {CHIP} -e {core}/config=0x17,name=refills/ -M {METRIC} \
             --calibration {} --timeout 2s --format json",
            file.display()
        ))
    });
    // Kills the loads.
    drop(loads);
    let row_named = |list: &str, name: &str| -> Value {
        let mut all = report[list].as_array().unwrap().iter();
        let named = |row: &&Value| row["name"].as_str().unwrap().ends_with(name);
        all.find(named).unwrap().clone()
    };
    for name in ["chase", "stream"] {
        let share = row_named("shares", name);
        assert_eq!(share["method"], "calibrated", "{share}");
        let found = share["value"].as_f64().unwrap();
        let cause = |name: &str| share["error_by_cause"][name].as_f64().unwrap();
        // A pull takes so long here that its skew may be more than 1% of the traffic.
        let causes = ["counting", "calibration", "mixture", "residual"];
        let error: f64 = causes.into_iter().map(cause).sum();
        let all = share["rel_error"].as_f64().unwrap();
        let with_skew = (error.powi(2) + cause("skew").powi(2)).sqrt();
        assert!((all - with_skew).abs() < 0.005, "{share}");
        // Each refill is one count of the traffic, 32 bytes. The task clock would include context
        // switches, which the test PMU does not count.
        let refills = &row_named("rows", name)["events"]["refills"]["raw"];
        let [refills, window] = [refills, &report["duration_ns"]].map(|it| it.as_f64().unwrap());
        let expected = 32.0 * refills / window;
        println!(
            "{name}: {expected:.2} GB/s, found {found:.2}, error {:.2}%, without skew {:.2}%",
            all * 100.0,
            error * 100.0
        );
        assert!(error < 0.02, "{share}");
        // The window does not start and end exactly with the uncore counter.
        assert!(
            (found / expected - 1.0).abs() < error + 0.01,
            "{expected}: {share}"
        );
    }
    drop(pmu);
}

/// The calibration's kernels run, and their counts are in the file. The test PMU does not see what
/// a kernel does, so the test stops its events during the kernel that moves nothing.
#[test]
fn a_machine_is_calibrated() {
    let Some(_machine) = machine() else { return };
    let _one_socket = OneSocket::new();
    let pmu = load();
    let kernels = TestCgroup::new("kernels");
    // Tasks outside of `kernels` have the same counts and traffic.
    for cgroup in [1, kernels.id.0] {
        pmu.control(&format!("watch cgroup {cgroup} 1"));
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("calibration.toml");
    // Both CPUs have one pattern. The command may use one CPU only: on two emulated CPUs it takes
    // minutes.
    set_rates(&pmu, CHASE);
    on_cpu(0, || {
        let mut command = pmuscope();
        command.args(["calibrate", "shares", "--chip", CHIP, "-M", METRIC]);
        command.args([
            "--size",
            "4M",
            "--time",
            "300ms",
            "-o",
            file.to_str().unwrap(),
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        kernels.adopt(child.id());
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            println!("{line}");
            if line.contains(" on ") {
                let moves_nothing = line.contains("cached-read");
                set_rates(&pmu, if moves_nothing { [[0; 2]; 2] } else { CHASE });
            }
        }
        let output = child.wait_with_output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success());
    });
    let machine = Arc::new(Machine::this());
    let read = Calibration::read(Path::new(&file), &machine).unwrap();
    let [traffic] = &read.traffics[..] else {
        panic!("{read:?}")
    };
    assert_eq!(traffic.events, EVENTS.map(|(name, _)| name));
    for pattern in &traffic.patterns {
        assert!(pattern.name.ends_with(" on 1"), "{pattern:?}");
        let errors = pattern.counts.iter().map(|found| (found - 1.0).abs());
        assert!(errors.fold(0.0, f64::max) < 0.02, "{pattern:?}");
    }
    assert_eq!(traffic.patterns.len(), 8);
}
