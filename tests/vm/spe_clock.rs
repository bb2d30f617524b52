//! SPE in a time namespace: records and programs use the kernel's own clock.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Output, Stdio},
    thread,
};

use parquet::record::Field;
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};
use serde_json::Value;
use test_harness::{load_binary, machine, pmuscope};

use crate::{
    mem_support::{Recording, Rows, assert_exact, now, spe_machine},
    testpmu::TestPmu,
};

/// Runs a command to its end in a time namespace with a monotonic clock a day ahead of the
/// kernel's.
fn output_a_day_ahead(mut command: Command) -> Output {
    // Only children of the thread that unshares enter the new namespace.
    let spawn = move || {
        // SAFETY: changes only the namespace of this thread's children.
        unsafe { unshare_unsafe(UnshareFlags::NEWTIME) }.unwrap();
        let thread = gettid().as_raw_nonzero();
        fs::write(
            format!("/proc/{thread}/timens_offsets"),
            "monotonic 86400 0",
        )
        .unwrap();
        // A child of posix_spawn shares our memory at first, so it may not enter the namespace;
        // with pre_exec, std uses fork. SAFETY: nothing is done between fork and exec.
        unsafe { command.pre_exec(|| Ok(())) };
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let child: Child = thread::spawn(spawn).join().unwrap();
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/time")).unwrap();
    assert_ne!(namespace(&child.id().to_string()), namespace("self"));
    let output = child.wait_with_output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    output
}

#[test]
fn samples_have_their_owners_in_a_time_namespace() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let mut command = pmuscope();
    command.args(["mem", "--self", "--format", "json", "--period", "4096"]);
    command.args(["--output-fd", "1", "--"]);
    command.arg(load_binary()).args(["forks", "5", "100"]);
    let output = output_a_day_ahead(command);
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}");
    let window: Value = serde_json::from_str(text.trim()).unwrap();
    let rows = window["rows"].as_array().unwrap();
    let kinds: Vec<_> = rows.iter().filter_map(|row| row["kind"].as_str()).collect();
    assert!(kinds.contains(&"command"), "{kinds:?}");
    assert!(!kinds.contains(&"unattributed"), "{kinds:?}");
}

#[test]
fn recorded_times_use_the_clock_of_the_kernel() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let _pmu = TestPmu::load("set=spe");
    let recording = Recording::new();
    let mut command = recording.command("--period 65536 --filter=");
    command
        .arg("--")
        .arg(load_binary())
        .args(["forks", "6", "150"]);
    let start = now();
    output_a_day_ahead(command);
    let end = now();
    let rows = Rows::read(&recording.path());
    assert_exact(&rows);
    for row in &rows.rows {
        let Field::ULong(time) = row["time_ns"] else {
            panic!("no time in {row:?}")
        };
        assert!(
            (start..=end).contains(&time),
            "{time} not in {start}..{end}"
        );
    }
}
