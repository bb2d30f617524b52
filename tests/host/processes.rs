//! Rows by process: their names, and how long they exist.

use std::fs::{self, File};

use probe_user::{snapshot::ENDED, window::Window};
use test_harness::{Counting, TestCgroup, flood_the_ring, machine};

/// Waits until a condition is true of a process.
fn wait_for(pid: u32, condition: impl Fn(u32) -> bool) {
    while !condition(pid) {
        std::thread::yield_now();
    }
}

/// Whether the first thread of a process has exited, and the process has not.
fn is_leaderless(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).unwrap();
    // The name is in parentheses and may contain any character.
    stat.rsplit_once(") ").unwrap().1.starts_with('Z')
}

/// Whether another thread has executed a program, which ends the first thread.
fn has_executed(pid: u32) -> bool {
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    words.contains("\0twice\0")
}

/// Since Linux 6.16 a process frees its memory after `sched_process_exit`. On all kernels the first
/// process of a pid namespace waits in its exit for the others to end.
#[test]
fn a_process_has_its_name_until_its_exit_is_over() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("exits");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let mut counting = Counting::with("task-clock", |config| config.by_process = true.into());
    let mut load = cgroup.load(&format!("longexit {}", file.display()));
    load.go();
    wait_for(load.pid(), |_| file.exists());
    let exits: u32 = fs::read_to_string(&file).unwrap().parse().unwrap();
    let pid = counting.session.process_id(exits).unwrap();
    // The process has freed its memory and sleeps in its exit.
    wait_for(exits, |pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let sleeps = stat.rsplit_once(") ").unwrap().1.starts_with('S');
        sleeps && fs::read(format!("/proc/{pid}/cmdline")).unwrap().is_empty()
    });
    for _ in 0..4 {
        counting.first = counting.session.pull().unwrap();
    }
    fs::remove_file(&file).unwrap();
    load.finish();
    let window = counting.window();
    let counted = counting.process_count(&window, "task-clock", cgroup.id, pid);
    assert!(counted.unwrap() > 0);
    assert_eq!(window.names.processes[&pid], "load");
    // After its end, the process is removed together with its rows.
    for _ in 0..3 {
        counting.session.pull().unwrap();
    }
    let window = counting.window();
    assert!(!window.names.processes.contains_key(&pid));
}

/// A new process has the id of one that ended a window before.
#[test]
fn a_reused_id_has_the_name_of_its_successor() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("reuse");
    let mut counting = Counting::with("task-clock", |config| config.by_process = true.into());
    let first = cgroup.load("burn 0 20");
    let pid = first.pid();
    if counting.session.process_id(pid).unwrap() != pid {
        println!("skipped: ids of the initial pid namespace cannot be chosen in another one");
        return;
    }
    first.finish();
    let window = counting.window();
    assert_eq!(window.names.processes[&pid], "load");

    let mut second = cgroup.load(&format!("successor {pid}"));
    second.go();
    wait_for(pid, |pid| {
        fs::read_to_string(format!("/proc/{pid}/schedstat"))
            .is_ok_and(|text| !text.starts_with("0 "))
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "successor\n")
    });
    for _ in 0..5 {
        counting.first = counting.session.pull().unwrap();
        let ran = cgroup.cpu_time();
        wait_for(pid, |_| cgroup.cpu_time() > ran + 20_000_000);
        let window = counting.window();
        assert_eq!(window.names.processes[&pid], "successor");
        let counted = counting.process_count(&window, "task-clock", cgroup.id, pid);
        assert!(counted.is_some_and(|counted| counted > 0));
    }
}

/// All counts of a load whose first thread exits belong to one row, until the process ends.
fn assert_one_row_to_the_end(mode: &str, has_no_leader: impl Fn(u32) -> bool) {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new(mode);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wait");
    File::create(&file).unwrap();
    let mut counting = Counting::with("task-clock", |config| config.by_process = true.into());
    let mut load = cgroup.load(&format!("{mode} 0 100 {}", file.display()));
    let pid = counting.session.process_id(load.pid()).unwrap();
    load.go();
    // The load has used half of its time.
    wait_for(load.pid(), |pid| {
        has_no_leader(pid) && cgroup.cpu_time() >= 100_000_000
    });
    // These pulls free the rows of ended processes.
    for _ in 0..4 {
        counting.session.pull().unwrap();
    }
    fs::remove_file(&file).unwrap();
    load.finish();
    let window = counting.window();
    assert_eq!(window.names.processes[&pid], "load");
    let counted = counting.process_count(&window, "task-clock", cgroup.id, pid);
    counting.assert_cpu_time(&window, mode, counted.unwrap(), cgroup.cpu_time());
    // The process has ended.
    counting.window();
    let window = counting.window();
    assert_eq!(
        counting.process_count(&window, "task-clock", cgroup.id, pid),
        None
    );
}

#[test]
fn a_process_lives_as_long_as_its_last_thread() {
    assert_one_row_to_the_end("leaderless", is_leaderless);
}

#[test]
fn a_process_lives_on_after_exec_by_a_thread() {
    assert_one_row_to_the_end("threadexec", has_executed);
}

/// The processes of a cgroup that have rows.
fn processes(window: &Window, cgroup: &TestCgroup) -> Vec<u32> {
    let owners = window.usage.keys();
    let in_cgroup = owners.filter(|owner| owner.cgroup == cgroup.id);
    in_cgroup.map(|owner| owner.tgid).collect()
}

#[test]
fn rows_of_processes_with_a_lost_end_are_freed() {
    let Some(_machine) = machine() else { return };
    let storm = TestCgroup::new("storm");
    let mut counting = Counting::with("task-clock", |config| config.by_process = true.into());
    flood_the_ring();
    storm.load("forks 50 1").finish();
    let window = counting.window();
    assert!(window.health.sum.lost_events > 0);
    assert!(processes(&window, &storm).len() >= 50);
    counting.window();
    assert_eq!(processes(&counting.window(), &storm), [0; 0]);
}

#[test]
fn counts_are_kept_when_more_processes_than_rows_end() {
    let Some(_machine) = machine() else { return };
    let storm = TestCgroup::new("storm");
    let by_process = |max_rows| {
        Counting::with("task-clock", |config| {
            config.by_process = true.into();
            config.max_rows = max_rows;
        })
    };
    // Processes outside of the cgroup have rows too.
    let mut counting = by_process(None);
    storm.load("forks 300 0").finish();
    let rows = counting.session.pull().unwrap().rows;
    let others = rows.keys().filter(|key| key.cgroup != storm.id).count();
    drop(counting);
    let rows = 1024 + 2 * others;
    let forks = rows + 500;
    let before = storm.cpu_time();
    let mut counting = by_process(Some(u32::try_from(rows).unwrap()));
    let mut load = storm.load(&format!("forks {forks} 0"));
    load.go();
    // The subcommands drain the ring in this way while they wait for the child.
    while !load.has_ended() {
        counting.session.drain().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    load.finish();
    let window = counting.window();
    assert_eq!(window.health.sum.overflowed, 0);
    let processes = processes(&window, &storm);
    // The row ENDED has the sum of several processes.
    assert!(processes.contains(&ENDED) || processes.len() > forks);
    let counts = processes
        .into_iter()
        .filter_map(|tgid| counting.process_count(&window, "task-clock", storm.id, tgid));
    let counted = counts.sum();
    let charged = storm.cpu_time() - before;
    counting.assert_cpu_time(&window, "storm", counted, charged);
}
