//! An unprivileged user with only `CAP_BPF` and `CAP_PERFMON`.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};
use serde_json::Value;
use test_harness::{TestCgroup, load_binary, pmuscope, shared_machine};

use crate::nobody::{Programs, become_nobody};

/// Numbers of `linux/capability.h`.
const CAP_PERFMON: libc::c_ulong = 38;
const CAP_BPF: libc::c_ulong = 39;

/// Sets the user to nobody, and keeps the two capabilities over exec.
pub(crate) fn drop_rights() -> io::Result<()> {
    let capabilities = CapabilitySet::BPF | CapabilitySet::PERFMON;
    set_keep_capabilities(true)?;
    become_nobody()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: capabilities,
            permitted: capabilities,
            inheritable: capabilities,
        },
    )?;
    for capability in [CAP_PERFMON, CAP_BPF] {
        // SAFETY: the system call takes no pointer.
        if unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                capability,
                0,
                0,
            )
        } != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// CPU time of the ended children of this process, and of their ended children.
fn children_time() -> Duration {
    // SAFETY: rusage is plain integers, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    let times = [usage.ru_utime, usage.ru_stime].map(|time| {
        let [seconds, micros] = [time.tv_sec, time.tv_usec].map(i64::cast_unsigned);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    });
    times.iter().sum()
}

/// Runs a command with the two capabilities. Returns its log and its window.
fn with_two_rights(command: &mut Command) -> (String, Value) {
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe {
        command.pre_exec(drop_rights);
    }
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{log}");
    (log, serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn two_capabilities_suffice() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let programs = Programs::new();
    let load = programs.load();
    let mut command = programs.pmuscope();
    command
        .args([
            "stat",
            "--format",
            "json",
            "--output-fd",
            "1",
            "-e",
            "task-clock,page-faults",
            "--",
        ])
        .args([load.to_str().unwrap(), "forks", "10", "10"])
        .stdin(Stdio::null());
    let (log, window) = with_two_rights(&mut command);
    // nobody may not create a cgroup, so pmuscope follows the process tree and logs that.
    assert!(log.contains("following its process tree instead"), "{log}");
    let rows = window["rows"].as_array().unwrap();
    let command = rows.iter().find(|row| row["kind"] == "command").unwrap();
    let counted = command["events"]["task-clock"]["raw"].as_u64().unwrap();
    // Ten children of 10 ms each, and their start. Only the process tree leads to them. The upper
    // bound is the CPU time of pmuscope and its command.
    let all = children_time();
    let all = u64::try_from(all.as_nanos()).unwrap();
    assert!((100_000_000..all).contains(&counted), "{counted} of {all}");
    assert!(rows.iter().any(|row| row["kind"] == "system"));
}

/// The root user of a user namespace has all capabilities in that namespace only.
#[test]
fn a_user_namespace_is_named_as_the_cause() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let in_namespace = |command: &mut Command, arguments: &[&str]| {
        let program = command.get_program().to_owned();
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user"]).arg(program);
        unshare.args(arguments).output().unwrap()
    };
    if !in_namespace(&mut Command::new("true"), &[])
        .status
        .success()
    {
        println!("skipped: this kernel makes no user namespace");
        return;
    }
    let output = in_namespace(&mut pmuscope(), &["stat", "-e", "task-clock", "--", "true"]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(log.contains("those of a user namespace"), "{log}");
    assert!(!log.contains("6.1"), "{log}");
    let output = in_namespace(&mut pmuscope(), &["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    // Lines are wrapped at the width of the terminal.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("those of a user namespace"), "{text}");
}

#[test]
fn files_that_hot_may_not_read_are_reported_once_and_counted() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    // The load starts before pmuscope and belongs to another user, and only this user may read its
    // file. Newer kernels show mappings with CAP_PERFMON, so a readable file could be opened by its
    // path.
    let cgroup = TestCgroup::new("of_root");
    let private = tempfile::tempdir().unwrap();
    fs::set_permissions(private.path(), Permissions::from_mode(0o700)).unwrap();
    let load = private.path().join("load");
    fs::copy(load_binary(), &load).unwrap();
    let mut other = cgroup.load_with(&load, "burn 0 60000");
    other.go();
    let programs = Programs::new();
    let mut command = programs.pmuscope();
    command
        .args([
            "hot",
            "-e",
            "cpu-clock:u",
            "--self",
            "--format",
            "json",
            "--output-fd",
            "1",
            "--",
            "sleep",
            "3",
        ])
        .stdin(Stdio::null());
    let (log, window) = with_two_rights(&mut command);
    assert_eq!(log.matches("CAP_SYS_PTRACE").count(), 1, "{log}");
    let refused = &window["self"]["functions_refused"];
    assert!(
        refused.as_u64().is_some_and(|refused| refused > 0),
        "{}",
        window["self"]
    );
}
