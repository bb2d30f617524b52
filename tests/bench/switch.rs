//! What a context switch costs with pmuscope attached and without, compared within one run.
//!
//! Two processes on one CPU hand a byte to and fro: in one cgroup, where the hook returns at once,
//! and in two, where every switch is charged. Runs with nothing, with the same counters open but no
//! programs, and with pmuscope alternate; the table shows the fastest of each, which other load on the
//! machine disturbs least.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

#[path = "../host/support.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use std::os::fd::OwnedFd;

use probe_user::load::Hook;
use support::{Counting, TestCgroup};

/// Alternations.
const REPEAT: usize = 15;

/// Runs of each side in an alternation. Short ones: some then fall between disturbances.
const RUNS: usize = 8;

const ROUNDS: u64 = 4_000;

/// Software events, with their numbers in `linux/perf_event.h`. Counting context switches costs the
/// kernel time at each of them.
const EVENTS: [(&str, u64); 8] = [
    ("task-clock", 1),
    ("page-faults", 2),
    ("context-switches", 3),
    ("cpu-migrations", 4),
    ("cpu-clock", 0),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("dummy", 9),
];

fn main() {
    let Some(_machine) = support::machine() else {
        return;
    };
    println!("ns per switch: nothing, the same counters open, pmuscope; what its programs add");
    println!(
        "{:<16} {:>6} {:<8} {:>9} {:>9} {:>9} {:>7}",
        "hook", "events", "cgroups", "nothing", "counters", "pmuscope", "added"
    );
    for hook in [Hook::SchedSwitch, Hook::CgroupSwitches] {
        for number in [1, 4, 8] {
            for same in [true, false] {
                row(hook, &EVENTS[..number], same);
            }
        }
    }
}

fn row(hook: Hook, events: &[(&str, u64)], same: bool) {
    let (a, b) = (TestCgroup::new("ping"), TestCgroup::new("pong"));
    let to = if same { &a } else { &b };
    let run = || -> u64 {
        let printed = a
            .load(&format!("pingpong 1 {ROUNDS} {}", to.directory.display()))
            .finish();
        printed.trim().parse().unwrap()
    };
    let runs = || (0..RUNS).map(|_| run()).min().unwrap();
    let names: Vec<_> = events.iter().map(|(name, _)| *name).collect();
    let (mut nothing, mut counters, mut pmuscope) = (u64::MAX, u64::MAX, u64::MAX);
    for _ in 0..REPEAT {
        nothing = nothing.min(runs());
        let open: Vec<OwnedFd> = support::online_cpus()
            .into_iter()
            .flat_map(|cpu| {
                let open = move |(_, config): &(_, u64)| support::open_event(cpu, 1, *config);
                events.iter().map(open).collect::<Vec<_>>()
            })
            .collect();
        counters = counters.min(runs());
        drop(open);
        let counting = Counting::with(&names.join(","), |config| config.hook = hook);
        if counting.session.hook() != hook {
            println!("{hook:?}: not complete on this machine, not measured");
            return;
        }
        pmuscope = pmuscope.min(runs());
    }
    println!(
        "{:<16} {:>6} {:<8} {nothing:>9} {counters:>9} {pmuscope:>9} {:>7}",
        format!("{hook:?}"),
        events.len(),
        if same { "one" } else { "two" },
        pmuscope.cast_signed() - counters.cast_signed(),
    );
}
