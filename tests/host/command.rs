//! `stat -- command`: the binary from its arguments to its exit code.

use std::{
    os::unix::process::CommandExt as _,
    process::{Output, Stdio},
};

use serde_json::Value;
use test_harness::{
    TestCgroup, hierarchy, limit_files, load_binary, machine, online_cpus, pmuscope, shared_machine,
};

use crate::nobody::{Programs, become_nobody};

/// With a command, windows go to standard error by default, mixed with messages.
pub(crate) const TO_STDOUT: [&str; 2] = ["--output-fd", "1"];

/// Runs `pmuscope stat ARGS`. Returns the windows and the whole output.
pub(crate) fn stat(args: &[&str]) -> (Vec<Value>, Output) {
    let to_file = args.contains(&"-o");
    let output = pmuscope()
        .arg("stat")
        .args(TO_STDOUT.iter().filter(|_| !to_file))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let windows = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    (windows, output)
}

fn row<'a>(window: &'a Value, kind: &str) -> &'a Value {
    let rows = window["rows"].as_array().unwrap();
    rows.iter()
        .find(|row| row["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind} in {window}"))
}

fn count(row: &Value, event: &str) -> u64 {
    row["events"][event]["raw"]
        .as_u64()
        .unwrap_or_else(|| panic!("no {event} in {row}"))
}

/// Only the command writes to standard output, so that programs can read it and the windows
/// separately.
#[test]
fn a_command_has_standard_output_for_itself() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out");
    for (options, to_file) in [(&[][..], false), (&["-o", file.to_str().unwrap()], true)] {
        let mut command = pmuscope();
        command.args(["stat", "-q", "--format", "json", "-e", "task-clock"]);
        let output = command.args(options).args(["--", "echo", "hi"]).output();
        let output = output.unwrap();
        assert_eq!(output.stdout, b"hi\n");
        let written = match to_file {
            true => std::fs::read(&file).unwrap(),
            false => output.stderr.clone(),
        };
        let window: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(row(&window, "command")["name"], "echo");
        assert_eq!(output.stderr.is_empty(), to_file);
    }
    let mut command = pmuscope();
    command.args(["stat", "--output-fd", "99", "--", "true"]);
    let refused = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        stderr.contains("cannot write to file descriptor 99"),
        "{stderr}"
    );
}

#[test]
fn page_faults_are_those_of_the_command() {
    let Some(_machine) = machine() else { return };
    /// Upper bound for faults of the load's exit, after it has read getrusage.
    const EXIT_FAULTS: u64 = 16;
    const PAGES: u64 = 5000;
    let quiet = TestCgroup::new("quiet");
    // The neighbour runs during the whole test and touches no new pages.
    let mut neighbour = quiet.load("burst 0 100 1000 60000");
    neighbour.go();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let load = load_binary();
    let args = [
        "--format",
        "json",
        "--self",
        "--by",
        "cgroup",
        "-o",
        out.to_str().unwrap(),
        "-e",
        "page-faults,task-clock",
        "--",
        load.to_str().unwrap(),
        "touch",
        &PAGES.to_string(),
    ];
    let (_, output) = stat(&args);
    let text = std::fs::read_to_string(&out).unwrap();
    let window: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // With `--self` the number of missed switches is printed: both switch programs are attached
    // from the start, so none should be missed.
    println!("missed {}", window["self"]["missed_switches"]);
    let rusage_faults: u64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    let counted = count(row(&window, "command"), "page-faults");
    println!("counted {counted}, getrusage {rusage_faults}");
    assert!(rusage_faults >= PAGES);
    // getrusage includes faults of the child before the start of counting, one for each
    // copy-on-write page that it shares with pmuscope. So `counted` may be lower.
    assert!(
        (PAGES..=rusage_faults + EXIT_FAULTS).contains(&counted),
        "counted {counted}, getrusage {rusage_faults}"
    );
    let rows = window["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == quiet.path.as_str());
    let row = row.expect("the neighbour ran");
    assert!(count(row, "task-clock") > 0, "{row}");
    assert!(count(row, "page-faults") <= EXIT_FAULTS, "{row}");
    drop(neighbour);
}

#[test]
fn children_of_the_command_are_in_its_row() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let load = load_binary();
    let (windows, _) = stat(&[
        "--format",
        "json",
        "-e",
        "task-clock",
        "--",
        load.to_str().unwrap(),
        "forks",
        "20",
        "10",
    ]);
    let counted = count(row(&windows[0], "command"), "task-clock");
    assert!((200_000_000..400_000_000).contains(&counted), "{counted}");
}

#[test]
fn intervals_add_up_to_the_whole() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let load = load_binary();
    let args = [
        "--format",
        "json",
        "-I",
        "100",
        "-e",
        "task-clock",
        "--",
        load.to_str().unwrap(),
        "burn",
        "0",
        "450",
    ];
    let (windows, _) = stat(&args);
    assert!(windows.len() >= 4, "{}", windows.len());
    let sum: u64 = windows
        .iter()
        .map(|window| window["duration_ns"].as_u64().unwrap())
        .sum();
    assert_eq!(windows.last().unwrap()["elapsed_ns"].as_u64().unwrap(), sum);
    let rows = windows.iter().filter_map(|window| {
        window["rows"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["kind"] == "command")
    });
    // On a busy machine the command may not run in one of the intervals.
    let task_clock = |row: &Value| row["events"]["task-clock"]["raw"].as_u64();
    let burned: u64 = rows.filter_map(task_clock).sum();
    assert!((450_000_000..550_000_000).contains(&burned), "{burned}");
}

#[test]
fn a_command_that_slept_has_a_reason_in_place_of_values() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let args = [
        "--format",
        "csv",
        "-I",
        "100",
        "-e",
        "task-clock",
        "--",
        "sleep",
        "1",
    ];
    let (_, output) = stat(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.contains(",command,"))
        .collect();
    let reason = "it did not run in this window";
    assert!(lines.iter().any(|line| line.contains(reason)), "{text}");
    // The command ran in the first window.
    assert!(!lines[0].contains(reason), "{text}");
}

#[test]
fn a_session_that_cannot_start_leaves_no_cgroup() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut command = pmuscope();
    command.args(["stat", "-e", "task-clock", "--", "true"]);
    limit_files(&mut command, 30, 30);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let cgroup_name = format!("pmuscope-{}-stat", child.id());
    let output = child.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("pmuscope: this needs "), "{log}");
    let online = online_cpus().len();
    assert!(
        log.contains(&format!(" open files ({online} for events on CPUs, ")),
        "{log}"
    );
    assert!(
        log.contains("the hard limit of this process is 30: raise it (`ulimit -Hn "),
        "{log}"
    );
    let cgroups = hierarchy().walk().unwrap();
    assert!(!log.contains("cannot remove"), "{log}");
    assert!(
        !cgroups.iter().any(|(_, path)| path.ends_with(&cgroup_name)),
        "{cgroup_name} is left"
    );
}

#[test]
fn with_a_cgroup_only_its_rows_are_shown() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let (a, b) = (TestCgroup::new("shown"), TestCgroup::new("hidden"));
    let loads = [
        a.load("burst 0 1000 1000 10000"),
        b.load("burst 0 1000 1000 10000"),
    ];
    let mut loads = loads;
    loads.iter_mut().for_each(test_harness::Load::go);
    let (windows, _) = stat(&[
        "--format",
        "json",
        "--by",
        "cgroup",
        "--cgroup",
        &a.path,
        "-e",
        "task-clock",
        "--",
        "sleep",
        "0.2",
    ]);
    let rows = windows[0]["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    // A busy CPU has no idle row.
    assert_eq!(names[..2], ["sleep", &a.path]);
    assert!(names[2..].iter().all(|name| *name == "idle"), "{names:?}");
    let shown = count(&rows[1], "task-clock");
    assert!(shown > 0 && shown < count(&windows[0]["total"], "task-clock"));
}

#[test]
fn another_hook_is_refused_or_counts_as_exactly() {
    let Some(_machine) = machine() else { return };
    assert_hook_is_refused_or_exact(1, 30);
}

/// Each CPU is busy while the hook is tried, and idle later.
#[test]
fn another_hook_is_refused_or_counts_as_exactly_where_a_cpu_was_busy() {
    let Some(_machine) = machine() else { return };
    let busy = TestCgroup::new("busy");
    for cpu in online_cpus() {
        let mut neighbour = busy.load(&format!("burn {cpu} 1500"));
        neighbour.go();
        assert_hook_is_refused_or_exact(cpu, 150);
    }
}

/// A load runs bursts of 1 ms on a CPU, 10 ms apart. Either hook counts about 1 ms for each burst.
#[track_caller]
fn assert_hook_is_refused_or_exact(cpu: u32, bursts: u64) {
    let load = load_binary();
    let args = format!(
        "--format json --self --hook cgroup-switches -e task-clock -- {} bursts {cpu} 1000 10000 \
         {bursts}",
        load.display()
    );
    let (windows, output) = stat(&args.split(' ').collect::<Vec<_>>());
    let log = String::from_utf8_lossy(&output.stderr);
    let report = &windows[0]["self"];
    let hook = report["hook"].as_str().unwrap();
    let counted = count(row(&windows[0], "command"), "task-clock");
    assert!(
        (bursts * 2 / 3 * 1_000_000..bursts * 2_000_000).contains(&counted),
        "{counted} with {hook}: {log}{report}"
    );
    if hook == "sched-switch" {
        assert!(log.contains("using sched-switch"), "{log}");
    } else {
        assert_eq!(report["missed_switches"], 0);
    }
}

#[test]
fn an_unprivileged_run_names_the_missing_capabilities() {
    let programs = Programs::new();
    let mut command = programs.pmuscope();
    command.args(["stat", "--", "true"]);
    if rustix::process::geteuid().is_root() {
        // SAFETY: between fork and exec the closure makes system calls only.
        unsafe { command.pre_exec(become_nobody) };
    }
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(
        log.contains("counting needs CAP_BPF and CAP_PERFMON"),
        "{log}"
    );
    assert!(log.contains("sudo setcap cap_bpf,cap_perfmon+ep"), "{log}");
}
