//! Runs the program as a user does.

use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;
use test_harness::{load_binary, pmuscope};

/// The output of `pmuscope ARGUMENTS`: JSON and messages.
pub(crate) fn run(arguments: &str) -> (Value, String) {
    let (json, messages, _) = output(pmuscope().args(arguments.split(' ')));
    (json, messages)
}

/// As [`run`], with a load as the command, which must succeed.
pub(crate) fn run_with_load(arguments: &str, words: &str) -> (Value, String) {
    let mut pmuscope = pmuscope();
    pmuscope.args(arguments.split(' '));
    pmuscope.args(["--output-fd", "1", "--"]);
    let (json, messages, status) = output(pmuscope.arg(load_binary()).args(words.split(' ')));
    assert!(status.success(), "{status}");
    (json, messages)
}

fn output(pmuscope: &mut Command) -> (Value, String, ExitStatus) {
    let output = pmuscope.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{:?}: {text}{messages}", pmuscope.get_args());
    let json = text
        .lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .or_else(|| serde_json::from_str(&text).ok())
        .unwrap_or_else(|| panic!("no JSON"));
    (json, messages, output.status)
}

/// The row of the command in a report.
pub(crate) fn command(report: &Value) -> &Value {
    let mut rows = report["rows"].as_array().unwrap().iter();
    rows.find(|row| row["kind"] == "command").unwrap()
}
