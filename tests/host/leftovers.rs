//! Cgroups that a killed pmuscope leaves, and escape sequences in names.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use probe_user::{
    emit::printable::printable, machine::cgroup::Hierarchy, session::TemporaryCgroup,
};
use rustix::process::{Pid, Signal, kill_process};
use test_harness::{TestCgroup, hierarchy, load_binary, machine, pmuscope, shared_machine};

/// A short run of pmuscope.
fn start() {
    let output = pmuscope()
        .args(["stat", "-e", "task-clock", "--", "true"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A path in the cgroup below which this process and its children create cgroups.
fn own_cgroup_path(name: &str) -> PathBuf {
    let own = Hierarchy::current_cgroup(Path::new("/proc")).unwrap();
    hierarchy().directory(&own).unwrap().join(name)
}

#[test]
fn the_next_start_removes_the_cgroup_of_a_killed_run() {
    let Some(_machine) = machine() else { return };
    let mut killed = pmuscope()
        .args(["stat", "--", "sh", "-c", "echo $$; exec sleep 1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    let mut out = BufReader::new(killed.stdout.take().unwrap());
    out.read_line(&mut pid).unwrap();
    let leftover = own_cgroup_path(&format!("pmuscope-{}-stat", killed.id()));
    killed.kill().unwrap();
    killed.wait().unwrap();

    // The command still runs in the cgroup, so it is kept.
    start();
    let procs = fs::read_to_string(leftover.join("cgroup.procs")).unwrap();
    assert_eq!(procs, pid);

    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    while !fs::read_to_string(leftover.join("cgroup.events"))
        .unwrap()
        .contains("populated 0")
    {
        std::thread::yield_now();
    }
    start();
    assert!(!leftover.exists(), "{} is left", leftover.display());
}

/// The pid in the name may be of another pid namespace: no process has it here, or an unrelated one
/// does.
#[test]
fn a_locked_cgroup_stays_whatever_its_pid() {
    let Some(_machine) = machine() else { return };
    // A pid above the maximum of pid_max, and the pid of init.
    for pid in [4_194_305, 1] {
        let path = own_cgroup_path(&format!("pmuscope-{pid}-stat"));
        fs::create_dir(&path).unwrap();
        let locked = File::open(&path).unwrap();
        locked.lock().unwrap();
        start();
        assert!(path.exists(), "{} was locked", path.display());
        drop(locked);
        start();
        assert!(!path.exists(), "{} is left", path.display());
    }
}

#[test]
fn a_name_that_is_taken_gets_a_number() {
    let Some(_machine) = machine() else { return };
    let one = TemporaryCgroup::make(&hierarchy(), "stat").unwrap();
    let two = TemporaryCgroup::make(&hierarchy(), "stat").unwrap();
    assert_ne!(one.id, two.id);
    // Both cgroups are locked and empty.
    start();
    let name = own_cgroup_path(&format!("pmuscope-{}-stat", std::process::id()));
    let second = name.with_file_name(format!("pmuscope-{}-stat-2", std::process::id()));
    assert!(name.exists() && second.exists());
    drop((one, two));
    assert!(!name.exists() && !second.exists());
}

#[test]
fn a_process_cannot_write_to_the_terminal_by_its_name() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    const NAME: &str = "\u{1b}[2J\u{9b}m\r\nroot";
    let cgroup = TestCgroup::new("\u{1b}]0;x\u{7}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(NAME);
    fs::copy(load_binary(), &path).unwrap();
    let mut load = cgroup.load_with(&path, "burst 0 1000 1000 600000");
    load.go();
    // The window contains two ends of bursts, and so one whole burst.
    let script = format!(
        "bursts() {{ sed -n s/^voluntary_ctxt_switches://p /proc/{}/status; }}; \
         end=$(($(bursts) + 2)); while [ $(bursts) -lt $end ]; do sleep 0.01; done",
        load.pid()
    );
    let stat = |by: &str, format: &str, row: &str| {
        let mut stat = pmuscope();
        stat.args(["stat", "-e", "task-clock", "--by", by, "--format", format]);
        stat.args(["--wide", "--output-fd", "1", "--", "sh", "-c", &script]);
        let output = stat.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(row), "no {row} by {by} in {format}: {text}");
        text
    };
    let shown = printable(NAME);
    let is_control = |char: char| char.is_control() && char != '\n';
    for format in ["table", "csv"] {
        for (by, row) in [("cgroup", &*printable(&cgroup.path)), ("process", &shown)] {
            let text = stat(by, format, row);
            assert!(!text.contains(is_control), "{text:?}");
        }
    }
    // JSON has the unmodified name, escaped as JSON requires.
    for (by, row, name) in [
        ("cgroup", "\\u001b]0;x", cgroup.path.clone()),
        // JSON has the pid of the initial pid namespace, so only the name is compared.
        ("process", "\\u001b[2J", format!("{NAME} ")),
    ] {
        let text = stat(by, "json", row);
        assert!(!text.contains(is_control), "{text:?}");
        let window: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        let mut rows = window["rows"].as_array().unwrap().iter();
        assert!(
            rows.any(|row| row["name"].as_str().unwrap().starts_with(&name)),
            "{window}"
        );
    }
    drop(load);

    // An error message with such a name.
    let output = pmuscope()
        .args(["stat", "--cgroup", NAME, "--", "true"])
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        !log.contains('\u{1b}') && !log.contains('\u{9b}') && !log.contains('\r'),
        "{log:?}"
    );
    assert!(log.contains(r"\u{1b}[2J\u{9b}m\r"), "{log:?}");
}
