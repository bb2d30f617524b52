//! Scheduler events: waits for a CPU, switches, and sleep in state D.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use probe_common::CgroupId;
use probe_user::window::Window;
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_setaffinity},
};
use test_harness::{
    Counting, Load, TestCgroup, machine, online_cpus, plan,
    waits::{Account, EVENTS, Waits, assert_is_the_kernels, run_to_the_ends},
};

#[test]
fn waits_are_those_of_schedstat() {
    let Some(_machine) = machine() else { return };
    let (a, b) = (TestCgroup::new("a"), TestCgroup::new("b"));
    let below = a.child("below");
    let mut loads = vec![
        a.load("burst 0 2000 3000 1500"),
        a.load("burn 0 400"),
        below.load("bursts 0 300 200 500"),
        b.load("burn 0 300"),
        b.load("burst 0 100 900 1500 fifo"),
    ];
    loads.extend((0..8).map(|_| b.load("bursts 0 50 100 200")));
    let (waits, from_kernel) = Waits::during(|_| run_to_the_ends(&mut loads));
    let from_kernel = Account::sum(&from_kernel);
    assert_is_the_kernels(&waits, &[&a, &below, &b], loads.len(), from_kernel);
}

/// All threads still exist at the end, so the kernel's account of each can be read. They stay on
/// their CPUs, because Linux 6.12 counts waits of sleeping threads that it moves.
#[test]
fn waits_of_a_thousand_threads_are_those_of_schedstat() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("crowd");
    let cpus = online_cpus();
    let mut loads =
        [cpus[0], cpus[1 % cpus.len()]].map(|cpu| cgroup.load(&format!("crowd {cpu} 500 1")));
    let before = loads.each_ref().map(|load| Account::of(load.pid()));
    let (waits, from_kernel) = Waits::during(|_| {
        loads.iter_mut().for_each(Load::go);
        let after = loads
            .each_ref()
            .map(|load| Account::at_rest(load.pid(), 501));
        Account::sum(&after).since(Account::sum(&before))
    });
    assert_is_the_kernels(&waits, &[&cgroup], loads.len(), from_kernel);
}

/// A task that another CPU takes over has waited in the run queues of both CPUs.
#[test]
fn waits_continue_in_another_run_queue() {
    let Some(_machine) = machine() else { return };
    let cpus = online_cpus();
    let cgroup = TestCgroup::new("moving");
    let mut loads: Vec<Load> = (0..6)
        .map(|n| cgroup.load(&format!("burn {} 300", cpus[n % 2])))
        .collect();
    let pids: Vec<Pid> = loads
        .iter()
        .map(|load| Pid::from_raw(load.pid().cast_signed()).unwrap())
        .collect();
    let done = AtomicBool::new(false);
    let (waits, from_kernel) = Waits::during(|_| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = 0;
                while !done.load(Relaxed) {
                    for (n, pid) in pids.iter().enumerate() {
                        let mut one = CpuSet::new();
                        one.set(cpus[(n + turn) % 2] as usize);
                        // The process may have ended.
                        let _ = sched_setaffinity(Some(*pid), &one);
                    }
                    turn += 1;
                    thread::sleep(Duration::from_millis(3));
                }
            });
            let from_kernel = run_to_the_ends(&mut loads);
            done.store(true, Relaxed);
            from_kernel
        })
    });
    assert_is_the_kernels(&waits, &[&cgroup], loads.len(), Account::sum(&from_kernel));
    // Waits in the run queue that a task left are known too.
    let parts = waits.parts(&cgroup);
    println!("{parts:?}");
    let unseen = parts.get(&CgroupId::OTHER_CPU).copied().unwrap_or(0);
    // The exception is a thread whose entry was replaced by the entry of another thread.
    let count = |event| waits.count(event, &cgroup).unwrap();
    assert!(count("unknown-cpu-waits") > 0 || unseen <= count("cpu-wait") / 1000);
}

/// Each of two loops on one CPU waits as long as the other one runs.
#[test]
fn two_loops_on_one_cpu_wait_for_each_other() {
    let Some(_machine) = machine() else { return };
    let (a, b) = (TestCgroup::new("a"), TestCgroup::new("b"));
    let mut loads = [&a, &b].map(|cgroup| cgroup.load("burn 0 60000"));
    let (waits, ()) = Waits::during(|_| {
        loads.iter_mut().for_each(Load::go);
        // Until both have run for many time slices, also beside other load.
        while loads
            .iter()
            .any(|load| Account::of(load.pid()).ran < 300_000_000)
        {
            thread::sleep(Duration::from_millis(20));
        }
        // Kill both before reaping either, because the second would run on meanwhile.
        for load in &loads {
            let pid = Pid::from_raw(load.pid().cast_signed()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
        loads.into_iter().for_each(drop);
    });
    for (cgroup, other) in [(&a, &b), (&b, &a)] {
        let parts = waits.parts(cgroup);
        let wait = waits.count("cpu-wait", cgroup).unwrap();
        // Both times are by the clock of the run queue. The task-clock stops during each switch.
        let ran = other.cpu_time() + waits.count("stolen-time", other).unwrap();
        println!("waited {wait}: {parts:?}; the other ran {ran}");
        assert_eq!(parts.values().sum::<u64>(), wait);
        // One of them starts before the other and ends after it, by a time slice or two.
        let behind = parts[&other.id];
        assert!(behind <= ran + ran / 1000, "{behind} of {ran}");
        assert!(behind + 100_000_000 >= ran, "{behind} of {ran}");
        assert!(parts.get(&cgroup.id).is_none_or(|own| *own < 1_000_000));
    }
}

/// What the run queues of all CPUs have counted (`run_delay` and `pcount` of /proc/schedstat); None
/// on a kernel without `CONFIG_SCHEDSTATS`.
fn all_run_queues() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/schedstat").ok()?;
    let mut sums = [0; 2];
    for cpu in text.lines().filter(|line| line.starts_with("cpu")) {
        let numbers = cpu.split(' ').skip(1);
        let numbers: Vec<u64> = numbers.map(|it| it.parse().unwrap()).collect();
        sums[0] += numbers[7];
        sums[1] += numbers[8];
    }
    Some(sums)
}

/// The waits include those of threads that no longer exist.
#[test]
fn the_waits_of_all_rows_are_those_of_all_run_queues() {
    let Some(_machine) = machine() else { return };
    if all_run_queues().is_none() {
        println!("skipped: this kernel has no /proc/schedstat");
        return;
    }
    let cgroup = TestCgroup::new("short");
    let mut loads = ["forks 300 1", "threads 300 1", "execs 100"].map(|words| cgroup.load(words));
    let mut counting = Counting::plain(plan(EVENTS), |_| {});
    counting.session.watch_exits().unwrap();
    let mut read = || {
        let before = all_run_queues().unwrap();
        let snapshot = counting.session.pull().unwrap();
        (before, snapshot, all_run_queues().unwrap())
    };
    let (first_before, first, first_after) = read();
    loads.iter_mut().for_each(Load::go);
    for load in loads {
        load.finish();
    }
    let (before, last, after) = read();
    let window = Window::between(&first, &last, counting.session.plan());
    let [wait, waits, unknown] = ["cpu-wait", "cpu-waits", "unknown-cpu-waits"].map(|event| {
        let owners = window.usage.keys();
        let counts = owners.filter_map(|it| counting.process_count(&window, event, it.cgroup, 0));
        counts.sum::<u64>()
    });
    // Each pull is between two readings of the run queues.
    let least = [0, 1].map(|at| before[at] - first_after[at]);
    let most = [0, 1].map(|at| after[at] - first_before[at]);
    println!("waits {waits} of {wait} ns, unknown {unknown}; the kernel: {least:?} to {most:?}");
    // A wait in two run queues is one wait, and counts when it ends.
    let in_progress = 50_000_000;
    assert!(wait + in_progress >= least[0] - least[0] / 1000);
    assert!(wait <= most[0] + most[0] / 1000 + in_progress);
    // At most 0.1% of the waits that the kernel counts are missing, and these count as unknown.
    assert!(waits <= most[1] && waits + 1 + least[1] / 1000 >= least[1]);
    assert!(waits + unknown >= least[1]);
}

/// A process that waits in vfork for its child is in state D.
#[test]
fn sleep_in_state_d_is_counted_when_it_ends() {
    let Some(_machine) = machine() else { return };
    let cgroup = TestCgroup::new("blocked");
    let load = cgroup.load("vfork 300");
    let mut counting = Counting::start(EVENTS);
    let slept: u64 = load.finish().trim().parse().unwrap();
    let window = counting.window();
    let blocked = counting.count(&window, "uninterruptible-sleep", cgroup.id);
    println!("the child took {slept} ns, in state D {blocked:?}");
    let other = ["cpu-wait", "task-clock"].map(|event| counting.count(&window, event, cgroup.id));
    let other: u64 = other.iter().flatten().sum();
    // The rest of the time the parent ran or waited for a CPU.
    let blocked = blocked.unwrap();
    assert!(blocked <= slept, "{blocked} of {slept}");
    assert!(
        blocked + other + 1_000_000 >= slept,
        "{blocked} and {other} of {slept}"
    );
}
