//! The cost of rotating counter groups: an exchange of the counters on a CPU, and a switch between
//! two containers with all groups enabled (as the kernel multiplexes them) against one enabled
//! group.
//!
//! Software events stand in for hardware events: the kernel opens, stops, starts and passes them to
//! programs in the same way. A read of a hardware counter takes some tens of ns more.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use probe_user::{
    event::{self},
    machine::Pmus,
    plan::Plan,
};
use test_harness::{Counting, TestCgroup, online_cpus};

/// Seven events, as many as a Neoverse V2 core counts at once.
const GROUP: &str =
    "{task-clock,page-faults,context-switches,cpu-migrations,cpu-clock,minor-faults,major-faults}";

const ROUNDS: u64 = 20_000;
const REPEAT: usize = 10;

fn plan(groups: usize, rotated: bool) -> Plan {
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let text = vec![GROUP; groups].join(",");
    // The rotated plan is built by hand, since Plan::new enables all groups at once.
    let one = Plan::new(&event::parse(GROUP, &pmus).unwrap()).unwrap();
    if rotated {
        Plan {
            groups: vec![one.groups[0].clone(); groups],
            rotated: groups,
            ..one
        }
    } else {
        Plan::new(&event::parse(&text, &pmus).unwrap()).unwrap()
    }
}

fn main() {
    let Some(_machine) = test_harness::machine() else {
        return;
    };
    exchange();
    println!();
    switches();
}

/// Measures the time of the calls that exchange groups, while all CPUs are busy.
fn exchange() {
    let cpus = online_cpus();
    let load = TestCgroup::new("busy");
    // Keeps all CPUs busy: rotation leaves idle ones asleep.
    let mut loads: Vec<_> = cpus
        .iter()
        .map(|cpu| load.load(&format!("burn {cpu} 600000")))
        .collect();
    loads.iter_mut().for_each(test_harness::Load::go);
    let mut counting = Counting::with_plan(plan(4, true), |_| {});
    std::thread::sleep(Duration::from_millis(200));
    let before = counting.session.pull().unwrap().health;
    let mut times = Vec::new();
    for _ in 0..500 {
        let start = Instant::now();
        counting.session.rotate().unwrap();
        times.push(start.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    let after = counting.session.pull().unwrap().health;
    let exchanges = after.exchanges - before.exchanges;
    times.sort();
    let cpus = u32::try_from(cpus.len()).unwrap();
    let per_cpu = |at: usize| times[at] / cpus;
    println!("{exchanges} exchanges of 7 counters, {cpus} CPUs; per CPU:");
    println!(
        "  fastest {:?}, median {:?}, 90% {:?}",
        per_cpu(0),
        per_cpu(250),
        per_cpu(450)
    );
    println!(
        "  11 system calls (stop, 2 flushes, 7 map updates, start) and 4 interrupts; 1 map read \
         for all CPUs"
    );
}

/// Measures a switch between two containers, by the number of groups and of enabled groups.
fn switches() {
    println!(
        "{:<34} {:>12} {:>12} {:>10}",
        "groups of 7 events", "without ns", "with ns", "added ns"
    );
    for (name, groups, rotated) in [
        ("1 live", 1, false),
        ("2 live, as under multiplexing", 2, false),
        ("2, 1 live, not rotated meanwhile", 2, true),
        ("10, 1 live, not rotated meanwhile", 10, true),
    ] {
        let (a, b) = (TestCgroup::new("ping"), TestCgroup::new("pong"));
        let run = || -> u64 {
            let printed = a
                .load(&format!("pingpong 1 {ROUNDS} {}", b.directory.display()))
                .finish();
            printed.trim().parse().unwrap()
        };
        let (mut without, mut with) = (u64::MAX, u64::MAX);
        for _ in 0..REPEAT {
            without = without.min(run());
            let counting = Counting::with_plan(plan(groups, rotated), |_| {});
            with = with.min(run());
            drop(counting);
        }
        let added = with.cast_signed() - without.cast_signed();
        println!("{name:<34} {without:>12} {with:>12} {added:>10}");
    }
}
