//! Waits for a CPU, compared with the kernel's own account of threads.

use std::{cmp, collections::BTreeMap, fs, io, path::Path, thread, time::Duration};

use probe_common::{CgroupId, WaitTimes};
use probe_user::{
    snapshot::{Snapshot, WaitDelta},
    window::Window,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::{Counting, Load, TestCgroup};

/// The events of [`Waits`].
pub const EVENTS: &str = "cpu-wait,cpu-waits,unknown-cpu-waits,voluntary-switches,\
                      involuntary-switches,uninterruptible-sleep,stolen-time,task-clock";

/// The kernel's own account of the existing threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Nanoseconds that the threads ran.
    pub ran: u64,
    /// Nanoseconds that the threads waited for a CPU.
    pub run_delay: u64,
    /// Number of times that the threads were switched in.
    pub runs: u64,
    /// Voluntary switches.
    pub voluntary: u64,
    /// Involuntary switches.
    pub involuntary: u64,
}

impl Account {
    /// The current account of a process. A zombie still has its first thread.
    pub fn of(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let tasks = tasks.map(|task| Self::of_thread(&task.unwrap().path()));
        tasks.fold(Self::default(), Self::plus)
    }

    fn of_thread(task: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap();
        let (schedstat, status) = (read("schedstat"), read("status"));
        let numbers: Vec<u64> = schedstat.split_whitespace().flat_map(str::parse).collect();
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        Self {
            ran: numbers[0],
            run_delay: numbers[1],
            runs: numbers[2],
            voluntary: line("voluntary_ctxt_switches:"),
            involuntary: line("nonvoluntary_ctxt_switches:"),
        }
    }

    /// Waits until the process has ended, without reaping it, and returns its account.
    fn at_end(pid: u32) -> Self {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let id = Pid::from_raw(pid.cast_signed()).unwrap();
        waitid(WaitId::Pid(id), options).unwrap();
        Self::of(pid)
    }

    /// Waits until this number of the process's threads sleep, and returns its account.
    pub fn at_rest(pid: u32, threads: usize) -> Self {
        let sleeps = |task: io::Result<fs::DirEntry>| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.contains(") S ")
        };
        let mut last = Self::default();
        loop {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let asleep = tasks.map(sleeps).filter(|sleeps| *sleeps).count();
            let now = Self::of(pid);
            // A thread is in this state shortly before its switch is counted, so two equal readings
            // are needed.
            if asleep == threads && now == last {
                return now;
            }
            last = now;
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The sum of several accounts.
    pub fn sum(all: &[Self]) -> Self {
        all.iter().copied().fold(Self::default(), Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            ran: self.ran + other.ran,
            run_delay: self.run_delay + other.run_delay,
            runs: self.runs + other.runs,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }

    /// The increase since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            ran: self.ran - before.ran,
            run_delay: self.run_delay - before.run_delay,
            runs: self.runs - before.runs,
            voluntary: self.voluntary - before.voluntary,
            involuntary: self.involuntary - before.involuntary,
        }
    }
}

/// Runs the loads to their end; returns the kernel's account of each for this time.
pub fn run_to_the_ends(loads: &mut [Load]) -> Vec<Account> {
    let before: Vec<Account> = loads.iter().map(|load| Account::of(load.pid())).collect();
    loads.iter_mut().for_each(Load::go);
    let gains = loads.iter().zip(before);
    gains
        .map(|(load, before)| Account::at_end(load.pid()).since(before))
        .collect()
}

/// A session that counts waits by the waiting and the running cgroup (the ledger), and its last
/// window.
pub struct Waits {
    counting: Counting,
    last: Snapshot,
    window: Window,
}

impl Waits {
    /// Runs `work` in a window of its own.
    pub fn during<T>(work: impl FnOnce(&mut Counting) -> T) -> (Self, T) {
        let mut counting = Counting::start(EVENTS);
        let result = work(&mut counting);
        let last = counting.session.pull().unwrap();
        let window = Window::between(&counting.first, &last, counting.session.plan());
        let waits = Self {
            counting,
            last,
            window,
        };
        (waits, result)
    }

    /// The count of an event, None if the cgroup has no row.
    pub fn count(&self, event: &str, cgroup: &TestCgroup) -> Option<u64> {
        self.counting.count(&self.window, event, cgroup.id)
    }

    /// The waits of a cgroup, by length.
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

    /// Nanoseconds that a cgroup waited, by the cgroup that ran meanwhile.
    pub fn parts(&self, cgroup: &TestCgroup) -> BTreeMap<CgroupId, u64> {
        let delta = self.delta();
        assert_eq!((delta.unplaced, delta.unplaced_waits), (0, 0));
        let pairs = delta.pairs.into_iter();
        pairs
            .filter(|(pair, _)| pair.waiting == cgroup.id)
            .map(|(pair, nanos)| (pair.running, nanos))
            .collect()
    }

    /// Asserts that the ledger and the lengths of a cgroup's waits add up to its `cpu-wait`.
    #[track_caller]
    pub fn assert_adds_up(&self, cgroup: &TestCgroup) {
        let [whole, waits, unknown] =
            ["cpu-wait", "cpu-waits", "unknown-cpu-waits"].map(|event| self.count(event, cgroup));
        let (whole, unknown) = (whole.unwrap(), unknown.unwrap());
        let missed = self.window.health.sum.missed_switches;
        // The ledger and the sum are equal, unless another thread's entry replaced the entry of a
        // waiting thread.
        let parts: u64 = self.parts(cgroup).values().sum();
        let tolerance = if unknown + missed == 0 { 0 } else { whole / 20 };
        assert!(parts.abs_diff(whole) <= tolerance, "{parts} of {whole}");
        // Slices with missed switches are estimated and divided, but their waits are not.
        if missed == 0 {
            let lengths = self.lengths(cgroup);
            assert_eq!(Some(lengths.waits()), waits);
            assert!(lengths.nanos <= whole && (unknown > 0 || lengths.nanos == whole));
            assert_in_their_buckets(&lengths);
        }
    }
}

/// Compares the waits and switches of cgroups with the kernel's account `truth`, to the nanosecond.
/// `cpu-waits` does not count a wait with an unknown part.
#[track_caller]
pub fn assert_is_the_kernels(
    counting: &Waits,
    cgroups: &[&TestCgroup],
    processes: usize,
    truth: Account,
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
    let health = &counting.window.health;
    let (missed, late) = (health.sum.missed_switches, health.sum.late);
    println!(
        "{processes} processes: waits {waits} of {wait} ns, unknown {unknown}, switches \
         {voluntary} and {involuntary}, missed {missed}, seen late {late}, skipped {:?}; the \
         kernel: {truth:?}",
        health.skipped_runs
    );
    for cgroup in cgroups {
        counting.assert_adds_up(cgroup);
    }
    let Account {
        run_delay, runs, ..
    } = truth;
    // The account of a zombie may lack its last switch.
    let after_the_end = processes as u64;
    let pairs = [
        (voluntary, truth.voluntary),
        (involuntary, truth.involuntary),
    ];
    let near = |(counted, truth): &(u64, u64)| counted.abs_diff(*truth) <= after_the_end + missed;
    assert!(pairs.iter().all(near));
    // The kernel does not count the wait of a task that is preempted in another state than running.
    // At most 5% of the waits that the kernel counts may have an unknown part.
    assert!(waits + unknown >= runs && waits + runs / 20 >= runs);
    assert!(waits <= runs + after_the_end);
    match waits.cmp(&runs) {
        cmp::Ordering::Less => assert!(wait <= run_delay),
        cmp::Ordering::Equal => assert_eq!(wait, run_delay),
        cmp::Ordering::Greater => assert!(wait >= run_delay),
    }
}

/// Asserts that waits in these buckets can have this sum.
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
    // Ends of buckets are rounded, with a relative error of up to 10^-7.
    assert!(
        least * 0.999_999 <= nanos && nanos <= most * 1.000_001,
        "{lengths:?}"
    );
}
