//! Lines of JSON, written to a file or a pipe.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use test_harness::{
    agent::{Agent, AgentOptions, own},
    shared_machine,
};

#[test]
fn each_line_has_the_time_of_day() {
    let Some(_machine) = shared_machine() else {
        return;
    };
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

/// A full disk loses lines and the agent counts them. The file contains whole lines only, also
/// after there is space again.
#[test]
fn lines_that_cannot_be_written_are_counted() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let options = AgentOptions {
        json: path.to_str().unwrap(),
        ..AgentOptions::default()
    };
    let mut agent = Agent::with(&options, |_| {});
    let full = agent.wait_until(|series| own(series, "lost_json_lines_total") >= 2.0);
    assert_eq!(own(&full, "json_lines_total"), 0.0);
    let log = agent.log();
    assert_eq!(log.matches("cannot write ").count(), 1, "said once:\n{log}");
    fs::remove_file(&path).unwrap();
    agent.reload("interval = \"200ms\"\n");
    agent.wait_until(|series| own(series, "json_lines_total") >= 2.0);
    // A rotation moved the file: the agent writes no more lines to the old one.
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

/// A named pipe without a reader, or with a reader that stops, delays nothing. Windows are counted
/// and served, lost lines are counted, the exit is prompt, and a reader gets whole lines only.
#[test]
fn a_pipe_without_a_reader_delays_nothing() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let options = AgentOptions {
        config: "interval = \"20ms\"\n",
        json: path.to_str().unwrap(),
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    let lost = agent.wait_until(|series| own(series, "lost_json_lines_total") >= 3.0);
    assert_eq!(own(&lost, "json_lines_total"), 0.0);
    assert_eq!(agent.log().matches("nobody reads it").count(), 1);

    // A new reader gets whole lines from the start of one.
    let mut reader = BufReader::new(File::open(&path).unwrap());
    let read = |reader: &mut BufReader<File>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    for _ in 0..3 {
        assert!(read(&mut reader)["time"].is_string());
    }
    // The reader stops: the pipe fills up, and windows continue.
    let lost = own(&agent.series(), "lost_json_lines_total");
    agent.wait_until(|series| own(series, "lost_json_lines_total") >= lost + 3.0);
    for _ in 0..20 {
        assert!(read(&mut reader)["time"].is_string());
    }
    // The reader closes the pipe, and another one opens it.
    drop(reader);
    let lost = own(&agent.series(), "lost_json_lines_total");
    agent.wait_until(|series| own(series, "lost_json_lines_total") >= lost + 3.0);
    let mut reader = BufReader::new(File::open(&path).unwrap());
    assert!(read(&mut reader)["time"].is_string());
    // The pipe has no active reader when SIGTERM arrives.
    let lost = own(&agent.series(), "lost_json_lines_total");
    agent.wait_until(|series| own(series, "lost_json_lines_total") >= lost + 3.0);
    agent.signal(Signal::TERM);
    assert!(agent.ended().success());
}
