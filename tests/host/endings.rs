//! How runs end: with their command, after a time or a number of windows, on a signal, or when the
//! reader closes the pipe.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use test_harness::{pmuscope, shared_machine};

use crate::command::{TO_STDOUT, stat};

#[test]
fn the_exit_code_is_the_commands() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)] {
        let (windows, output) = stat(&["--format", "json", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}");
        assert_eq!(windows.len(), 1, "{script}");
    }
}

/// A run ends after a time, or a number of windows; a command gets SIGTERM.
#[test]
fn timeout_and_interval_count_end_a_run() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let (windows, output) = stat(&["--format", "json", "-I", "20ms", "--interval-count", "3"]);
    assert_eq!((windows.len(), output.status.code()), (3, Some(0)));
    let (windows, output) = stat(&["--format", "json", "--timeout", "100ms"]);
    assert_eq!((windows.len(), output.status.code()), (1, Some(0)));
    assert!(windows[0]["duration_ns"].as_u64() >= Some(100_000_000));
    let timeout = [
        "--format",
        "json",
        "--timeout",
        "100ms",
        "--",
        "sleep",
        "600",
    ];
    let (windows, output) = stat(&timeout);
    assert_eq!((windows.len(), output.status.code()), (1, Some(143)));
    for (option, wrong) in [
        ("-I", "0"),
        ("-I", "9ms"),
        ("-I", "25h"),
        ("-I", "1x"),
        ("--timeout", "0"),
        ("--timeout", "500000000000y"),
    ] {
        let (_, output) = stat(&[option, wrong]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("it must be"), "{wrong}: {stderr}");
    }
}

#[test]
fn an_interrupted_run_prints_its_counts() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let sleep = &["--", "sleep", "1000"][..];
    // This test may itself run behind `nohup`.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = own.split_once("SigIgn:").unwrap().1.trim_start();
    let ignored = u64::from_str_radix(ignored.split_whitespace().next().unwrap(), 16).unwrap();
    for (command, signal) in [
        (&[][..], Signal::INT),
        (sleep, Signal::INT),
        (sleep, Signal::TERM),
        (&[], Signal::HUP),
        (sleep, Signal::HUP),
    ] {
        if signal == Signal::HUP && ignored & 1 == 1 {
            continue;
        }
        let mut child = pmuscope()
            .args(["stat", "--format", "csv", "-I", "50", "-e", "task-clock"])
            .args(TO_STDOUT)
            .args(command)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The first window shows that counting has begun.
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(",total,") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0);
        }
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        let status = child.wait().unwrap();
        assert!(rest.lines().last().unwrap().contains(",total,"), "{rest}");
        // SIGTERM kills the command, and its exit code becomes that of pmuscope. Without a command
        // the code is 0.
        assert_eq!(
            status.code(),
            Some(if command.is_empty() { 0 } else { 143 })
        );
    }
}

/// A run that is started with SIGHUP ignored, as behind `nohup`, survives one.
#[test]
fn an_ignored_sighup_does_not_end_a_run() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP && exec \"$0\" \"$@\""])
        .arg(pmuscope().get_program())
        .args(["stat", "--format", "csv", "-I", "20", "-e", "task-clock"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut windows = |wanted: usize| {
        let mut count = 0;
        let mut line = String::new();
        while count < wanted {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0);
            count += usize::from(line.contains(",total,"));
        }
    };
    windows(1);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::HUP).unwrap();
    windows(5);
    kill_process(pid, Signal::INT).unwrap();
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_closed_pipe_ends_no_command() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    for (command, code) in [(&[][..], 0), (&["--", "sh", "-c", "sleep 0.5; exit 3"], 3)] {
        let mut child = pmuscope()
            .args(["stat", "--format", "csv", "-I", "50", "-e", "task-clock"])
            .args(TO_STDOUT)
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        // INFO messages about the machine are allowed.
        let complaints = log.lines().filter(|line| !line.starts_with(" INFO "));
        assert_eq!(complaints.collect::<Vec<_>>(), [""; 0]);
        assert_eq!(output.status.code(), Some(code));
    }
}
