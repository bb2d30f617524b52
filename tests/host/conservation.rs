//! Conservation of counts: on every CPU the sum over the rows grows by as much as the counter does.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use probe_common::{CgroupId, UsageKey, UsageRow};
use probe_user::{machine::Machine, session::Config, window::Window};
use test_harness::{Counting, Load, TestCgroup, machine, online_cpus, open_event, plan};

/// Type, config and name of the events, with the numbers of `linux/perf_event.h`.
const EVENTS: [(u32, u64, &str); 3] = [
    (1, 1, "task-clock"),
    (1, 2, "page-faults"),
    (1, 3, "context-switches"),
];

/// Least number of pulls. Each pull narrows the brackets of `assert_conserves`.
const PULLS: u32 = 25;

/// Counters of one CPU that the test opens directly.
fn reference(cpu: u32) -> Vec<OwnedFd> {
    EVENTS
        .iter()
        .map(|&(type_, config, _)| open_event(cpu, type_, config))
        .collect()
}

fn read(event: &OwnedFd) -> i128 {
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::read(event, &mut bytes).unwrap(), 8);
    u64::from_ne_bytes(bytes).into()
}

/// Reads of a counter before and after a pull bracket the sum of its rows plus a constant, the
/// counter's value at the start of the session. One constant must fit the brackets of all pulls.
fn assert_conserves(cgroups: usize) {
    let names: Vec<&str> = EVENTS.iter().map(|(_, _, name)| *name).collect();
    let cpus = online_cpus();
    let references: Vec<_> = cpus.iter().map(|cpu| reference(*cpu)).collect();
    let groups: Vec<_> = (0..cgroups)
        .map(|n| TestCgroup::new(&format!("c{n}")))
        .collect();
    // An idle CPU is not flushed and adds its open slice later, so all CPUs are kept busy from the
    // start.
    let busy = TestCgroup::new("busy");
    let mut loads: Vec<Load> = Vec::new();
    for (n, cgroup) in groups.iter().enumerate() {
        let (cpu, pause) = (cpus[n % cpus.len()], 200 * cgroups);
        loads.push(cgroup.load(&format!("burst {cpu} 300 {pause} 120000")));
    }
    let burns = cpus
        .iter()
        .map(|cpu| busy.load(&format!("burn {cpu} 120000")));
    let mut burns: Vec<Load> = burns.collect();
    burns.iter_mut().for_each(Load::go);
    let mut counting = Counting::start(&names.join(","));
    loads.iter_mut().for_each(Load::go);

    let mut brackets: BTreeMap<(usize, usize), (i128, i128)> = BTreeMap::new();
    let mut gained = vec![[0_i128; EVENTS.len()]; cpus.len()];
    let mut last = counting.first.clone();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut pulls = 0;
    loop {
        let read_all = || {
            references
                .iter()
                .map(|events| events.iter().map(read).collect())
        };
        let before: Vec<Vec<i128>> = read_all().collect();
        let snapshot = counting.session.pull().unwrap();
        let after: Vec<Vec<i128>> = read_all().collect();
        for (at_cpu, cpu) in cpus.iter().enumerate() {
            for (key, row) in snapshot
                .rows
                .iter()
                .filter(|(key, _)| u32::from(key.cpu) == *cpu)
            {
                // Rows of removed cgroups are freed after their last values were read.
                let previous = last.rows.get(key).copied().unwrap_or(UsageRow::ZERO);
                for (at, gained) in gained[at_cpu].iter_mut().enumerate() {
                    *gained += i128::from(row.counts[at]) - i128::from(previous.counts[at]);
                }
            }
            for (at, gained) in gained[at_cpu].iter().enumerate() {
                let bracket = brackets
                    .entry((at_cpu, at))
                    .or_insert((i128::MIN, i128::MAX));
                bracket.0 = bracket.0.max(before[at_cpu][at] - gained);
                bracket.1 = bracket.1.min(after[at_cpu][at] - gained);
            }
        }
        last = snapshot;
        pulls += 1;
        let ran: HashSet<_> = last.rows.keys().map(|key| key.cgroup).collect();
        if pulls >= PULLS && groups.iter().all(|cgroup| ran.contains(&cgroup.id)) {
            break;
        }
        assert!(Instant::now() < deadline, "not every cgroup ran");
    }
    let window = counting.window();
    for ((cpu, event), (low, high)) in brackets {
        println!(
            "CPU {cpu}, {}: constant between {low} and {high}",
            EVENTS[event].2
        );
        assert!(
            low <= high,
            "CPU {cpu}, {}: rows lost or made up {} counts",
            EVENTS[event].2,
            low - high
        );
    }
    assert_eq!(window.health.sum.rebased, 0);
    assert_eq!(window.health.sum.read_errors, 0);
    assert_eq!(window.health.sum.overflowed, 0);
}

#[test]
fn with_one_cgroup_counts_are_conserved() {
    if let Some(_machine) = machine() {
        assert_conserves(1);
    }
}

#[test]
fn with_ten_cgroups_counts_are_conserved() {
    if let Some(_machine) = machine() {
        assert_conserves(10);
    }
}

#[test]
fn with_a_thousand_cgroups_counts_are_conserved() {
    if let Some(_machine) = machine() {
        assert_conserves(1000);
    }
}

#[test]
fn with_a_map_that_is_too_small_counts_are_in_the_overflow_row() {
    let Some(_machine) = machine() else { return };
    let began = Instant::now();
    // The idle rows, one on each CPU, fill the map.
    let idle = u32::try_from(online_cpus().len()).unwrap();
    let mut counting = Counting::with("task-clock", |config| config.max_rows = Some(idle));
    let a = TestCgroup::new("late");
    a.load("burn 0 400").finish();
    a.load("burst 0 20 20 1000").finish();
    let window = counting.window();
    let full = window.health.sum.full;
    println!("{} charges without a row", window.health.sum.overflowed);
    assert!(window.health.sum.overflowed > 0 && full > 0);
    // A CPU that found the map full tries again after 10 ms, and not at each charge.
    let tries = began.elapsed().as_millis() / 10 + 1;
    assert!(
        u128::from(full) <= tries * online_cpus().len() as u128,
        "{full}"
    );
    let all: u64 = window
        .usage
        .values()
        .flatten()
        .flatten()
        .map(|row| row.counts[0])
        .sum();
    counting.assert_whole_time(&window, all, 1.0);
    let overflow = counting.count(&window, "task-clock", probe_user::snapshot::OVERFLOW);
    assert!(overflow.is_some_and(|nanos| nanos > 0), "{overflow:?}");
}

/// A map size: `rows` plus twice the rows that other cgroups may need on all CPUs. The rows of
/// other cgroups then fill less than half of the map.
fn rows_beside_others(rows: usize) -> usize {
    let machine = Machine::this();
    let hierarchy = machine.hierarchy().unwrap();
    let has_processes = |path: &str| {
        let processes = hierarchy.directory(path).unwrap().join("cgroup.procs");
        fs::read(processes).map_or(true, |processes| !processes.is_empty())
    };
    // A cgroup without processes needs no row.
    let cgroups = hierarchy.walk().unwrap().into_iter();
    let others = cgroups.filter(|(_, path)| has_processes(path)).count();
    2 * online_cpus().len() * others + rows
}

/// The map fills up long before the next pull, so rows are evicted between pulls.
#[test]
fn with_rows_evicted_between_pulls_counts_are_conserved() {
    let Some(_machine) = machine() else { return };
    let rows = rows_beside_others(1_000);
    let config = |config: &mut Config| config.max_rows = Some(u32::try_from(rows).unwrap());
    let mut counting = Counting::with("task-clock", config);
    let parent = TestCgroup::new("hops");
    let count = 2 * rows;
    let _children: Vec<_> = (0..count).map(|at| parent.child(&at.to_string())).collect();
    let mut load = parent.load(&format!("hop {} {count}", parent.directory.display()));
    load.go();
    while !load.has_ended() {
        counting.session.upkeep().unwrap();
        std::thread::yield_now();
    }
    let now = counting.session.pull().unwrap();
    let window = Window::between(&counting.first, &now, counting.session.plan());
    println!("{:?}", window.health);
    assert!(window.health.sum.full > 0, "the map was never full");
    assert!(window.health.evicted_rows > Some(rows as u64 / 2));
    let usage = window.usage.values().flatten().flatten();
    let all: u64 = usage.map(|row| row.counts[0]).sum();
    counting.assert_whole_time(&window, all, 1.0);
    counting.first = now;
    let late = TestCgroup::new("late");
    late.load("burn 0 50").finish();
    let window = counting.window();
    let counted = counting.count(&window, "task-clock", late.id).unwrap();
    counting.assert_cpu_time(&window, "late", counted, late.cpu_time());
}

/// A process that visits many cgroups does not use up the rows for later cgroups. Its idle rows are
/// freed, and their counts are kept.
#[test]
fn with_more_cgroups_than_rows_counts_are_conserved() {
    const CGROUPS: usize = 400;
    let Some(_machine) = machine() else { return };
    let rows = rows_beside_others(3 * CGROUPS);
    // Enough turns to visit more cgroups than the map has rows.
    let turns = rows / CGROUPS + 2;
    let config = |config: &mut Config| config.max_rows = Some(u32::try_from(rows).unwrap());
    let mut counting = Counting::with("task-clock", config);
    let parent = TestCgroup::new("hops");
    // Both cgroups have a waiting process. One of them has the name of a container.
    let container = parent.child(&format!("docker-{}.scope", "0123456789abcdef".repeat(4)));
    let waiting = parent.child("waiting");
    let mut waits = [&container, &waiting].map(|cgroup| {
        cgroup.load("burn 0 5").finish();
        cgroup.load("burn 0 30")
    });
    let mut children = Vec::new();
    let mut gained: HashMap<CgroupId, u64> = HashMap::new();
    let mut last = counting.first.clone();
    let mut step = |counting: &mut Counting| {
        let now = counting.session.pull().unwrap();
        let window = Window::between(&last, &now, counting.session.plan());
        last = now;
        for owner in window.usage.keys() {
            let count = counting.count(&window, "task-clock", owner.cgroup);
            *gained.entry(owner.cgroup).or_default() += count.unwrap_or_default();
        }
        println!("{} rows of {rows}; {:?}", last.rows.len(), window.health);
        assert_eq!(window.health.sum.overflowed, 0);
        let rows = |cgroup: &TestCgroup| last.rows.keys().any(|key| key.cgroup == cgroup.id);
        [&container, &waiting].map(rows)
    };
    let mut have_rows = Vec::new();
    for turn in 0..turns {
        let group = parent.child(&turn.to_string());
        let directory = group.directory.display().to_string();
        children.extend((0..CGROUPS).map(|at| group.child(&at.to_string())));
        children.push(group);
        let group = children.last().unwrap();
        group.load(&format!("hop {directory} {CGROUPS}")).finish();
        have_rows.push(step(&mut counting));
    }
    assert!(
        have_rows.iter().all(|[container, _]| *container),
        "{have_rows:?}"
    );
    assert!(!have_rows[turns - 1][1], "an idle row stays");
    waits.iter_mut().for_each(Load::go);
    waits.into_iter().for_each(|load| drop(load.finish()));
    assert_eq!(step(&mut counting), [true; 2]);
    let window = counting.window();
    for cgroup in [&container, &waiting] {
        let charged = cgroup.cpu_time();
        counting.assert_cpu_time(&window, &cgroup.path, gained[&cgroup.id], charged);
    }
    let hopped = children.iter().filter_map(|child| gained.get(&child.id));
    let hopped: Vec<u64> = hopped.copied().collect();
    assert!(hopped.len() > turns * CGROUPS, "{} had a row", hopped.len());
    let sum = gained.values().sum();
    let whole = Window::between(&counting.first, &last, counting.session.plan());
    counting.assert_whole_time(&whole, sum, 1.0);
}

/// Runs `loads` on every CPU with repeated flushes and rotations, and asserts that no row
/// decreases.
fn assert_no_decrease(mut counting: Counting, loads: &[&str]) {
    let (a, b) = (TestCgroup::new("bursts"), TestCgroup::new("woken"));
    let commands = loads
        .iter()
        .flat_map(|load| online_cpus().into_iter().map(move |cpu| (load, cpu)));
    let mut loads: Vec<_> = commands
        .map(|(load, cpu)| {
            let load = load.replace("CPU", &cpu.to_string());
            a.load(&load.replace("CGROUP", b.directory.to_str().unwrap()))
        })
        .collect();
    loads.iter_mut().for_each(Load::go);
    let mut last = counting.session.pull().unwrap();
    let mut decreases = Vec::new();
    for turn in 0..500 {
        if turn % 10 == 0 && counting.session.rotates() {
            counting.session.rotate().unwrap();
        }
        let now = counting.session.pull().unwrap();
        // Rows of other tests' cgroups are freed when these are removed.
        let ours =
            |key: &UsageKey| [a.id, b.id, CgroupId::IDLE, CgroupId::ROOT].contains(&key.cgroup);
        for (key, row) in last.rows.iter().filter(|(key, _)| ours(key)) {
            let later = now
                .rows
                .get(key)
                .unwrap_or_else(|| panic!("{key:?} vanished"));
            let fields = |row: &UsageRow| [&row.counts[..], &[row.enabled, row.running]].concat();
            let (later, before) = (fields(later), fields(row));
            if later
                .iter()
                .zip(&before)
                .any(|(later, before)| later < before)
            {
                decreases.push(format!("{key:?} went from {before:?} to {later:?}"));
            }
        }
        last = now;
    }
    assert!(
        decreases.is_empty(),
        "{} times: {}",
        decreases.len(),
        decreases[0]
    );
}

#[test]
fn rows_never_decrease() {
    let Some(_machine) = machine() else { return };
    let counting = Counting::start("task-clock,context-switches");
    assert_no_decrease(counting, &["burst CPU 50 50 60000"]);
}

/// The enabled time of a rotated group is measured with the timestamp of the switch, which may be
/// earlier than the timestamp of a preceding flush.
#[test]
fn rows_of_rotated_groups_never_decrease() {
    let Some(_machine) = machine() else { return };
    let mut plan = plan("task-clock,{cpu-clock,context-switches},{page-faults,migrations}");
    plan.rotated = 2;
    let counting = Counting::with_plan(plan, |_| {});
    assert_no_decrease(
        counting,
        &["wakes CPU 60000 CGROUP", "burst CPU 50 50 60000"],
    );
}

/// The programs created every row of the map except the idle rows, and create one for a new owner.
#[test]
fn created_rows_are_counted() {
    let Some(_machine) = machine() else { return };
    let mut counting = Counting::start("task-clock");
    let before = counting.session.pull().unwrap().health;
    TestCgroup::new("made").load("burn 0 20").finish();
    let after = counting.session.pull().unwrap().health;
    assert!(after.sum.rows_made > before.sum.rows_made);
    let idle = online_cpus().len() as u64;
    assert!(after.sum.rows_made + idle >= after.rows as u64);
}
