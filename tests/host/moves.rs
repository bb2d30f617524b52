//! Tasks that move to another cgroup, and many short processes.

use std::time::{Duration, Instant};

use test_harness::{Counting, TestCgroup, machine};

/// CPU time of a process in ns, from /proc/PID/schedstat.
fn cpu_time(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_time_of_a_task_moved_while_it_runs_is_split() {
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
    // The flush updates the owner of the running task. Until then its time is charged to the old
    // cgroup, so the split is off by at most this interval.
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
    // The kernel accounts a running task's time at the next tick, at most 10 ms later.
    let slack = interval + 10_000_000;
    assert!(
        in_old.abs_diff(old.cpu_time()) <= slack,
        "{in_old} is more than {slack} ns off"
    );
}

/// Time from the move to the next flush is charged to the old cgroup, so such moves are counted.
#[test]
fn a_move_of_a_running_task_by_another_is_counted() {
    let Some(_machine) = machine() else { return };
    let cgroups = [TestCgroup::new("to"), TestCgroup::new("fro")];
    let mut counting = Counting::start("task-clock");
    let mut load = cgroups[0].load("burn 1 60000");
    load.go();
    let end = Instant::now() + Duration::from_secs(30);
    for to in cgroups.iter().rev().cycle() {
        to.adopt(load.pid());
        if counting.session.pull().unwrap().health.sum.moved > 0 {
            break;
        }
        // The task may not have been running at the time of the move.
        assert!(
            Instant::now() < end,
            "no move of a running task was counted"
        );
    }
}

/// The next switch is to a task of the old cgroup, so to the programs the slice appears to
/// continue.
#[test]
fn a_move_is_counted_if_a_task_of_the_old_cgroup_runs_next() {
    const BURST: &str = "burst 1 60000000 1 60000 fifo";
    // Numbers of fields of /proc/PID/stat.
    const STATE: usize = 3;
    const CPU: usize = 39;
    const POLICY: usize = 41;
    let Some(_machine) = machine() else { return };
    let (old, new) = (TestCgroup::new("old"), TestCgroup::new("new"));
    let mut counting = Counting::start("task-clock");
    // With real-time priority no other task runs between these two on their CPU.
    let [mut first, mut second] = [old.load(BURST), old.load(BURST)];
    let end = Instant::now() + Duration::from_secs(30);
    let wait_until = |what: &str, condition: &dyn Fn() -> bool| {
        while !condition() {
            assert!(Instant::now() < end, "{what}");
            std::thread::yield_now();
        }
    };
    let stat = |pid: u32, field: usize| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let mut fields = text.rsplit_once(") ").unwrap().1.split(' ');
        fields.nth(field - 3).unwrap().to_owned()
    };
    let is_runnable = |pid| stat(pid, CPU) == "1" && is_pinned(pid) && stat(pid, STATE) == "R";
    first.go();
    wait_until("the first does not run", &|| is_runnable(first.pid()));
    if stat(first.pid(), POLICY) != "1" {
        println!("skipped: this kernel gives a cgroup no real-time priority");
        return;
    }
    second.go();
    wait_until("the second does not wait", &|| is_runnable(second.pid()));
    let ran = cpu_time(second.pid());
    let moved = |counting: &mut Counting| counting.session.pull().unwrap().health.sum.moved;
    let mut before = moved(&mut counting);
    // The scheduler reserves a part of each second for fair tasks. The first task was running
    // during the move if it ran before the move and its number of switches has not changed.
    let ran_while_moved = || {
        let switches = switches_away(first.pid());
        let time = cpu_time(first.pid());
        wait_until("the first does not run", &|| cpu_time(first.pid()) > time);
        new.adopt(first.pid());
        switches_away(first.pid()) == switches
    };
    while !ran_while_moved() {
        assert!(
            Instant::now() < end,
            "the first never ran while it was moved"
        );
        old.adopt(first.pid());
        before = moved(&mut counting);
    }
    let pid = rustix::process::Pid::from_raw(first.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    wait_until("the second does not run", &|| cpu_time(second.pid()) > ran);
    assert!(moved(&mut counting) > before);
}

/// Number of switches away from a process, voluntary or not.
fn switches_away(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.split_once("voluntary_ctxt_switches:\t"));
    lines.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

/// Whether a process is pinned to CPU 1.
fn is_pinned(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().any(|line| line == "Cpus_allowed_list:\t1")
}

/// Processes of 2 ms in sequence. Each moves itself into a new cgroup, as the first process of a
/// container does.
#[test]
fn tasks_that_move_themselves_are_counted_in_their_new_cgroup() {
    const COUNT: usize = 200;
    /// Maximum difference in ns between the clocks of the hook and of perf at each switch. The hook
    /// corrects for its own run time, and the perf clock includes it.
    const SLACK: u64 = 100_000;
    let Some(_machine) = machine() else { return };
    let churn = TestCgroup::new("churn");
    let cgroups: Vec<TestCgroup> = (0..COUNT).map(|at| churn.child(&at.to_string())).collect();
    let directory = churn.directory.to_str().unwrap();
    let mut counting = Counting::start("task-clock");
    let text = churn
        .load(&format!("churn {directory} 0 {COUNT} 2000"))
        .finish();
    let window = counting.window();

    assert_eq!(text.lines().count(), COUNT);
    let (mut mismatches, mut widths) = (Vec::new(), Vec::new());
    for (line, cgroup) in text.lines().zip(&cgroups) {
        let numbers: Vec<u64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        let [least, most, switches] = numbers[..] else {
            panic!("{line}");
        };
        let counted = counting.count(&window, "task-clock", cgroup.id);
        let counted = counted.unwrap_or_else(|| panic!("{} has no row", cgroup.path));
        // The exit is one more switch.
        let slack = SLACK * (switches + 1);
        if !(least.saturating_sub(slack)..=most + slack).contains(&counted) {
            let path = &cgroup.path;
            mismatches.push(format!(
                "{path}: {counted}, not {least} to {most}, {switches} switches"
            ));
        }
        widths.push(most - least);
    }
    widths.sort_unstable();
    println!(
        "the exact times are known to {} ns at the median",
        widths[COUNT / 2]
    );
    assert!(mismatches.is_empty(), "{mismatches:#?}");
}

#[test]
fn the_time_of_many_short_processes_is_counted() {
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
    let mut counting = Counting::with("task-clock", |config| config.by_process = true.into());
    let loads = [cgroup.load("burn 0 100"), cgroup.load("burn 0 200")];
    // Ids of the initial pid namespace. The test may run in another one.
    let pids = loads.each_ref().map(test_harness::Load::pid);
    let pids = pids.map(|pid| counting.session.process_id(pid).unwrap());
    loads.into_iter().for_each(|load| drop(load.finish()));
    let window = counting.window();
    for (pid, burned) in pids.into_iter().zip([100_000_000, 200_000_000]) {
        let counted = counting
            .process_count(&window, "task-clock", cgroup.id, pid)
            .unwrap();
        // A lower bound, up to the difference between the clocks. The sum below has the upper
        // bound.
        assert!(counted >= burned / 100 * 99, "{counted}");
        assert_eq!(window.names.processes[&pid], "load");
    }
    let all: u64 = pids
        .iter()
        .filter_map(|pid| counting.process_count(&window, "task-clock", cgroup.id, *pid))
        .sum();
    counting.assert_cpu_time(&window, "both", all, cgroup.cpu_time());
}
