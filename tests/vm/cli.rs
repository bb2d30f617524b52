//! The program, run as a user runs it.

use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

use crate::support::{load_binary, pmuscope};

/// What `pmuscope ARGUMENTS` prints: JSON, and messages.
pub(crate) fn run(arguments: &str) -> (Value, String) {
    let (json, said, _) = ran(pmuscope().args(arguments.split(' ')));
    (json, said)
}

/// The same with a load as its command, which ends well.
pub(crate) fn run_with_load(arguments: &str, words: &str) -> (Value, String) {
    let mut pmuscope = pmuscope();
    pmuscope.args(arguments.split(' ')).arg("--");
    let (json, said, status) = ran(pmuscope.arg(load_binary()).args(words.split(' ')));
    assert!(status.success(), "{status}");
    (json, said)
}

fn ran(pmuscope: &mut Command) -> (Value, String, ExitStatus) {
    let output = pmuscope.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{:?}: {text}{said}", pmuscope.get_args());
    let json = text
        .lines()
        .find_map(|line| serde_json::from_str(line).ok());
    let json = json.or_else(|| serde_json::from_str(&text).ok());
    let json = json.unwrap_or_else(|| panic!("no JSON"));
    (json, said, output.status)
}

/// The command's row of a report.
pub(crate) fn command(report: &Value) -> &Value {
    let mut rows = report["rows"].as_array().unwrap().iter();
    rows.find(|row| row["kind"] == "command").unwrap()
}
