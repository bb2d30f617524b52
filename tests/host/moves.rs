//! Tasks that change their cgroup, and processes that come and go by the hundred.

use std::time::{Duration, Instant};

use crate::support::{Counting, TestCgroup, machine};

/// CPU time of a process from /proc/PID/schedstat, in ns.
fn cpu_time(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_task_moved_while_it_runs() {
    let Some(_machine) = machine() else { return };
    let (old, new) = (TestCgroup::new("old"), TestCgroup::new("new"));
    let mut counting = Counting::start("task-clock");
    let mut load = old.load("burn 1 60000");
    load.go();
    let run_until = |nanos: u64| {
        let end = Instant::now() + Duration::from_secs(30);
        while cpu_time(load.pid()) < nanos {
            assert!(Instant::now() < end, "the load does not run");
            std::thread::yield_now();
        }
    };
    run_until(200_000_000);
    // The flush reads owners again: the split is off by at most the time between these two.
    let moved = Instant::now();
    new.adopt(load.pid());
    counting.session.pull().unwrap();
    let interval = u64::try_from(moved.elapsed().as_nanos()).unwrap();
    run_until(cpu_time(load.pid()) + 200_000_000);
    drop(load);
    let window = counting.window();

    let count = |cgroup: &TestCgroup| counting.count(&window, "task-clock", cgroup.id).unwrap();
    let (in_old, in_new) = (count(&old), count(&new));
    counting.assert_cpu_time(
        &window,
        "old and new together",
        in_old + in_new,
        old.cpu_time() + new.cpu_time(),
    );
    println!(
        "old: counted {in_old}, kernel {}, flushed {interval} ns after the move",
        old.cpu_time()
    );
    // The kernel itself settles a running task's time at its next tick, at most 10 ms later.
    let slack = interval + 10_000_000;
    assert!(
        in_old.abs_diff(old.cpu_time()) <= slack,
        "{in_old} is more than {slack} ns off"
    );
}

#[test]
fn a_storm_of_forks() {
    let Some(_machine) = machine() else { return };
    let storm = TestCgroup::new("storm");
    let mut counting = Counting::start("task-clock");
    storm.load("forks 300 1").finish();
    let window = counting.window();
    let counted = counting.count(&window, "task-clock", storm.id).unwrap();
    counting.assert_cpu_time(&window, "storm", counted, storm.cpu_time());
}

#[test]
fn by_process_every_process_has_its_row_and_name() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("processes");
    let mut counting = Counting::with("task-clock", |config| config.by_process = true);
    let loads = [cgroup.load("burn 0 100"), cgroup.load("burn 0 200")];
    let pids = loads.each_ref().map(super::support::Load::pid);
    loads.into_iter().for_each(|load| drop(load.finish()));
    let window = counting.window();
    for (pid, burned) in pids.into_iter().zip([100_000_000, 200_000_000]) {
        let counted = counting
            .process_count(&window, "task-clock", cgroup.id, pid)
            .unwrap();
        // Less by what the two clocks differ; how much more it is, the sum below tells.
        assert!(counted >= burned / 100 * 99, "{counted}");
        assert_eq!(window.names.processes[&pid], "load");
    }
    let all: u64 = pids
        .iter()
        .filter_map(|pid| counting.process_count(&window, "task-clock", cgroup.id, *pid))
        .sum();
    counting.assert_cpu_time(&window, "both", all, cgroup.cpu_time());
}
