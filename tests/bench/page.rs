//! The size of the page of an hour of fifty containers, and the time until headless Chromium has
//! drawn it.
//!
//! Each run starts a new browser, so that its caches are empty. The page itself measures the time,
//! from the start of the navigation until all plots are drawn.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::{fs, process::Command, time::Instant};

use probe_user::report;
use test_harness::{
    browser::Browser,
    hour::{VALUES, hour},
};

const RUNS: usize = 7;

/// Width of the window, in pixels.
const WIDTH: u32 = 1280;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hour.html");
    let run = hour();
    let begin = Instant::now();
    let mut page = Vec::new();
    report::page(&mut page, &run).unwrap();
    let took = begin.elapsed().as_secs_f64();
    fs::write(&path, &page).unwrap();
    println!(
        "{VALUES} values of noise (50 containers, 8 metrics, 3,600 windows): {:.1} MB, made in \
         {took:.1} s",
        f64::from(u32::try_from(page.len()).unwrap()) / 1e6
    );
    let version = Command::new("chromium").arg("--version").output();
    let version = version.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{}; load average {load}", version.unwrap_or_default());
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let Some(mut browser) = Browser::open(&path, WIDTH) else {
            return;
        };
        let ready = browser.evaluate("Number(document.body.dataset.ready)");
        runs.push((ready.as_f64().unwrap(), browser.busy()));
    }
    for (what, pick) in [
        ("drawn after", (|run| run.0) as fn(&(f64, f64)) -> f64),
        ("CPU time of the page's thread", |run| run.1),
    ] {
        let mut all: Vec<f64> = runs.iter().map(pick).collect();
        all.sort_by(f64::total_cmp);
        println!(
            "{what}: median {:.0} ms, {:.0} to {:.0} in {RUNS} runs",
            all[RUNS / 2],
            all[0],
            all[RUNS - 1]
        );
    }
}
