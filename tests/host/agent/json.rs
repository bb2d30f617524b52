//! Lines of JSON.

use std::fs;

use crate::{
    agent::{Agent, Given, own},
    support::machine,
};

#[test]
fn each_line_has_the_time_of_day() {
    let Some(_machine) = machine() else { return };
    let agent = Agent::start();
    let before = std::time::SystemTime::now();
    agent.next_window();
    let line = agent.line();
    let after = std::time::SystemTime::now();
    let time = humantime::parse_rfc3339(line["time"].as_str().unwrap()).unwrap();
    assert!(
        before <= time && time <= after,
        "{before:?} {time:?} {after:?}"
    );
    assert!(
        line["rows"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["kind"] == "system")
    );
    assert!(line["self"]["agent_windows"].as_f64().unwrap() >= 1.0);
}

/// A disk that is full, and then is not: the file has whole lines only.
#[test]
fn lines_that_cannot_be_written_are_counted() {
    let Some(_machine) = machine() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let given = Given {
        json: path.to_str().unwrap(),
        ..Given::default()
    };
    let mut agent = Agent::with(&given, |_| {});
    let full = agent.wait_until(|series| own(series, "lost_json_lines_total") >= 2.0);
    assert_eq!(own(&full, "json_lines_total"), 0.0);
    let log = agent.log();
    assert_eq!(log.matches("cannot write ").count(), 1, "said once:\n{log}");
    fs::remove_file(&path).unwrap();
    agent.reload("interval = \"200ms\"\n");
    agent.wait_until(|series| own(series, "json_lines_total") >= 2.0);
    // Moved away by a rotation: the old file has no line more.
    let old = directory.path().join("lines.1");
    fs::rename(&path, &old).unwrap();
    agent.reload("interval = \"200ms\"\n");
    let before = fs::read_to_string(&old).unwrap();
    agent.wait_until(|_| path.metadata().is_ok_and(|file| file.len() > 0));
    assert_eq!(fs::read_to_string(&old).unwrap(), before);
    for line in before.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["time"].is_string());
    }
}
