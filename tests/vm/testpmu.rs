//! The test PMU module (tests/vm/kmod), loaded for one test. Its counts are known exactly.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use probe_common::CgroupId;

use crate::guest::value;

const MODULE: &str = "/lib/pmuscope/testpmu.ko";
const CONTROL: &str = "/sys/kernel/debug/testpmu";

/// The loaded module; dropping it unloads the module.
pub(crate) struct TestPmu;

impl TestPmu {
    /// Loads the module with these parameters.
    pub(crate) fn load(parameters: &str) -> Self {
        assert!(Path::new(MODULE).exists(), "{MODULE} is not in this guest");
        let output = Command::new("insmod")
            .arg(MODULE)
            .args(parameters.split(' '))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "insmod {parameters}: {stderr}");
        Self
    }

    /// Writes a command to the control file.
    pub(crate) fn control(&self, command: &str) {
        fs::write(format!("{CONTROL}/control"), command)
            .unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    /// Weighted nanoseconds of a watched cgroup on a CPU.
    pub(crate) fn time_on(&self, cgroup: CgroupId, cpu: u32) -> u64 {
        let tasks = fs::read_to_string(format!("{CONTROL}/tasks")).unwrap();
        let times = tasks.lines().filter_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let same = fields[0] == "cgroup" && fields[1] == cgroup.0.to_string();
            (same && fields[3] == cpu.to_string()).then(|| fields[6].parse::<u64>().unwrap())
        });
        times.sum()
    }

    /// Nanoseconds for which the core PMU counted a watched cgroup.
    pub(crate) fn core_time(&self, cgroup: CgroupId) -> u64 {
        self.core_times(cgroup).values().sum()
    }

    /// As [`Self::core_time`], by CPU.
    pub(crate) fn core_times(&self, cgroup: CgroupId) -> BTreeMap<u32, u64> {
        let tasks = fs::read_to_string(format!("{CONTROL}/tasks")).unwrap();
        let times = tasks.lines().filter_map(|line| {
            // kind id weight cpu ns core_ns weighing_ns
            let fields: Vec<_> = line.split(' ').collect();
            (fields[0] == "cgroup" && fields[1] == cgroup.0.to_string()).then(|| {
                (
                    fields[3].parse().unwrap(),
                    fields[5].parse::<u64>().unwrap(),
                )
            })
        });
        times.collect()
    }
}

impl Drop for TestPmu {
    fn drop(&mut self) {
        // perf frees a closed event with some delay.
        for _ in 0..200 {
            if Command::new("rmmod")
                .arg("testpmu")
                .output()
                .is_ok_and(|output| output.status.success())
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(
            std::thread::panicking(),
            "testpmu does not unload: an event is still open"
        );
    }
}

/// Name of the core test PMU, and the raw code of cycles.
pub(crate) fn core() -> (&'static str, u64) {
    if value("ARCH") == "arm64" {
        ("armv8_pmuv3_0", 0x11)
    } else {
        ("cpu", 0x3c)
    }
}

/// The raw code of the n-th event for which tests set rates.
pub(crate) fn event(n: u64) -> u64 {
    if value("ARCH") == "arm64" {
        0x100 + n
    } else {
        0xb0 + (n << 8)
    }
}
