//! CPU time of `pmuscope derive` for the output of `perf stat -x, -I`, from the text to the table
//! and to JSON: the shortest of three runs.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::{fmt::Write as _, hint::black_box, io, time::Duration};

use probe_user::{
    catalogue::{Catalogue, Chip, Hardware},
    import,
};
use test_harness::thread_time;

const EVENTS: [&str; 8] = [
    "cycles",
    "instructions",
    "branches",
    "branch-misses",
    "cache-references",
    "cache-misses",
    "context-switches",
    "page-faults",
];

fn main() {
    let catalogue = Catalogue::builtin().unwrap();
    let machine = Hardware::of_chip(Chip::named("other").unwrap());
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9}",
        "lines", "read s", "derive s", "table s", "JSON s"
    );
    for intervals in [12_500_u32, 125_000] {
        let mut text = String::new();
        for interval in 1..=intervals {
            for event in EVENTS {
                let line = format!("{interval:>6}.000000000,123456,,{event},1000000000,100.00,,");
                writeln!(text, "{line}").unwrap();
            }
        }
        let (read, readings) = fastest(|| import::read(&text).unwrap());
        let (values, derived) =
            fastest(|| import::derive(&catalogue, &machine, &readings).unwrap());
        let (table, ()) = fastest(|| import::table(&mut io::sink(), &derived).unwrap());
        let (json, ()) = fastest(|| import::json(&mut io::sink(), &derived).unwrap());
        println!(
            "{:>9} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
            readings.len(),
            read.as_secs_f64(),
            values.as_secs_f64(),
            table.as_secs_f64(),
            json.as_secs_f64()
        );
    }
}

fn fastest<T>(run: impl Fn() -> T) -> (Duration, T) {
    let timed = || {
        let begin = thread_time();
        let result = black_box(run());
        (thread_time().saturating_sub(begin), result)
    };
    let (first, result) = timed();
    let others = (0..2).map(|_| timed().0);
    (others.fold(first, Duration::min), result)
}
