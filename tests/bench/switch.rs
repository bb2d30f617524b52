//! What a context switch costs with pmuscope attached and without, compared within one run.
//!
//! Two processes on one CPU hand a byte to and fro: in one cgroup, where the hook returns at once,
//! and in two, where every switch is charged. Rounds with and without alternate; the table shows the
//! fastest of each, which other load on the machine disturbs least.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

#[path = "../host/support.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use probe_user::load::Hook;
use support::{Counting, TestCgroup};

/// Alternations.
const REPEAT: usize = 15;

const ROUNDS: u64 = 20_000;

/// Events of a row of the table: their number and names.
const EVENTS: [(&str, &str); 3] = [
    ("1", "task-clock"),
    (
        "4",
        "task-clock,page-faults,context-switches,cpu-migrations",
    ),
    (
        "8",
        "task-clock,page-faults,context-switches,cpu-migrations,cpu-clock,minor-faults,major-faults,dummy",
    ),
];

fn main() {
    let Some(_machine) = support::machine() else {
        return;
    };
    println!(
        "{:<16} {:>6} {:<12} {:>12} {:>12} {:>10} {:>7}",
        "hook", "events", "cgroups", "without ns", "with ns", "added ns", "ratio"
    );
    for hook in [Hook::SchedSwitch, Hook::CgroupSwitches] {
        for (number, events) in EVENTS {
            for same in [true, false] {
                row(hook, number, events, same);
            }
        }
    }
}

fn row(hook: Hook, number: &str, events: &str, same: bool) {
    let (a, b) = (TestCgroup::new("ping"), TestCgroup::new("pong"));
    let to = if same { &a } else { &b };
    let run = || -> u64 {
        let printed = a
            .load(&format!("pingpong 1 {ROUNDS} {}", to.directory.display()))
            .finish();
        printed.trim().parse().unwrap()
    };
    let mut without = Vec::new();
    let mut with = Vec::new();
    for _ in 0..REPEAT {
        without.push(run());
        let counting = Counting::with(events, |config| config.hook = hook);
        if counting.session.hook() != hook {
            println!("{hook:?}: not complete on this machine, not measured");
            return;
        }
        with.push(run());
    }
    let (without, with) = (fastest(&without), fastest(&with));
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a switch")]
    let ratio = with as f64 / without as f64;
    let cgroups = if same { "one" } else { "two" };
    let added = with.cast_signed() - without.cast_signed();
    println!(
        "{:<16} {number:>6} {cgroups:<12} {without:>12} {with:>12} {added:>10} {ratio:>7.3}",
        format!("{hook:?}")
    );
}

fn fastest(values: &[u64]) -> u64 {
    values.iter().copied().min().unwrap()
}
