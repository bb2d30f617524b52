//! `doctor` and `list` on the running machine.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use test_harness::{TestCgroup, machine, pmuscope, shared_machine};

use crate::nobody::{Programs, become_nobody};

fn run(command: &mut Command) -> (Option<i32>, Value) {
    let output: Output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|reason| panic!("no JSON: {reason}; stderr: {error}"));
    (output.status.code(), json)
}

fn finding<'a>(diagnosis: &'a Value, check: &str) -> &'a Value {
    let findings = diagnosis["findings"].as_array().unwrap();
    let mut matching = findings.iter().filter(|finding| finding["check"] == check);
    matching
        .next()
        .unwrap_or_else(|| panic!("no {check} in {diagnosis}"))
}

#[test]
fn as_root_doctor_counts_and_reports_success() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("doctor");
    let (code, diagnosis) = run(pmuscope().args(["doctor", "--format", "json"]));
    assert_eq!(code, Some(0), "{diagnosis}");
    assert_eq!(diagnosis["counting_works"], true);
    let tried = finding(&diagnosis, "count");
    assert_eq!(tried["state"], "ok", "{tried}");
    let found = tried["found"].as_str().unwrap();
    // CPU time of the 50 ms trial, and the part of it that was charged.
    let percent = found.split_once("ms, ").unwrap().1;
    let (percent, within) = percent.split_once("% ± ").unwrap();
    let percent: u32 = percent.parse().unwrap();
    let within: u32 = within.split_once('%').unwrap().0.parse().unwrap();
    let read = found.split_once("a counter read in ").unwrap().1;
    let read: u64 = read.split_once(" ns").unwrap().0.parse().unwrap();
    assert!(read > 0, "{found}");
    // Both values are rounded.
    assert!(percent.abs_diff(100) <= within + 1, "{found}");
    assert_eq!(finding(&diagnosis, "open a counter")["state"], "ok");
    let defaults = diagnosis["counters"]["defaults"].as_array().unwrap();
    let verbs: Vec<&Value> = defaults.iter().map(|it| &it["verbs"]).collect();
    assert_eq!(verbs, [&json!(["stat", "top"]), &json!(["agent"])]);
    assert!(
        defaults.iter().all(|it| it["error"].is_null()),
        "{defaults:?}"
    );
    // The test's cgroup exists, so the trial used a cgroup with the controller.
    let controller = finding(&diagnosis, "perf_event")["found"].as_str().unwrap();
    let used_child_cgroup = controller.contains("child cgroup");
    assert!(used_child_cgroup, "{controller}, with {}", cgroup.path);
}

#[test]
fn without_rights_doctor_fails_and_names_the_capabilities() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let programs = Programs::new();
    let mut command = programs.pmuscope();
    command.args(["doctor", "--format", "json"]);
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe {
        command.pre_exec(become_nobody);
    }
    let (code, diagnosis) = run(&mut command);
    assert_eq!(code, Some(1), "{diagnosis}");
    let capabilities = finding(&diagnosis, "capabilities");
    assert_eq!(capabilities["state"], "missing");
    assert_eq!(capabilities["found"], "without CAP_BPF and CAP_PERFMON");
    let remedy = capabilities["remedies"][0]["commands"][0].as_str();
    let remedy = remedy.unwrap();
    assert!(
        remedy.starts_with("sudo setcap cap_bpf,cap_perfmon+ep /"),
        "{remedy}"
    );
    let verdict = diagnosis["verdict"].as_str().unwrap();
    assert!(verdict.contains("see capabilities"), "{verdict}");
    let session = finding(&diagnosis, "count")["found"].as_str().unwrap();
    assert_eq!(session, "not tried, for lack of capabilities");
}

#[test]
fn the_last_line_is_the_verdict() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let output = pmuscope().arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("verdict: counting per container works here"),
        "{text}"
    );
}

#[test]
fn events_listed_as_available_can_be_counted() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let (code, list) = run(pmuscope().args(["list", "events", "--format", "json"]));
    assert_eq!(code, Some(0));
    assert_eq!(list.get("pmus"), None, "only the events were asked for");
    let events = list["events"].as_array().unwrap();
    let state = |name: &str| {
        let mut matching = events.iter().filter(|event| event["names"][0] == name);
        matching.next().unwrap()["state"].as_str().unwrap()
    };
    assert_eq!(state("task-clock"), "here");
    assert_eq!(state("page-faults"), "here");
    let counts = |name: &str| {
        let mut stat = pmuscope();
        stat.args(["stat", "-e", name, "--", "true"]);
        stat.stdin(Stdio::null()).output().unwrap().status.success()
    };
    for name in ["cycles", "cgroup-switches", "LLC-loads"] {
        assert_eq!(counts(name), state(name) == "here", "{name}");
    }
}

#[test]
fn every_pmu_of_sysfs_is_listed() {
    let (code, list) = run(pmuscope().args(["list", "pmus", "--format", "json"]));
    assert_eq!(code, Some(0));
    let listed = list["pmus"].as_array().unwrap().iter();
    let mut listed: Vec<&str> = listed.map(|pmu| pmu["name"].as_str().unwrap()).collect();
    let devices = Path::new("/sys/bus/event_source/devices")
        .read_dir()
        .unwrap();
    let mut present: Vec<String> = devices
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    listed.sort_unstable();
    present.sort_unstable();
    assert_eq!(listed, present);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut list = pmuscope();
    list.arg("list")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = list.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
