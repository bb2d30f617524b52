//! The cost of a context switch with pmuscope attached and without, compared within one run.
//!
//! Two processes on one CPU exchange a byte: in one cgroup, where the hook returns at once, and in
//! two, where every switch is charged. Seven set-ups alternate: nothing; the same counters without
//! a program; these counters with an empty program; pmuscope; pmuscope on a kernel that hides
//! switches, where it also watches the scheduler's exit; pmuscope that also counts waits, by the
//! waiting and the running owner; and a tracer that writes a record of each switch for a thread to
//! read. Each measurement is the fastest of a few short runs, which other load disturbs least.
//! Differences are within a round of all set-ups, so that changes of the machine's speed affect
//! them little. The table shows their medians and quartiles over the rounds.
//!
//! The columns "by clock" have the kernel's run time of the program: minus that of the empty
//! program, and with waits minus without. Programs run with interrupts off, so other load hardly
//! disturbs these times.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::os::fd::OwnedFd;

use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_TRACING as TRACING;
use probe_user::snapshot::Hook;
use test_harness::{
    Counting, TestCgroup,
    bpf::{EmptyProgram, RunTimeStats, SwitchRecorder, time_per_run},
    plan,
};

/// Rounds over all set-ups.
const REPEAT: usize = 15;

/// Runs in a measurement. They are short, so that some are undisturbed.
const RUNS: usize = 8;

const ROUNDS: u64 = 4_000;

/// Software events, with their numbers in `linux/perf_event.h`. Counting context switches costs
/// time at each switch.
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

/// The events of `-M group:wait`.
const WAITS: &str = ",cpu-wait,uninterruptible-sleep,stolen-time,voluntary-switches,\
                     involuntary-switches";

/// What is attached during a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SetUp {
    Nothing,
    Counters,
    Empty,
    Pmuscope,
    Watching,
    Waits,
    Records,
}

const SET_UPS: [SetUp; 7] = [
    SetUp::Nothing,
    SetUp::Counters,
    SetUp::Empty,
    SetUp::Pmuscope,
    SetUp::Watching,
    SetUp::Waits,
    SetUp::Records,
];

fn main() {
    let Some(_machine) = test_harness::machine() else {
        return;
    };
    println!(
        "ns per switch: with nothing; with the same counters open; with these and an empty \
         program;\n\
         with pmuscope. Added by pmuscope to the counters; to the empty program; by the kernel's \
         clock\n\
         of both programs; by watching the way out of the scheduler to pmuscope; by waits to the\n\
         program of pmuscope, by the kernel's clock; by waits to pmuscope; by a record of each\n\
         switch to nothing: median (quartiles)."
    );
    println!(
        "{:<15} {:>6} {:<7} {:>8} {:>8} {:>8} {:>8} {:>22} {:>22} {:>22} {:>22} {:>22} {:>22} \
         {:>22}",
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
        "watching exits too",
        "waits too, by clock",
        "waits too",
        "a record"
    );
    for hook in [Hook::SchedSwitch, Hook::CgroupSwitches] {
        let rows = [1, 4, 8].into_iter().flat_map(|n| [(n, true), (n, false)]);
        for (events, one_cgroup) in rows {
            let Some(row) = Row::measure(hook, &EVENTS[..events], one_cgroup) else {
                println!("{hook:?}: not complete on this machine, not measured");
                break;
            };
            row.print(hook, events, one_cgroup);
        }
    }
}

/// Results of each round.
#[derive(Default)]
struct Row {
    /// ns per switch, by set-up.
    switch: [Vec<f64>; SET_UPS.len()],
    /// ns per run of the program, in set-ups with one.
    program: [Vec<f64>; SET_UPS.len()],
}

impl Row {
    /// None if the session cannot use the hook.
    fn measure(hook: Hook, events: &[(&str, u64)], one_cgroup: bool) -> Option<Self> {
        let (a, b) = (TestCgroup::new("ping"), TestCgroup::new("pong"));
        let to = if one_cgroup { &a } else { &b };
        let run = || -> f64 {
            let printed = a
                .load(&format!("pingpong 1 {ROUNDS} {}", to.directory.display()))
                .finish();
            printed.trim().parse().unwrap()
        };
        let program_time = || {
            let work = || {
                run();
            };
            time_per_run(TRACING, work).unwrap()
        };
        let names: Vec<_> = events.iter().map(|(name, _)| *name).collect();
        let mut row = Self::default();
        for round in 0..REPEAT {
            // Each round begins with a different set-up, so that none always follows the same one.
            for at in 0..SET_UPS.len() {
                let set_up = SET_UPS[(round + at) % SET_UPS.len()];
                let _open: Option<Vec<OwnedFd>> =
                    matches!(set_up, SetUp::Counters | SetUp::Empty).then(|| open_all(events));
                let _records =
                    (set_up == SetUp::Records).then(|| SwitchRecorder::attach().unwrap());
                let _empty = (set_up == SetUp::Empty).then(|| EmptyProgram::attach().unwrap());
                let counting = matches!(set_up, SetUp::Pmuscope | SetUp::Watching | SetUp::Waits)
                    .then(|| {
                        // The hook at cgroup switches does not see the incoming task.
                        let has_waits = set_up == SetUp::Waits && hook == Hook::SchedSwitch;
                        let waits = if has_waits { WAITS } else { "" };
                        let events = plan(&format!("{}{waits}", names.join(",")));
                        let mut counting = Counting::plain(events, |config| {
                            config.hook = hook;
                        });
                        if set_up == SetUp::Watching {
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
                row.switch[set_up as usize].push(fastest(run));
                // These set-ups run exactly one program.
                if matches!(set_up, SetUp::Empty | SetUp::Pmuscope | SetUp::Waits) {
                    let _stats = RunTimeStats::enable().unwrap();
                    row.program[set_up as usize].push(fastest(program_time));
                }
            }
        }
        Some(row)
    }

    fn print(&self, hook: Hook, events: usize, one_cgroup: bool) {
        let median = |set_up: SetUp| quartiles(self.switch[set_up as usize].clone())[1];
        println!(
            "{:<15} {events:>6} {:<7} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>22} {:>22} {:>22} {:>22} \
             {:>22} {:>22} {:>22}",
            format!("{hook:?}"),
            if one_cgroup { "one" } else { "two" },
            median(SetUp::Nothing),
            median(SetUp::Counters),
            median(SetUp::Empty),
            median(SetUp::Pmuscope),
            added(&self.switch, (SetUp::Counters, SetUp::Pmuscope)),
            added(&self.switch, (SetUp::Empty, SetUp::Pmuscope)),
            added(&self.program, (SetUp::Empty, SetUp::Pmuscope)),
            added(&self.switch, (SetUp::Pmuscope, SetUp::Watching)),
            added(&self.program, (SetUp::Pmuscope, SetUp::Waits)),
            added(&self.switch, (SetUp::Pmuscope, SetUp::Waits)),
            added(&self.switch, (SetUp::Nothing, SetUp::Records)),
        );
    }
}

/// Time that the set-up `second` takes beyond `first` in the same round.
fn added(times: &[Vec<f64>; SET_UPS.len()], (first, second): (SetUp, SetUp)) -> String {
    let pairs = times[second as usize].iter().zip(&times[first as usize]);
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

/// Opens the events for all tasks on every CPU.
fn open_all(events: &[(&str, u64)]) -> Vec<OwnedFd> {
    test_harness::online_cpus()
        .into_iter()
        .flat_map(|cpu| {
            events
                .iter()
                .map(move |(_, config)| test_harness::open_event(cpu, 1, *config))
        })
        .collect()
}
