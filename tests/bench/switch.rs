//! What a context switch costs with pmuscope attached and without, compared within one run.
//!
//! Two processes on one CPU pass a byte to and fro: in one cgroup, where the hook returns at once,
//! and in two, where every switch is charged. Five set-ups take turns: nothing; the same counters
//! without a program; these with a program that does nothing; pmuscope; pmuscope on a kernel that
//! hides switches, where it also watches the way out of the scheduler. A turn gives the fastest of
//! a few short runs, which other load disturbs least. Differences are taken within a round of
//! turns, so that changes of the machine's speed affect them little. The table shows their medians
//! and quartiles over the rounds.
//!
//! The last but one column is the kernel's own time of the program, less that of the program that
//! does nothing: programs run with interrupts off, so other load hardly disturbs it.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod bpf;
#[path = "../host/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
mod support;

use std::os::fd::OwnedFd;

use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_TRACING as TRACING;
use bpf::{Clocked, Empty, busiest_program};
use probe_user::snapshot::Hook;
use support::{Counting, TestCgroup, plan};

/// Rounds of turns.
const REPEAT: usize = 15;

/// Runs in a turn. Short ones: some then fall between disturbances.
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

/// The set-up of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    Nothing,
    Counters,
    Empty,
    Pmuscope,
    Watching,
}

const TURNS: [Turn; 5] = [
    Turn::Nothing,
    Turn::Counters,
    Turn::Empty,
    Turn::Pmuscope,
    Turn::Watching,
];

fn main() {
    let Some(_machine) = support::machine() else {
        return;
    };
    println!(
        "ns per switch: with nothing; with the same counters open; with these and an empty \
         program;\n\
         with pmuscope. Added by pmuscope to the counters; to the empty program; by the kernel's \
         clock\n\
         of both programs; by watching the way out of the scheduler to pmuscope: median \
         (quartiles)."
    );
    println!(
        "{:<15} {:>6} {:<7} {:>8} {:>8} {:>8} {:>8} {:>22} {:>22} {:>22} {:>22}",
        "hook",
        "events",
        "cgroups",
        "nothing",
        "counters",
        "empty",
        "pmuscope",
        "added in all",
        "to the empty program",
        "by the kernel's clock",
        "watching exits too"
    );
    for hook in [Hook::SchedSwitch, Hook::CgroupSwitches] {
        let rows = [1, 4, 8].into_iter().flat_map(|n| [(n, true), (n, false)]);
        for (events, same) in rows {
            let Some(row) = Row::measure(hook, &EVENTS[..events], same) else {
                println!("{hook:?}: not complete on this machine, not measured");
                break;
            };
            row.print(hook, events, same);
        }
    }
}

/// What each round gave.
#[derive(Default)]
struct Row {
    /// ns per switch, by turn.
    switch: [Vec<f64>; TURNS.len()],
    /// ns per run of the program, in turns that have one.
    program: [Vec<f64>; TURNS.len()],
}

impl Row {
    /// None where the hook is not admitted.
    fn measure(hook: Hook, events: &[(&str, u64)], same: bool) -> Option<Self> {
        let (a, b) = (TestCgroup::new("ping"), TestCgroup::new("pong"));
        let to = if same { &a } else { &b };
        let run = || -> f64 {
            let printed = a
                .load(&format!("pingpong 1 {ROUNDS} {}", to.directory.display()))
                .finish();
            printed.trim().parse().unwrap()
        };
        let clocked = || {
            let (nanos, runs) = busiest_program(TRACING).unwrap();
            run();
            let (nanos_after, runs_after) = busiest_program(TRACING).unwrap();
            (nanos_after - nanos) as f64 / (runs_after - runs) as f64
        };
        let names: Vec<_> = events.iter().map(|(name, _)| *name).collect();
        let mut row = Self::default();
        for round in 0..REPEAT {
            // Each round begins with another set-up, so that none always follows the same one.
            for at in 0..TURNS.len() {
                let turn = TURNS[(round + at) % TURNS.len()];
                let _open: Option<Vec<OwnedFd>> =
                    matches!(turn, Turn::Counters | Turn::Empty).then(|| open_all(events));
                let _empty = (turn == Turn::Empty).then(|| Empty::attach().unwrap());
                let counting = matches!(turn, Turn::Pmuscope | Turn::Watching).then(|| {
                    let mut counting =
                        Counting::plain(plan(&names.join(",")), |config| config.hook = hook);
                    if turn == Turn::Watching {
                        counting.session.watch_exits().unwrap();
                    }
                    counting
                });
                if counting
                    .as_ref()
                    .is_some_and(|it| it.session.hook() != hook)
                {
                    return None;
                }
                row.switch[turn as usize].push(fastest(run));
                // Of one program a turn.
                if matches!(turn, Turn::Empty | Turn::Pmuscope) {
                    let _clocked = Clocked::on().unwrap();
                    row.program[turn as usize].push(fastest(clocked));
                }
            }
        }
        Some(row)
    }

    fn print(&self, hook: Hook, events: usize, same: bool) {
        let of = |turn: Turn| quartiles(self.switch[turn as usize].clone())[1];
        println!(
            "{:<15} {events:>6} {:<7} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>22} {:>22} {:>22} {:>22}",
            format!("{hook:?}"),
            if same { "one" } else { "two" },
            of(Turn::Nothing),
            of(Turn::Counters),
            of(Turn::Empty),
            of(Turn::Pmuscope),
            added(&self.switch, (Turn::Counters, Turn::Pmuscope)),
            added(&self.switch, (Turn::Empty, Turn::Pmuscope)),
            added(&self.program, (Turn::Empty, Turn::Pmuscope)),
            added(&self.switch, (Turn::Pmuscope, Turn::Watching)),
        );
    }
}

/// What the second turn has more than the first one of the same round.
fn added(times: &[Vec<f64>; TURNS.len()], (less, more): (Turn, Turn)) -> String {
    let pairs = times[more as usize].iter().zip(&times[less as usize]);
    let [low, middle, high] = quartiles(pairs.map(|(with, without)| with - without).collect());
    format!("{middle:+.0} ({low:+.0} to {high:+.0})")
}

fn fastest(run: impl Fn() -> f64) -> f64 {
    (0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min)
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// The events, for all tasks on every CPU.
fn open_all(events: &[(&str, u64)]) -> Vec<OwnedFd> {
    support::online_cpus()
        .into_iter()
        .flat_map(|cpu| {
            events
                .iter()
                .map(move |(_, config)| support::open_event(cpu, 1, *config))
        })
        .collect()
}
