//! pmuscope inside its own namespaces, as in a container, with other pids than in the initial
//! namespace.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use test_harness::{
    Counting, TestCgroup, assert_within, hierarchy, load_binary, machine, online_cpus, pmuscope,
    shared_machine,
};

/// Runs a shell script in namespaces made by `unshare FLAGS`. Returns stdout and stderr. None, with
/// a printed reason, where the kernel refuses the namespaces. In the script `$pmuscope` is
/// pmuscope, `$load` is the load, and `$cgroups` is the mount of cgroup2.
fn unshared(flags: &[&str], load: &Path, script: &str) -> Option<(String, String)> {
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(flags)
            .args(["--fork", "sh", "-c", script])
            .env("pmuscope", pmuscope().get_program())
            .env("load", load)
            .env("cgroups", hierarchy().mount)
            .stdin(Stdio::null());
        command.output().ok()
    };
    if !run("mount --version").is_some_and(|output| output.status.success()) {
        println!("skipped: this process may not make namespaces ({flags:?}), or there is no mount");
        return None;
    }
    let output = run(script).unwrap();
    let [out, log] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    println!("{out}\n{log}");
    assert!(output.status.success(), "{log}");
    Some((out, log))
}

const PID_NAMESPACE: &[&str] = &["--pid", "--mount", "--mount-proc"];

/// A copy of the load with another name, which identifies its processes.
fn named(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    fs::copy(load_binary(), &path).unwrap();
    path
}

fn rows(out: &str) -> Vec<Value> {
    let window: Value = serde_json::from_str(out.lines().next_back().unwrap()).unwrap();
    window["rows"].as_array().unwrap().clone()
}

fn task_clock(row: &Value) -> u64 {
    row["events"]["task-clock"]["raw"].as_u64().unwrap_or(0)
}

/// A pod has a private cgroup namespace and the mount of the node. The root in mountinfo is then
/// the relative path from the pod's cgroup to the node's root.
#[test]
fn cgroups_have_their_paths_from_the_root_in_a_cgroup_namespace() {
    let Some(_machine) = machine() else { return };
    let [inside, outside] = ["inside", "outside"].map(TestCgroup::new);
    let mut load = outside.load("burn 0 60000");
    load.go();
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec unshare --cgroup $pmuscope stat --by cgroup \
         -e task-clock --format json --output-fd 1 -- $load burn 0 200",
        inside.directory.display()
    );
    let Some((out, _)) = unshared(&["--mount"], &load_binary(), &script) else {
        return;
    };
    let rows = rows(&out);
    let row = |kind: &str, name: Option<&str>| {
        let mut found = rows.iter().filter(|row| row["kind"] == kind);
        found.find(|row| name.is_none_or(|name| row["name"] == name))
    };
    let found = row("cgroup", Some(&outside.path));
    assert!(found.is_some_and(|row| task_clock(row) > 0), "{rows:?}");
    // pmuscope stays in its own cgroup, and so within its limits.
    let command = row("command", None).unwrap();
    assert!(task_clock(command) > 150_000_000, "{command}");
    let names = rows.iter().filter_map(|row| row["name"].as_str());
    let mut parts = names.flat_map(|name| name.split('/'));
    assert!(!parts.any(|part| part == ".."), "{rows:?}");
}

#[test]
fn a_command_without_a_cgroup_has_its_row_in_a_pid_namespace() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let script = r#"
        mount --bind "$cgroups" "$cgroups" && mount -o remount,bind,ro "$cgroups" &&
        exec "$pmuscope" stat --format json --output-fd 1 -e task-clock -- "$load" forks 3 100
    "#;
    let Some((out, log)) = unshared(PID_NAMESPACE, &load_binary(), script) else {
        return;
    };
    assert!(log.contains("following its process tree instead"), "{log}");
    let rows = rows(&out);
    let command = rows.iter().find(|row| row["kind"] == "command");
    let counted = task_clock(command.expect("a row of the command"));
    // Three children of 100 ms each, and their start.
    assert!((300_000_000..1_000_000_000).contains(&counted), "{counted}");
}

#[test]
fn names_are_of_the_right_processes_in_a_pid_namespace() {
    /// The number of children. Their ids in the namespace are those of early kernel threads
    /// outside.
    const SLEEPERS: usize = 40;
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let load = named(directory.path(), "pmu-sleeper");
    named(directory.path(), "pmu-burner");
    let script = format!(
        r#"
        mkfifo {0}/wait && exec 3<>{0}/wait
        for n in $(seq {SLEEPERS}); do "$load" burn 0 0 <&3 & done
        {0}/pmu-burner burn 0 60000 </dev/null &
        "$pmuscope" stat --format json --output-fd 1 --by process -e task-clock -- sleep 0.5
        # The end of this shell, the first of its namespace, ends them all.
        "#,
        directory.path().display()
    );
    let Some((out, _)) = unshared(PID_NAMESPACE, &load, &script) else {
        return;
    };
    let rows = rows(&out);
    let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
    let burner = rows.iter().find(|row| name(row).starts_with("pmu-burner "));
    let burner = burner.expect("a row of the load, with its name");
    assert!(task_clock(burner) > 0, "{burner}");
    let has_early_pid = |row: &&Value| {
        let pid = row["pid"].as_u64();
        pid.is_some_and(|pid| (2..=SLEEPERS as u64).contains(&pid))
    };
    let early: Vec<String> = rows.iter().filter(has_early_pid).map(name).collect();
    println!("{early:?}");
    assert!(!early.is_empty(), "no kernel thread ran");
    assert!(
        early.iter().all(|name| !name.starts_with("pmu-")),
        "{early:?}"
    );
}

/// The BPF programs see host pids, and procfs shows the pids of the namespace.
#[test]
fn functions_have_no_names_of_other_processes_in_a_pid_namespace() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let script = r#"
        "$load" burn 0 60000 </dev/null &
        "$pmuscope" hot -e cpu-clock:u --format json --output-fd 1 -- sleep 0.5
        # The end of this shell, the first of its namespace, ends the load.
    "#;
    let Some((out, log)) = unshared(PID_NAMESPACE, &load_binary(), script) else {
        return;
    };
    assert_eq!(log.matches("--pid=host").count(), 1, "{log}");
    let window: Value = serde_json::from_str(out.lines().next_back().unwrap()).unwrap();
    let rows = window["hot"].as_array().unwrap();
    let function = |row: &Value| row["function"].as_str().unwrap_or_default().to_owned();
    let mentions_process = |row: &&Value| function(row).contains(" of process ");
    assert!(rows.iter().any(|row| mentions_process(&row)), "{rows:?}");
    let other = rows.iter().find(|row| !mentions_process(row));
    assert!(other.is_none(), "{other:?}");
}

/// The environment variable of the child process that runs this test inside a namespace.
const INSIDE: &str = "PMUSCOPE_TEST_INSIDE";

#[test]
fn rows_and_snapshots_have_one_clock_in_a_time_namespace() {
    const NAME: &str = "namespaces::rows_and_snapshots_have_one_clock_in_a_time_namespace";
    if std::env::var_os(INSIDE).is_some() {
        return the_clock_inside();
    }
    let Some(_machine) = machine() else { return };
    let flags = ["--time", "--monotonic", "100000"];
    let test = std::env::current_exe().unwrap();
    let script = format!(r#"{INSIDE}=1 exec "$load" --exact {NAME} --nocapture"#);
    let Some((out, _)) = unshared(&flags, &test, &script) else {
        return;
    };
    assert!(out.contains("rows made in"), "{out}");
    let script = "exec \"$pmuscope\" stat -I 250 --self --format json --output-fd 1 \
                  -e task-clock -- sleep 1";
    let (out, _) = unshared(&flags, &test, script).unwrap();
    let windows = out.lines().map(|line| serde_json::from_str(line).unwrap());
    let windows: Vec<Value> = windows.collect();
    let cpus = u64::try_from(online_cpus().len()).unwrap();
    // The sum must be exact also where a CPU is idle at the end. Time during a pull belongs to
    // either window.
    for [before, window] in windows.array_windows() {
        let skews = [before, window].map(|it| it["self"]["pull_skew_ns"].as_u64().unwrap());
        let counted = task_clock(&window["total"]);
        let whole = cpus * window["duration_ns"].as_u64().unwrap();
        let skew = cpus * skews.iter().sum::<u64>();
        let nearest = counted.clamp(whole.saturating_sub(skew), whole + skew);
        assert_within("CPU time of the machine", counted, nearest, 10.0);
    }
    assert!(windows.len() > 1, "{out}");
}

/// The programs stamp rows, and user space stamps snapshots.
fn the_clock_inside() {
    let mut counting = Counting::start("task-clock");
    let now = counting.session.pull().unwrap();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap();
    let (first, last) = (nanos(counting.first.at), nanos(now.at));
    let stamps: Vec<u64> = now.rows.iter().map(|(_, row)| row.made).collect();
    let stamps: Vec<u64> = stamps.into_iter().filter(|stamp| *stamp != 0).collect();
    println!("rows made in {first}..{last}: {stamps:?}");
    assert!(!stamps.is_empty());
    // Some rows are created during the start of the session, before the first snapshot.
    let began = first - 60_000_000_000;
    assert!(stamps.iter().all(|stamp| (began..=last).contains(stamp)));
}
