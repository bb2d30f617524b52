//! Addresses of samples, compared with those of perf.

use std::{collections::BTreeMap, process::Command};

use test_harness::{TestCgroup, machine};

use super::{cgroup_samples, config, counting};
use crate::peers::has;

/// Accepted difference between two shares in standard errors. Chance exceeds it in 7 of a million
/// cases, and the test compares five shares.
const MAX_STANDARD_ERRORS: f64 = 4.5;

/// Nanoseconds between two samples, of pmuscope and of perf. The periods have no common multiple
/// within the load's time: of two clocks in step, one may always sample the code just after the
/// interrupt of the other clock.
const PERIOD: &str = "200003";
const PERIOD_OF_PERF: &str = "229981";

/// Number of samples by address.
type Addresses = BTreeMap<u64, u64>;

#[test]
fn perf_record_has_the_same_addresses() {
    let Some(_machine) = machine().filter(|_| has("perf")) else {
        return;
    };
    let Sampled {
        ours,
        unplaced,
        perf,
    } = sample_with_perf();
    let all = (ours.values().sum::<u64>() + unplaced) as f64;
    let all_by_perf = perf.values().sum::<u64>() as f64;
    assert!(all > 500.0 && all_by_perf > 500.0, "{all} {all_by_perf}");
    println!("{unplaced} unplaced");
    println!("{} and {} addresses", ours.len(), perf.len());
    let mut top: Vec<_> = perf.iter().collect();
    top.sort_by_key(|(_, samples)| std::cmp::Reverse(**samples));
    for (address, by_perf) in top.into_iter().take(5) {
        let (own, by_perf) = (
            ours.get(address).copied().unwrap_or(0) as f64,
            *by_perf as f64,
        );
        let share = (own + by_perf) / (all + all_by_perf);
        let error = (share * (1.0 - share) * (1.0 / all + 1.0 / all_by_perf)).sqrt();
        let (least, most) = (own / all, (own + unplaced as f64) / all);
        let by_perf = by_perf / all_by_perf;
        println!("{address:#x}: {least} to {most}, {by_perf} by perf, error {error}");
        let chance = MAX_STANDARD_ERRORS * error;
        assert!(by_perf >= least - chance && by_perf <= most + chance);
    }
}

/// User-space addresses of one load, sampled by pmuscope and perf at the same time.
struct Sampled {
    ours: Addresses,
    /// Samples of the load without an address, because pmuscope's table was full. Which addresses
    /// get a row depends on all other processes, so these samples are not a random selection.
    unplaced: u64,
    perf: Addresses,
}

fn sample_with_perf() -> Sampled {
    let cgroup = TestCgroup::new("perf");
    let mut load = cgroup.load("burn 0 1000");
    let pid = load.pid();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    let mut counting = counting("cpu-clock", config(&format!("cpu-clock/period={PERIOD}/u")));
    // perf samples from before the load starts until it has ended.
    let mut perf = Command::new("perf")
        .args([
            "record",
            "-q",
            "-e",
            "cpu-clock:u",
            "-c",
            PERIOD_OF_PERF,
            "-p",
            &pid.to_string(),
            "-o",
        ])
        .arg(&file)
        .spawn()
        .unwrap();
    let attached = || {
        let events = std::fs::read_dir(format!("/proc/{}/fd", perf.id()));
        let mut links = events
            .unwrap()
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links.any(|link| link.to_string_lossy().contains("perf_event"))
    };
    while !attached() {
        std::thread::yield_now();
    }
    load.go();
    load.finish();
    assert!(perf.wait().unwrap().success());
    let window = counting.window();
    let sampled = window.samples.unwrap();
    let mut ours = Addresses::new();
    for (key, counts) in &sampled.addresses {
        if key.cgroup == cgroup.id && !key.page {
            // An address has several rows if different code was mapped there.
            *ours.entry(key.address).or_default() += counts.samples;
        }
    }
    let (samples, _) = cgroup_samples(&sampled, cgroup.id, 0);
    let unplaced = samples - ours.values().sum::<u64>();
    let health = &sampled.events[0].health;
    assert!(unplaced <= health.sum.unplaced + health.pushed_out);
    let script = Command::new("perf")
        .args(["script", "-F", "ip", "-i"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8(script.stdout).unwrap();
    let mut perf = Addresses::new();
    for address in text.split_whitespace() {
        let address = u64::from_str_radix(address, 16).unwrap();
        *perf.entry(address).or_default() += 1;
    }
    Sampled {
        ours,
        unplaced,
        perf,
    }
}
