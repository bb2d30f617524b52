//! Memory of containers, read from the machine's memory controller, which may be of cgroup2 or v1.

use std::fs;

use probe_user::{
    join::{By, Entity, MemoryCapacity, View},
    machine::memory::MemoryHolder,
};
use serde_json::Value;
use test_harness::{Counting, TestCgroup, load_binary, plan, pmuscope, shared_machine};

use crate::controlled::Controlled;

const MIB: u64 = 1 << 20;

/// A load allocates 32 MiB and frees them between two pulls. Only the kernel's maximum shows them.
#[test]
fn memory_held_between_two_pulls_is_in_the_peak() {
    let Some(_lock) = shared_machine() else {
        return;
    };
    let pod = TestCgroup::new("capacity");
    let container = pod.child(&"c".repeat(64));
    let files = ["memory.max", "memory.limit_in_bytes"];
    let Some(limited) = Controlled::new("memory", files, &pod, &container) else {
        return;
    };
    limited.set(256 * MIB);
    let size = rustix::param::page_size() as u64;
    let load = container.load(&format!("touch {}", 32 * MIB / size));
    limited.adopt(load.pid());
    let mut counting = Counting::with_plan(plan("task-clock"), |config| config.memory = true);
    load.finish();
    let window = counting.window();
    let view = View {
        by: By::Container,
        ..View::default()
    };
    let joined = view.join(counting.session.plan(), &window, None);
    let all = joined.memory().unwrap();
    let entity = Entity::Container {
        id: "c".repeat(64).into(),
        pod: None,
    };
    let MemoryCapacity { now, peak } = all.entities[&entity];
    println!("{now:?} {peak:?}");
    assert!((32 * MIB..48 * MIB).contains(&peak.bytes), "{peak:?}");
    assert!(now.used < 16 * MIB, "{now:?}");
    assert_eq!(now.limit, Some(256 * MIB));
    assert_eq!(peak.at, window.start + window.length);
    let machine = all.machine.unwrap();
    assert!(machine.now.used < machine.now.limit.unwrap());
}

/// The resident set of a sleeping process is the one in /proc/PID/status.
#[test]
fn a_process_holds_its_resident_set() {
    let Some(_lock) = shared_machine() else {
        return;
    };
    let cgroup = TestCgroup::new("resident");
    let mut counting = Counting::with_plan(plan("task-clock"), |config| {
        config.memory = true;
        config.by_process = true.into();
    });
    // The load waits for its start.
    let sleeper = cgroup.load("burn 0 1");
    let snapshot = counting.session.pull().unwrap();
    let own = std::process::id();
    let held = snapshot.sources.memory.unwrap().held;
    let process_memory = |pid| {
        held.iter()
            .find(|(holder, _)| *holder == MemoryHolder::Process(pid))
    };
    let (_, held) = process_memory(own).expect("this process runs, and has a row");
    assert!(held.used > MIB && held.peak >= Some(held.used), "{held:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", sleeper.pid())).unwrap();
    let rss = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let rss: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
    let (_, held) = process_memory(sleeper.pid()).expect("it ran until it waited");
    assert_eq!(held.used, rss * 1024);
}

/// The row of the command has the memory of its processes, with rows of any kind, also after their
/// end.
#[test]
fn a_command_has_its_memory_with_rows_of_any_kind() {
    let Some(_lock) = shared_machine() else {
        return;
    };
    let load = load_binary();
    // More than the resident set of pmuscope itself, from which the command is forked.
    let bytes = 256 * MIB;
    let pages = (bytes / rustix::param::page_size() as u64).to_string();
    for by in ["container", "pod", "cgroup", "process"] {
        let output = pmuscope()
            .args(["stat", "--capacity", "--format", "json", "-e", "task-clock"])
            .args(["--by", by, "-o", "/proc/self/fd/2", "--"])
            .arg(&load)
            .args(["touch", &pages])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut windows = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let window = windows
            .next()
            .unwrap_or_else(|| panic!("no window in {text}"));
        let rows = window["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["kind"] == "command").unwrap();
        println!("{by}: {}", row["metrics"]);
        let peak = row["metrics"]["memory_peak"]["value"].as_f64();
        let peak = peak.unwrap_or_else(|| panic!("no memory by {by}: {row}"));
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let (least, most) = (bytes as f64, (bytes + 32 * MIB) as f64);
        assert!((least..most).contains(&peak), "{by}: {peak}");
    }
}
