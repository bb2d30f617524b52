//! The cost of a marker call, unobserved and observed by `mem record --regions`: CPU time of the
//! calling thread, the fastest of a few runs.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]
#![allow(
    clippy::cast_precision_loss,
    reason = "times of a benchmark are below 2^53 ns"
)]

use std::{fs::File, hint::black_box};

use probe_common::tags;
use probe_user::{
    machine::Machine,
    session::markers::{MarkerScope, Markers, ScanResult},
};
use rustix::time::{ClockId, clock_gettime};

const RUNS: usize = 7;

fn main() {
    let memory = [0_u8; 64];
    let phase = || {
        tags::start(black_box(c"triad"));
        tags::stop();
    };
    let tag = || tags::tag_addr(black_box(c"array"), memory.as_ptr_range());
    let alone = [fastest(10_000_000, phase) / 2.0, fastest(10_000_000, tag)];

    let own = MarkerScope::Processes(vec![std::process::id()]);
    let mut markers = Markers::open(&Machine::this(), &own).unwrap();
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(
        markers.observe(&program).unwrap(),
        Some(ScanResult::Markers)
    );
    let mut seen = 0;
    let mut observed = |calls: u32, call: &dyn Fn()| {
        let runs = (0..RUNS).map(|_| {
            let time = ns(calls, call);
            // Drains the ring before it is full.
            markers.drain(|_| seen += 1).unwrap();
            time
        });
        runs.fold(f64::INFINITY, f64::min)
    };
    let observed = [observed(10_000, &phase) / 2.0, observed(10_000, &tag)];
    assert_eq!(markers.counts().unwrap().lost, 0);
    println!("ns per call, the fastest of {RUNS} runs; {seen} calls were observed\n");
    println!("{:<24}{:>12}{:>12}", "", "alone", "observed");
    for (at, what) in ["start(name), stop()", "tag_addr(name, s, e)"]
        .iter()
        .enumerate()
    {
        println!("{what:<24}{:>12.2}{:>12.0}", alone[at], observed[at]);
    }
}

fn fastest(calls: u32, call: impl Fn()) -> f64 {
    let runs = (0..RUNS).map(|_| ns(calls, &call));
    runs.fold(f64::INFINITY, f64::min)
}

fn ns(calls: u32, call: &(impl Fn() + ?Sized)) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let before = now();
    for _ in 0..calls {
        call();
    }
    (now() - before) / f64::from(calls)
}
