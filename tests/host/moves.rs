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

/// Only the flush bounds its error.
#[test]
fn a_task_that_another_one_moves_while_it_runs_is_counted() {
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
        // It may not have run at that moment.
        assert!(
            Instant::now() < end,
            "no move of a running task was counted"
        );
    }
}

/// The switch that ends its time is to a task of the old cgroup, so the slice goes on.
#[test]
fn a_task_moved_while_it_runs_is_counted_before_one_of_its_old_cgroup() {
    const BURST: &str = "burst 1 60000000 1 60000 fifo";
    // Fields of /proc/PID/stat.
    const STATE: usize = 3;
    const CPU: usize = 39;
    const POLICY: usize = 41;
    let Some(_machine) = machine() else { return };
    let (old, new) = (TestCgroup::new("old"), TestCgroup::new("new"));
    let mut counting = Counting::start("task-clock");
    // At real-time priority, so that no other task comes between these two on their CPU.
    let [mut first, mut second] = [old.load(BURST), old.load(BURST)];
    let end = Instant::now() + Duration::from_secs(30);
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            std::thread::yield_now();
        }
    };
    let stat = |pid: u32, field: usize| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let mut fields = text.rsplit_once(") ").unwrap().1.split(' ');
        fields.nth(field - 3).unwrap().to_owned()
    };
    let is_there = |pid| stat(pid, CPU) == "1" && is_pinned(pid) && stat(pid, STATE) == "R";
    first.go();
    wait_until("the first does not run", &|| is_there(first.pid()));
    if stat(first.pid(), POLICY) != "1" {
        println!("skipped: this kernel gives a cgroup no real-time priority");
        return;
    }
    second.go();
    wait_until("the second does not wait", &|| is_there(second.pid()));
    let ran = cpu_time(second.pid());
    let moved = |counting: &mut Counting| counting.session.pull().unwrap().health.sum.moved;
    let mut before = moved(&mut counting);
    // The fair tasks of the CPU have a part of each second. The first ran while it was moved if
    // it ran before and no switch away from it was counted since.
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

/// How often a process was switched away from, willing or not.
fn switches_away(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.split_once("voluntary_ctxt_switches:\t"));
    lines.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

/// Whether a process may run on CPU 1 alone.
fn is_pinned(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().any(|line| line == "Cpus_allowed_list:\t1")
}

/// Processes of 2 ms, one after the other. Each moves itself into a cgroup of its own, as a
/// container's first process does.
#[test]
fn tasks_that_move_themselves() {
    const COUNT: usize = 200;
    /// Between the clocks of the hook and of perf, at each switch: the hook takes its own back to the
    /// switch, and perf's includes what the hook takes.
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
    let (mut off, mut widths) = (Vec::new(), Vec::new());
    for (line, cgroup) in text.lines().zip(&cgroups) {
        let numbers: Vec<u64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        let [least, most, switches] = numbers[..] else {
            panic!("{line}");
        };
        let counted = counting.count(&window, "task-clock", cgroup.id);
        let counted = counted.unwrap_or_else(|| panic!("{} has no row", cgroup.path));
        // Its exit is one more.
        let slack = SLACK * (switches + 1);
        if !(least.saturating_sub(slack)..=most + slack).contains(&counted) {
            let path = &cgroup.path;
            off.push(format!(
                "{path}: {counted}, not {least} to {most}, {switches} switches"
            ));
        }
        widths.push(most - least);
    }
    widths.sort_unstable();
    println!(
        "the truth is known to {} ns at the median",
        widths[COUNT / 2]
    );
    assert!(off.is_empty(), "{off:#?}");
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
    let mut counting = Counting::with("task-clock", |config| config.by_process = true.into());
    let loads = [cgroup.load("burn 0 100"), cgroup.load("burn 0 200")];
    // As the kernel numbers them: this test may run in a pid namespace.
    let pids = loads.each_ref().map(super::support::Load::pid);
    let pids = pids.map(|pid| counting.session.process_id(pid).unwrap());
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
