//! Scheduler events: waits for a CPU, switches, and sleep in state D.

use std::{
    cmp,
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use probe_common::{CgroupId, WaitTimes};
use probe_user::{
    snapshot::{Snapshot, WaitDelta},
    window::Window,
};
use rustix::{
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
    thread::{CpuSet, sched_setaffinity},
};
use test_harness::{Counting, Load, TestCgroup, machine, online_cpus, plan};

const EVENTS: &str = "cpu-wait,cpu-waits,unknown-cpu-waits,voluntary-switches,\
                      involuntary-switches,uninterruptible-sleep,stolen-time,task-clock";

/// The kernel's own account of a process with one thread.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Nanoseconds that it waited for a CPU.
    run_delay: u64,
    /// Times that it was switched in.
    runs: u64,
    /// Voluntary and involuntary switches.
    switches: [u64; 2],
}

impl Account {
    /// As it is now.
    fn of(pid: u32) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let (schedstat, status) = (read("schedstat"), read("status"));
        let numbers: Vec<u64> = schedstat.split_whitespace().flat_map(str::parse).collect();
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        Self {
            run_delay: numbers[1],
            runs: numbers[2],
            switches: ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(line),
        }
    }

    /// When the process has ended. It is not reaped.
    fn at_end(pid: u32) -> Self {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let id = Pid::from_raw(pid.cast_signed()).unwrap();
        waitid(WaitId::Pid(id), options).unwrap();
        Self::of(pid)
    }
}

/// The sums of what the kernel says of loads from now to their ends.
fn run_to_the_ends(loads: &mut [Load]) -> [u64; 4] {
    let before: Vec<Account> = loads.iter().map(|load| Account::of(load.pid())).collect();
    loads.iter_mut().for_each(Load::go);
    let mut sums = [0; 4];
    for (load, before) in loads.iter().zip(before) {
        let after = Account::at_end(load.pid());
        let gains = [
            after.run_delay - before.run_delay,
            after.runs - before.runs,
            after.switches[0] - before.switches[0],
            after.switches[1] - before.switches[1],
        ];
        sums.iter_mut()
            .zip(gains)
            .for_each(|(sum, gain)| *sum += gain);
    }
    sums
}

/// A session with the ledger, and its last window.
struct Waits {
    counting: Counting,
    last: Snapshot,
    window: Window,
}

impl Waits {
    /// Runs `work` in a window of its own.
    fn during<T>(work: impl FnOnce() -> T) -> (Self, T) {
        let mut counting = Counting::start(EVENTS);
        let result = work();
        let last = counting.session.pull().unwrap();
        let window = Window::between(&counting.first, &last, counting.session.plan());
        let waits = Self {
            counting,
            last,
            window,
        };
        (waits, result)
    }

    fn count(&self, event: &str, cgroup: &TestCgroup) -> Option<u64> {
        self.counting.count(&self.window, event, cgroup.id)
    }

    /// The waits of a cgroup by their lengths.
    fn lengths(&self, cgroup: &TestCgroup) -> WaitTimes {
        let owners = self.delta().owners.into_iter();
        let mut own = owners.filter(|owner| owner.cgroup == cgroup.id);
        own.next()
            .map_or_else(WaitTimes::default, |own| own.lengths)
    }

    fn delta(&self) -> WaitDelta {
        let [first, last] = [&self.counting.first, &self.last].map(|it| it.sources.waits.as_ref());
        WaitDelta::between(first.unwrap(), last.unwrap())
    }

    /// Nanoseconds that a cgroup waited, by who ran.
    fn parts(&self, cgroup: &TestCgroup) -> BTreeMap<CgroupId, u64> {
        let delta = self.delta();
        assert_eq!((delta.unplaced, delta.unplaced_waits), (0, 0));
        let pairs = delta.pairs.into_iter();
        pairs
            .filter(|(pair, _)| pair.waiting == cgroup.id)
            .map(|(pair, nanos)| (pair.running, nanos))
            .collect()
    }
}

/// Compares the waits and switches of cgroups with the kernel's own, to the nanosecond. A wait of
/// which a part is unknown is not whole.
#[track_caller]
fn assert_is_the_kernels(
    counting: &Waits,
    cgroups: &[&TestCgroup],
    processes: usize,
    truth: [u64; 4],
) {
    let count = |event: &str| {
        let counts = cgroups.iter().map(|it| counting.count(event, it).unwrap());
        counts.sum::<u64>()
    };
    let [wait, waits, unknown, voluntary, involuntary] = [
        "cpu-wait",
        "cpu-waits",
        "unknown-cpu-waits",
        "voluntary-switches",
        "involuntary-switches",
    ]
    .map(count);
    let missed = counting.window.health.sum.missed_switches;
    println!(
        "{processes} processes: waits {waits} of {wait} ns, unknown {unknown}, switches \
         {voluntary} and {involuntary}, missed {missed}; the kernel: {truth:?}"
    );
    for cgroup in cgroups {
        // They are the same, unless a thread's entry was replaced by that of another one.
        let parts: u64 = counting.parts(cgroup).values().sum();
        let whole = counting.count("cpu-wait", cgroup).unwrap();
        let off = if unknown + missed == 0 { 0 } else { whole / 20 };
        assert!(parts.abs_diff(whole) <= off, "{parts} of {whole}");
        // An estimated slice is divided, but for its waits.
        if missed == 0 {
            let lengths = counting.lengths(cgroup);
            assert_eq!(
                lengths.waits(),
                counting.count("cpu-waits", cgroup).unwrap()
            );
            assert!(lengths.nanos <= whole && (unknown > 0 || lengths.nanos == whole));
            assert_in_their_buckets(&lengths);
        }
    }
    let [run_delay, runs, truly_voluntary, truly_involuntary] = truth;
    // A zombie may still be switched.
    let after_the_end = processes as u64;
    let pairs = [
        (voluntary, truly_voluntary),
        (involuntary, truly_involuntary),
    ];
    let near = |(counted, truth): &(u64, u64)| counted.abs_diff(*truth) <= after_the_end + missed;
    assert!(pairs.iter().all(near));
    // The kernel does not count waits from another state than running. Of those that it counts, a
    // part of few is unknown.
    assert!(waits + unknown >= runs && waits + runs / 20 >= runs);
    assert!(waits <= runs + after_the_end);
    match waits.cmp(&runs) {
        cmp::Ordering::Less => assert!(wait <= run_delay),
        cmp::Ordering::Equal => assert_eq!(wait, run_delay),
        cmp::Ordering::Greater => assert!(wait >= run_delay),
    }
}

/// Whether the sum of waits is one that waits in these buckets can have.
fn assert_in_their_buckets(lengths: &WaitTimes) {
    let end = |bucket: usize| WaitTimes::end(bucket).unwrap_or(f64::INFINITY) * 1e9;
    let (mut least, mut most) = (0.0, 0.0);
    for (bucket, count) in lengths.counts.iter().enumerate() {
        let count = f64::from(u32::try_from(*count).unwrap());
        if count > 0.0 {
            least += count * bucket.checked_sub(1).map_or(0.0, end);
            most += count * end(bucket);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
    let nanos = lengths.nanos as f64;
    // Ends of buckets are rounded to 10^-7 of them.
    assert!(
        least * 0.999_999 <= nanos && nanos <= most * 1.000_001,
        "{lengths:?}"
    );
}

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
    let (waits, truth) = Waits::during(|| run_to_the_ends(&mut loads));
    assert_is_the_kernels(&waits, &[&a, &below, &b], loads.len(), truth);
}

/// A task that another CPU takes from the run queue has waited in both.
#[test]
fn waits_go_on_in_another_run_queue() {
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
    let (waits, truth) = Waits::during(|| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = 0;
                while !done.load(Relaxed) {
                    for (n, pid) in pids.iter().enumerate() {
                        let mut one = CpuSet::new();
                        one.set(cpus[(n + turn) % 2] as usize);
                        // It may have ended.
                        let _ = sched_setaffinity(Some(*pid), &one);
                    }
                    turn += 1;
                    thread::sleep(Duration::from_millis(3));
                }
            });
            let truth = run_to_the_ends(&mut loads);
            done.store(true, Relaxed);
            truth
        })
    });
    assert_is_the_kernels(&waits, &[&cgroup], loads.len(), truth);
    // A run queue that a task leaves is known too.
    let parts = waits.parts(&cgroup);
    println!("{parts:?}");
    let unseen = parts.get(&CgroupId::OTHER_CPU).copied().unwrap_or(0);
    // But of threads whose entry that of another one replaced.
    let count = |event| waits.count(event, &cgroup).unwrap();
    assert!(count("unknown-cpu-waits") > 0 || unseen <= count("cpu-wait") / 1000);
}

/// Two loops on one CPU wait for each other as long as the other one runs.
#[test]
fn each_waits_for_the_other() {
    let Some(_machine) = machine() else { return };
    let (a, b) = (TestCgroup::new("a"), TestCgroup::new("b"));
    let mut loads = [&a, &b].map(|cgroup| cgroup.load("burn 0 60000"));
    let (waits, ()) = Waits::during(|| {
        loads.iter_mut().for_each(Load::go);
        // Until both have had many turns, also beside other load.
        while loads.iter().any(|load| used(load.pid()) < 300_000_000) {
            thread::sleep(Duration::from_millis(20));
        }
        // Both at once: the other one would run on.
        for load in &loads {
            let pid = Pid::from_raw(load.pid().cast_signed()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
        loads.into_iter().for_each(drop);
    });
    for (cgroup, other) in [(&a, &b), (&b, &a)] {
        let parts = waits.parts(cgroup);
        let wait = waits.count("cpu-wait", cgroup).unwrap();
        // By the clock of the run queue, as the waits. The task-clock stops during each switch.
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

/// Nanoseconds that a process with one thread has run.
fn used(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
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

/// Also of threads that no longer exist.
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
    // A wait in two run queues is one, and counts when it ends.
    let in_progress = 50_000_000;
    assert!(wait + in_progress >= least[0] - least[0] / 1000);
    assert!(wait <= most[0] + most[0] / 1000 + in_progress);
    // Of waits that the kernel counts, a part of few is unknown.
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
