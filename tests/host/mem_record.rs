//! `mem record` and `mem calibrate` where they cannot work: one sentence each, and no file is left.

use std::process::Stdio;

use crate::support::pmuscope;

/// What it says, and its exit code.
fn refused(directory: &std::path::Path, words: &[&str]) -> (String, Option<i32>) {
    let output = pmuscope()
        .args(["mem"])
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty(), "{words:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    println!("{words:?}: {said}");
    (said, output.status.code())
}

#[test]
fn wrong_input_is_said_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["record"], "nothing to record: give a command after --"),
        (
            &["record", "--aux", "1.5M", "--", "true"],
            "`1.5M` is no size: write bytes, or a number with K, M or G behind it",
        ),
        (
            &["record", "--period", "0", "--", "true"],
            "0 is not in 1..=4294967040",
        ),
        (
            &["record", "-p", "1", "--cgroup", "/"],
            "cannot be used with",
        ),
        (&["record", "-p", "1", "--", "true"], "cannot be used with"),
        (&["calibrate"], "required arguments were not provided"),
        (&["calibrate", "--aux", "x", "--", "true"], "`x` is no size"),
    ];
    for (words, sentence) in cases {
        let (said, code) = refused(directory.path(), words);
        assert!(said.contains(sentence), "{words:?}: {said}");
        assert!(matches!(code, Some(1 | 2)), "{words:?}: {code:?}");
    }
}

/// This machine has no SPE: both say so, and nothing is run or left behind.
#[test]
fn a_machine_without_spe_says_so() {
    let devices = std::path::Path::new("/sys/bus/event_source/devices/arm_spe_0");
    if devices.exists() {
        println!("skipped: this machine has SPE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for words in [
        ["record", "--", "touch", "ran"],
        ["calibrate", "--", "touch", "ran"],
    ] {
        let (said, code) = refused(directory.path(), &words);
        assert_eq!(code, Some(1));
        assert_eq!(
            said,
            "pmuscope: this machine has no SPE (no PMU arm_spe_*), so its loads and stores cannot \
             be sampled: `pmuscope doctor` says why and what to do\n"
        );
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "{words:?} left a file");
    }
}
