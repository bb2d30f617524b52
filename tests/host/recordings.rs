//! `pmuscope record` on the running kernel: a replay shows the same as the live view, and the
//! recording of a killed process can be read.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use probe_user::{
    join::{By, View},
    pipeline::Pipeline,
    recording::{ReadError, Recording, RecordingFile, RecordingHead, Replay},
};
use test_harness::{Counting, TestCgroup, plan, pmuscope, shared_machine, texts};

#[test]
fn a_replay_shows_the_same_as_the_live_run() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    let cgroup = TestCgroup::new("recorded");
    let mut load = cgroup.load("burn 0 60000");
    load.go();
    let events = plan("task-clock,context-switches,page-faults");
    let session = Counting::plain(events, |_| {}).session;
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let _guard = runtime.enter();
    let mut pipeline = Pipeline::start(session, view, None).unwrap();
    let head = RecordingHead {
        view: pipeline.view().clone(),
        plan: pipeline.plan().clone(),
        ..RecordingHead::default()
    };
    let mut file = RecordingFile::begin(&path, &head, pipeline.snapshot()).unwrap();
    let mut shown = Vec::new();
    for _ in 0..5 {
        sleep(Duration::from_millis(20));
        pipeline.advance().unwrap();
        file.add(pipeline.snapshot()).unwrap();
        shown.push(pipeline.report().clone());
    }
    file.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let view = recording.head.view.clone();
    let mut replay = Replay::begin(recording, view).unwrap();
    let mut replayed = Vec::new();
    while let Some(report) = replay.advance().unwrap() {
        replayed.push(report.clone());
    }
    let texts = (texts(&shown), texts(&replayed));
    assert!(texts.0[1].contains("recorded"), "{}", texts.0[1]);
    assert_eq!(texts.0, texts.1);
}

/// Number of windows that can be read; 0 before the recording has begun.
fn windows(path: &Path) -> usize {
    let Ok(recording) = Recording::open(path) else {
        return 0;
    };
    let view = recording.head.view.clone();
    let mut replay = Replay::begin(recording, view).unwrap();
    let mut windows = 0;
    loop {
        match replay.advance() {
            Ok(Some(_)) => windows += 1,
            Ok(None) | Err(ReadError::Empty(_)) => return windows,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The windows before a kill can be read, whenever the kill comes.
#[test]
fn a_kill_leaves_whole_windows() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    let mut child = pmuscope()
        .args(["record", "-e", "task-clock", "-I", "1000", "-o"])
        .arg(&path)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while windows(&path) < 3 {
        assert!(child.try_wait().unwrap().is_none());
        sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let readable = windows(&path);
    assert!(readable >= 3);
    assert!(!path.exists());
    let replayed = pmuscope()
        .args(["stat", "--format", "json", "--replay"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8(replayed.stdout).unwrap();
    assert_eq!(text.lines().count(), readable);
    // A new recording refuses to overwrite the interrupted one.
    let again = pmuscope()
        .args(["record", "-e", "task-clock", "-o"])
        .arg(&path)
        .args(["--", "true"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(again.stderr).unwrap();
    assert!(stderr.contains("did not come to its end"), "{stderr}");
}

/// The windows before the disk is full can be read.
#[test]
fn a_full_disk_leaves_whole_windows() {
    const LIMITED: &str = "trap '' XFSZ; ulimit -f $LIMIT; exec \"$0\" \"$@\"";
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let record = |limit: &str, name: &str| {
        let path = directory.path().join(name);
        let pmuscope = pmuscope();
        let mut command = Command::new("sh");
        command.env("LIMIT", limit).args(["-c", LIMITED]);
        command.arg(pmuscope.get_program());
        // A number of windows, because a slow machine has fewer of them in a given time.
        let windows = ["-I", "10", "--interval-count", "60"];
        command.args(["record", "-e", "task-clock"]).args(windows);
        let output = command.arg("-o").arg(&path).output();
        (path, output.unwrap())
    };
    let (whole, output) = record("unlimited", "whole");
    assert!(output.status.success(), "{output:?}");
    // The limit is in units of 512 bytes. A third of the length has room for some of the windows,
    // however large they are here.
    let length = fs::metadata(whole).unwrap().len();
    let (path, output) = record(&(length / 3 / 512).to_string(), "cut");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("File too large"), "{message}");
    // There may be no room for the last line of the recording.
    let readable = windows(&path);
    let is_whole = message.contains(&format!("{readable} windows into"));
    assert!(
        is_whole || message.contains("the recording is in"),
        "{message}"
    );
    assert_eq!(path.exists(), is_whole, "{message}");
    assert!(readable > 2, "{readable}");
}

/// The exit code is that of the command. A command that cannot be started leaves no file.
#[test]
fn a_command_is_recorded_until_it_ends() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    let record = |words: &[&str]| {
        let mut command = pmuscope();
        command
            .args(["record", "-e", "task-clock", "-o"])
            .arg(&path);
        command.arg("--").args(words).output().unwrap()
    };
    let missing = record(&["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let output = record(&["sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("1 window into"), "{stderr}");
    assert_eq!(windows(&path), 1);
    // An earlier recording stays, too.
    assert_eq!(record(&["/no/such/program"]).status.code(), Some(127));
    assert_eq!(windows(&path), 1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let replay = |options: &[&str]| {
        let mut command = pmuscope();
        command.args(["stat", "--replay"]).arg(&path).args(options);
        let output = command.output().unwrap();
        let texts = [output.stdout, output.stderr];
        (
            output.status.code(),
            texts.map(|text| String::from_utf8(text).unwrap()),
        )
    };
    let (code, [shown, _]) = replay(&["--format", "csv"]);
    assert_eq!(code, Some(0));
    assert!(shown.contains(",command,sh,task-clock,"), "{shown}");
    let (code, [_, stderr]) = replay(&["--by", "process"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("record it with --by process"), "{stderr}");
    let (code, [shown, stderr]) = replay(&["--from", "1h"]);
    assert_eq!((code, &*shown), (Some(1), ""));
    assert!(stderr.contains("no whole window"), "{stderr}");
}

/// A recording compared with itself and in parts, its views, and arguments that are refused.
#[test]
fn a_recording_can_be_viewed_and_compared() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl.gz");
    let recorded = pmuscope()
        .args(["record", "-e", "task-clock,page-faults", "-I", "50", "-o"])
        .arg(&path)
        .args(["--", "sleep", "1.2"])
        .status()
        .unwrap();
    assert!(recorded.success());
    let run = |verb: &str, words: &[&str]| {
        let output = pmuscope()
            .arg(verb)
            .arg(&path)
            .args(words)
            .output()
            .unwrap();
        let texts = [output.stdout, output.stderr];
        let [out, stderr] = texts.map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), out, stderr)
    };
    let itself = path.to_str().unwrap();
    let (good, text, stderr) = run("diff", &[itself, "--format", "json"]);
    assert!(good, "{stderr}");
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let values = all["values"].as_array().unwrap();
    assert!(values.len() > 4, "{text}");
    for value in values {
        assert_eq!(value["a"], value["b"], "{value}");
        assert_eq!(value["differs"], false, "{value}");
        assert!(value["ratio"].is_null() || value["ratio"] == 1.0, "{value}");
    }
    let (good, text, stderr) = run("diff", &["--ranges", "0-0.6,0.6-", "--all"]);
    assert!(good, "{stderr}");
    assert!(
        text.contains("command sleep") && text.contains("cpus_used"),
        "{text}"
    );
    // The change of cpus_used is not reported a second time as task-clock.
    assert!(!text.contains("task-clock"), "{text}");
    let words = ["--all", "--pods", "sleep,system", "--format", "html"];
    let (good, text, stderr) = run("diff", &words);
    assert!(good, "{stderr}");
    assert!(
        text.starts_with("<!doctype html>") && text.contains("cpus_used"),
        "{text}"
    );
    let refused: &[(&str, &[&str], &str)] = &[
        ("diff", &[], "nothing to compare with"),
        (
            "diff",
            &["--ranges", "0-1,900-"],
            "has no window from second 900",
        ),
        (
            "diff",
            &["--pods", "sleep,nobody"],
            "a.jsonl.gz has no row nobody",
        ),
        (
            "diff",
            &["--ranges", "5"],
            "two ranges of seconds are written as",
        ),
        ("report", &["--format", "svg"], "a picture is of one metric"),
        (
            "report",
            &["--format", "csv", "-M", "x"],
            "has no metric x: it has task-clock",
        ),
        (
            "report",
            &["--format", "svg", "-M", "cpus_used", "--search", "nobody"],
            "nothing that --search finds",
        ),
    ];
    for (verb, words, sentence) in refused {
        let (good, _, stderr) = run(verb, words);
        assert!(
            !good && stderr.contains(sentence),
            "{verb} {words:?}: {stderr}"
        );
    }
    // The picture has the ten largest rows of a metric, which differ on a busy machine, so the view
    // is narrowed.
    let command_view = |format| ["--format", format, "--search", "command sleep", "-M"];
    let (good, text, stderr) = run(
        "report",
        &[&command_view("svg")[..], &["task-clock"]].concat(),
    );
    assert!(good, "{stderr}");
    assert!(
        text.contains("<polyline") && text.contains("command sleep"),
        "{text}"
    );
    let cpus_used = |format| {
        run(
            "report",
            &[&command_view(format)[..], &["cpus_used"]].concat(),
        )
    };
    let (_, text, _) = cpus_used("json");
    let view: serde_json::Value = serde_json::from_str(&text).unwrap();
    let lines = view["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{text}");
    // The values of the windows are the same as in a replay.
    let (_, shown, _) = cpus_used("csv");
    assert_eq!(
        shown.lines().count(),
        1 + view["windows"].as_array().unwrap().len()
    );
}
