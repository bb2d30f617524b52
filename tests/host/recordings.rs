//! `pmuscope record` on the running kernel: what was shown live is replayed the same, and what a
//! kill leaves is read.

use std::{fs, path::Path, process::Stdio, thread::sleep, time::Duration};

use probe_user::{
    join::{By, View},
    pipeline::Pipeline,
    recording::{About, ReadError, Recording, RecordingFile, Replay},
};

use crate::{
    support::{Counting, TestCgroup, plan, pmuscope, shared_machine},
    texts::texts,
};

#[test]
fn what_was_shown_live_is_replayed_the_same() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
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
    let about = About {
        plan: pipeline.plan(),
        view: pipeline.view(),
        more: Vec::new(),
    };
    let mut file = RecordingFile::begin(&path, about, pipeline.snapshot()).unwrap();
    let mut shown = Vec::new();
    for _ in 0..5 {
        sleep(Duration::from_millis(20));
        pipeline.advance().unwrap();
        file.add(pipeline.report(), pipeline.snapshot()).unwrap();
        shown.push(pipeline.report().clone());
    }
    file.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let view = recording.view.clone();
    let mut replay = Replay::begin(recording, view).unwrap();
    let mut replayed = Vec::new();
    while let Some(report) = replay.advance().unwrap() {
        replayed.push(report.clone());
    }
    let texts = (texts(&shown), texts(&replayed));
    assert!(texts.0[1].contains("recorded"), "{}", texts.0[1]);
    assert_eq!(texts.0, texts.1);
}

/// Windows that can be read; none before there is a part with one.
fn windows(path: &Path) -> usize {
    let Ok(recording) = Recording::open(path) else {
        return 0;
    };
    let view = recording.view.clone();
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

/// Parts are replaced as a whole: whenever the kill comes, what was there can be read.
#[test]
fn a_kill_leaves_whole_windows() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
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
    let left = windows(&path);
    assert!(left >= 3);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let replayed = pmuscope()
        .args(["stat", "--format", "json", "--replay"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8(replayed.stdout).unwrap();
    assert_eq!(text.lines().count(), left);
    // The next recording does not write over it.
    let again = pmuscope()
        .args(["record", "-e", "task-clock", "-o"])
        .arg(&path)
        .args(["--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("did not come to its end"), "{said}");
}

/// The exit code is the command's, and a command that cannot be started leaves nothing.
#[test]
fn a_command_is_recorded_until_it_ends() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
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
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("1 window into"), "{said}");
    assert_eq!(windows(&path), 1);
    // Nor does it take an earlier recording away.
    assert_eq!(record(&["/no/such/program"]).status.code(), Some(127));
    assert_eq!(windows(&path), 1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let replay = |more: &[&str]| {
        let mut command = pmuscope();
        command.args(["stat", "--replay"]).arg(&path).args(more);
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
    let (code, [_, said]) = replay(&["--by", "process"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("record it with --by process"), "{said}");
}

/// One recording, compared with itself and by its parts; a view of it; and what cannot be.
#[test]
fn views_and_comparisons_of_a_recording() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
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
        let [out, said] = texts.map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), out, said)
    };
    let itself = path.to_str().unwrap();
    let (good, text, said) = run("diff", &[itself, "--format", "json"]);
    assert!(good, "{said}");
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let values = all["values"].as_array().unwrap();
    assert!(values.len() > 4, "{text}");
    for value in values {
        assert_eq!(value["a"], value["b"], "{value}");
        assert_eq!(value["differs"], false, "{value}");
        assert!(value["ratio"].is_null() || value["ratio"] == 1.0, "{value}");
    }
    let (good, text, said) = run("diff", &["--ranges", "0-0.6,0.6-"]);
    assert!(good, "{said}");
    assert!(
        text.contains("command sleep") && text.contains("task-clock"),
        "{text}"
    );
    let (good, text, said) = run("diff", &["--pods", "sleep,system", "--format", "html"]);
    assert!(good, "{said}");
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
            "have no value in common",
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
        let (good, _, said) = run(verb, words);
        assert!(!good && said.contains(sentence), "{verb} {words:?}: {said}");
    }
    // A picture has the ten largest of a metric: those of a busy machine are others.
    let of_command = |format| ["--format", format, "--search", "command sleep", "-M"];
    let (good, text, said) = run(
        "report",
        &[&of_command("svg")[..], &["task-clock"]].concat(),
    );
    assert!(good, "{said}");
    assert!(
        text.contains("<polyline") && text.contains("command sleep"),
        "{text}"
    );
    let cpus_used = |format| {
        run(
            "report",
            &[&of_command(format)[..], &["cpus_used"]].concat(),
        )
    };
    let (_, text, _) = cpus_used("json");
    let view: serde_json::Value = serde_json::from_str(&text).unwrap();
    let lines = view["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{text}");
    // The values of the windows are those of a replay.
    let (_, shown, _) = cpus_used("csv");
    assert_eq!(
        shown.lines().count(),
        1 + view["windows"].as_array().unwrap().len()
    );
}
