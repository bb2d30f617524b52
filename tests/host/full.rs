//! Output for which there is no room: each verb names what it could not write, and a command goes
//! on.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use crate::support::{pmuscope, shared_machine};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// What it says when its output has no room.
fn refused(command: &mut Command) -> String {
    let output = command.stdout(full()).stdin(Stdio::null()).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[test]
fn what_could_not_be_written_is_named() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("counts");
    fs::write(&input, "cycles=10\ninstructions=20\nseconds=1\n").unwrap();
    let input = input.to_str().unwrap();
    let cases: [&[&str]; 5] = [
        &["agent", "--check-config"],
        &["doctor"],
        &["list"],
        &["derive", input, "--platform", "zen4"],
        &["stat", "-e", "task-clock", "--", "true"],
    ];
    for words in cases {
        let said = refused(pmuscope().args(words));
        assert!(
            said.ends_with(
                "pmuscope: cannot write to standard output: No space left on device (os error 28)\n"
            ),
            "{words:?}: {said}"
        );
    }
    let words = ["stat", "-e", "task-clock", "-o", "/dev/full", "--", "true"];
    let said = refused(pmuscope().args(words));
    assert!(
        said.contains("pmuscope: cannot write /dev/full: No space left"),
        "{said}"
    );
}

/// Nor does the exit code change where nobody reads messages.
#[test]
fn messages_may_have_no_reader() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for (words, code) in [
        (["stat", "--", "/no/such/program"], 127),
        (["stat", "--", "false"], 1),
        (["record", "--", "true"], 0),
    ] {
        let mut command = pmuscope();
        command.args(words).current_dir(directory.path());
        let status = command.stdout(Stdio::null()).stderr(full()).status();
        assert_eq!(status.unwrap().code(), Some(code), "{words:?}");
    }
}

/// The error is told when it happens, and pmuscope ends after the command.
#[test]
fn a_command_outlasts_its_output() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut child = pmuscope()
        .args(["stat", "-e", "task-clock", "-I", "10", "-o", "/dev/full"])
        .args(["--", "sh", "-c", "read go && touch went-on"])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.by_ref().map(Result::unwrap);
    let told = lines.find(|line| line.contains("the command goes on"));
    let told = told.expect("the error is told while the command waits");
    assert!(told.contains("cannot write /dev/full"), "{told}");
    assert!(child.try_wait().unwrap().is_none());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said:?}");
    assert!(directory.path().join("went-on").exists(), "{said:?}");
}
