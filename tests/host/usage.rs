//! Wrong input: every error is one sentence that says what happened, to what, and what to do.

use std::process::Stdio;

use crate::support::{machine, pmuscope};

/// Arguments of `pmuscope`, the exit code, and what standard error must say.
const CASES: &[(&[&str], i32, &str)] = &[
    (&[], 2, "Usage: pmuscope <COMMAND>"),
    (&["stats"], 2, "a similar subcommand exists: 'stat'"),
    (
        &["stat", "-I", "5"],
        2,
        "5 is not in 10..18446744073709551615",
    ),
    (
        &["stat", "--by", "pods"],
        2,
        "[possible values: container, pod, cgroup, process]",
    ),
    (
        &["stat", "--max-rows", "0"],
        2,
        "0 is not in 1..=4294967295",
    ),
    (&["stat", "-e", "page-fault", "true"], 1, "page-faults"),
    (&["stat", "-e", "", "true"], 1, "event"),
    (&["stat", "-e", "{task-clock", "true"], 1, "}"),
    (&["stat", "-e", "msr/tscc/", "true"], 1, "tsc"),
    (&["stat", "-e", "mrs/tsc/", "true"], 1, "msr"),
    (&["stat", "-e", "task-clock:q", "true"], 1, "q"),
    (
        &["stat", "-o", "/nowhere/out", "true"],
        1,
        "cannot write /nowhere/out: No such file or directory",
    ),
    (
        &[
            "stat",
            "--by",
            "process",
            "--hook",
            "cgroup-switches",
            "true",
        ],
        1,
        "--by process needs --hook sched-switch",
    ),
];

/// As above, of what needs the right to count.
const COUNTING_CASES: &[(&[&str], i32, &str)] = &[
    (
        &["stat", "--", "/nowhere/command"],
        127,
        "cannot start /nowhere/command: No such file or directory",
    ),
    (
        &["stat", "--", "/proc/version"],
        126,
        "cannot start /proc/version: Permission denied",
    ),
    (
        &["stat", "--cgroup", "/nowhere", "true"],
        1,
        "no cgroup /nowhere under ",
    ),
    (
        &[
            "stat",
            "-e",
            "{task-clock,cs,faults,minor-faults,major-faults,cpu-clock,migrations,dummy,emulation-faults}",
            "true",
        ],
        1,
        "at most 16 counters, 8 in a group",
    ),
];

fn check(cases: &[(&[&str], i32, &str)]) {
    for (args, code, expected) in cases {
        let output = pmuscope()
            .args(*args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        println!("pmuscope {}\n{log}", args.join(" "));
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {log}");
        assert!(
            log.contains(expected),
            "{args:?} says\n{log}\nand not\n{expected}"
        );
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn wrong_arguments() {
    check(CASES);
}

#[test]
fn wrong_arguments_of_counting() {
    if let Some(_machine) = machine() {
        check(COUNTING_CASES);
    }
}
