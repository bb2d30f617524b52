//! Sends signals to loads.

use std::{fs, process::Command, thread, time::Duration};

/// Sends a signal, such as `-CONT`.
pub(crate) fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Stops a process and waits until all its threads have stopped.
pub(crate) fn stop(pid: u32) {
    kill("-STOP", pid);
    let stopped = || {
        fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .all(|task| {
                let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
                let state = stat.rsplit_once(") ").unwrap().1;
                assert!(!state.starts_with('Z'), "it ended before it was stopped");
                state.starts_with('T')
            })
    };
    while !stopped() {
        thread::sleep(Duration::from_millis(1));
    }
}
