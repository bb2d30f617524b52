//! CPU time to divide a socket's traffic of a window among owners, with calibrations of one to four
//! events: the shortest of three runs.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::hint::black_box;

use probe_user::calibration::{CalibratedTraffic, EventCounts, OwnerCounts, Pattern};
use test_harness::thread_time;
use test_support::Random;

/// As many as a calibration of one socket has: nine kernels, on one CPU and on all.
const PATTERNS: usize = 18;
/// As many as a large node has containers.
const OWNERS: usize = 250;

fn main() {
    println!("{:>7} {:>9} {:>9}", "events", "owners", "time ms");
    for events in 1..=4 {
        let random = &mut Random(events as u64);
        let calibration = calibration(events, random);
        let owners: Vec<_> = (0..OWNERS).map(|_| owner(&calibration, random)).collect();
        let moved: f64 = owners.iter().map(|(moved, _)| moved).sum();
        let counts: Vec<_> = owners.into_iter().map(|(_, counts)| Some(counts)).collect();
        let divide = || {
            let begin = thread_time();
            let parts = black_box(calibration.estimate(&counts, moved, 1e-4 * moved)).unwrap();
            assert_eq!(parts.len(), OWNERS);
            thread_time().saturating_sub(begin)
        };
        let fastest = (0..3).map(|_| divide()).min().unwrap();
        println!(
            "{events:>7} {OWNERS:>9} {:>9.2}",
            fastest.as_secs_f64() * 1e3
        );
    }
}

/// Patterns whose events count between 20% and 100% of the lines that the pattern moves.
fn calibration(events: usize, random: &mut Random) -> CalibratedTraffic {
    let mut pattern = |at| Pattern {
        name: format!("pattern {at}"),
        counts: (0..events)
            .map(|_| between(random, 0.2, 1.0) / 64.0)
            .collect(),
    };
    CalibratedTraffic {
        metric: "reads".to_owned(),
        events: (0..events).map(|at| format!("event {at}")).collect(),
        spreads: vec![0.01; events],
        patterns: (0..PATTERNS).map(&mut pattern).collect(),
        remote: Vec::new(),
    }
}

/// An owner's bytes, of all patterns, and its counts.
fn owner(calibration: &CalibratedTraffic, random: &mut Random) -> (f64, OwnerCounts) {
    let bytes: Vec<f64> = (0..PATTERNS).map(|_| between(random, 1e6, 1e9)).collect();
    let count = |event: usize| -> f64 {
        let parts = calibration.patterns.iter().zip(&bytes);
        parts
            .map(|(pattern, bytes)| pattern.counts[event] * bytes)
            .sum()
    };
    let events = calibration.events.len();
    let counts = OwnerCounts {
        local: EventCounts {
            counts: (0..events).map(count).collect(),
            variances: vec![0.0; events],
        },
        remote: None,
    };
    (bytes.iter().sum(), counts)
}

fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + random.uniform() * (high - low)
}
