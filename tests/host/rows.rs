//! The rows that a user chooses: by process, by name, by a metric.

use test_harness::{Load, TestCgroup, limit_files, pmuscope, shared_machine};

use crate::command::stat;

/// The id of a container.
fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A process is shown with its container, and the run ends with it.
#[test]
fn a_process_is_counted_until_it_ends() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let parent = TestCgroup::new("rows");
    let [chosen, other] = ['a', 'b'].map(|digit| parent.child(&id(digit)));
    let mut loads = [
        // Runs longer than the start of a session, because an earlier end would not be seen.
        chosen.load("burn 0 1500"),
        chosen.load("burn 1 600000"),
        other.load("burn 1 600000"),
    ];
    loads.iter_mut().for_each(Load::go);
    let pid = loads[0].pid().to_string();
    let args = ["--format", "json", "-e", "task-clock", "--pid", &pid];
    let (windows, output) = stat(&args);
    drop(loads);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let [window] = windows.as_slice() else {
        panic!("{} windows: {stderr}", windows.len())
    };
    let names = |list: &str| -> Vec<String> {
        let rows = window[list].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("rows"), [id('a')]);
    let processes = names("processes");
    assert_eq!(processes.len(), 1, "{processes:?}");
    assert!(processes[0].ends_with(&format!(" {pid}")), "{processes:?}");
    let (_, output) = stat(&args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("there is no such process"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
}

/// A limit below what timers and signals need is an error, not a panic.
#[test]
fn too_few_open_files_are_reported_in_one_sentence() {
    for limit in [6, 8, 12, 20] {
        let mut command = pmuscope();
        command.args(["stat", "--", "true"]);
        limit_files(&mut command, limit, limit);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("open files"), "{limit}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{limit}: {stderr}");
        assert_eq!(output.status.code(), Some(1), "{limit}");
    }
}
