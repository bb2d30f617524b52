//! Rows by process: whose they are, and for how long.

use std::fs::{self, File};

use crate::support::{Counting, TestCgroup, machine};

/// Waits for something that happens to a process.
fn wait_for(pid: u32, so: impl Fn(u32) -> bool) {
    while !so(pid) {
        std::thread::yield_now();
    }
}

/// The first thread of a process has exited, and the process has not.
fn is_leaderless(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).unwrap();
    // The name may hold anything, and is in parentheses.
    stat.rsplit_once(") ").unwrap().1.starts_with('Z')
}

/// Another thread has executed a program, and the first one is gone.
fn has_executed(pid: u32) -> bool {
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    words.contains("\0twice\0")
}

/// What such a load does before its first thread is gone and long after belongs to one row, up to its
/// end.
fn one_row_to_the_end(mode: &str, gone: impl Fn(u32) -> bool) {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new(mode);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wait");
    File::create(&file).unwrap();
    let mut counting = Counting::with("task-clock", |config| config.by_process = true);
    let mut load = cgroup.load(&format!("{mode} 0 100 {}", file.display()));
    let pid = counting.session.process_id(load.pid()).unwrap();
    load.go();
    // It has used half of its time.
    wait_for(load.pid(), |pid| {
        gone(pid) && cgroup.cpu_time() >= 100_000_000
    });
    // Rows of what ended are freed by these.
    for _ in 0..4 {
        counting.session.pull().unwrap();
    }
    fs::remove_file(&file).unwrap();
    load.finish();
    let window = counting.window();
    assert_eq!(window.names.processes[&pid], "load");
    let counted = counting.process_count(&window, "task-clock", cgroup.id, pid);
    counting.assert_cpu_time(&window, mode, counted.unwrap(), cgroup.cpu_time());
    // It has ended now.
    counting.window();
    let window = counting.window();
    assert_eq!(
        counting.process_count(&window, "task-clock", cgroup.id, pid),
        None
    );
}

#[test]
fn a_process_lives_as_long_as_its_last_thread() {
    one_row_to_the_end("leaderless", is_leaderless);
}

#[test]
fn a_process_lives_on_after_exec_by_a_thread() {
    one_row_to_the_end("threadexec", has_executed);
}
