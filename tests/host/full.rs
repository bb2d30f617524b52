//! Output to a full disk: each subcommand names what it could not write, and a command keeps
//! running.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use test_harness::{pmuscope, shared_machine};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// The message about a full output.
fn refused(command: &mut Command) -> String {
    let output = command.stdout(full()).stdin(Stdio::null()).output();
    let output = output.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

#[test]
fn unwritten_files_are_named() {
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
        &["stat", "-e", "task-clock", "--timeout", "10ms"],
    ];
    for words in cases {
        let stderr = refused(pmuscope().args(words));
        assert!(
            stderr.ends_with(
                "pmuscope: cannot write to standard output: No space left on device (os error 28)\n"
            ),
            "{words:?}: {stderr}"
        );
    }
    let words = ["stat", "-e", "task-clock", "-o", "/dev/full", "--", "true"];
    let stderr = refused(pmuscope().args(words));
    assert!(
        stderr.contains("pmuscope: cannot write /dev/full: No space left"),
        "{stderr}"
    );
}

/// The exit code is the same where messages cannot be written.
#[test]
fn unwritable_messages_do_not_change_the_exit_code() {
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

/// The error is reported when it happens, and pmuscope exits after the command.
#[test]
fn a_command_keeps_running_when_its_output_fails() {
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
    let line = lines.find(|line| line.contains("the command goes on"));
    let line = line.expect("an error is printed while the command waits");
    assert!(line.contains("cannot write /dev/full"), "{line}");
    assert!(child.try_wait().unwrap().is_none());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let stderr: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{stderr:?}");
    assert!(directory.path().join("went-on").exists(), "{stderr:?}");
}
