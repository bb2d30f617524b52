//! Damaged, lost, skipped and overflowed records: each kind has its own count.

use std::{process::Command, thread, time::Duration};

use probe_common::spe::SpeKey;
use probe_user::snapshot::SpeHook;
use test_harness::{Messages, TestCgroup, machine};

use crate::{
    guest::{is_6_1, value},
    spe_support::{
        PERIOD, Sampling, assert_conserved, assert_exact, counted, sample, samples, stat, truth,
        written,
    },
    testpmu::TestPmu,
};

/// Records of random bytes are counted as bad. They change no other count, unless they are valid
/// records by chance.
#[test]
fn garbage_is_counted_as_bad() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe garbage_every 5");
    let a = TestCgroup::new("a");
    let (mut sampling, processes) = sample(&pmu, &[(&a, "burn 0 300")], Sampling::start);
    let reading = sampling.end(&pmu);
    assert_conserved(&reading);
    let bad: u64 = reading.health.sum.bad.iter().sum();
    let garbage = stat("garbage");
    let all_written = samples(&written(&truth(), |_| true));
    println!(
        "{garbage} of garbage, {bad} bad, bad kinds {:?}",
        reading.health.sum.bad
    );
    assert!(garbage > 500 && bad > garbage / 10 * 9 && bad <= garbage);
    if reading.health.sum.missed_bytes > 0 {
        // A chunk was lost, with unknown records.
        assert_eq!(reading.health.hook, SpeHook::Kprobe);
        return;
    }
    let by_chance = reading.health.sum.records - all_written;
    // A cell with a valid record by chance may have bad bytes after it.
    assert!((garbage..=garbage + by_chance).contains(&(bad + by_chance)));
    assert!(reading.health.sum.undecoded > (garbage - by_chance) * 63);
    let own = samples(&written(&truth(), |row| processes[0].contains(&row.tgid)));
    let counted = samples(&counted(&reading, |key| key.cgroup == a.id));
    assert!(
        (own..=own + by_chance).contains(&counted),
        "{counted}, {own}"
    );
}

/// Every seventh record has an address or a time of zero. It counts as invalid, and is in no row.
#[test]
fn an_address_or_time_of_zero_is_invalid() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe invalid_every 7");
    let a = TestCgroup::new("a");
    let (mut sampling, processes) = sample(&pmu, &[(&a, "burn 0 300")], Sampling::start);
    let reading = sampling.end(&pmu);
    assert_conserved(&reading);
    let (counted, written) = (reading.health.sum.invalid, stat("invalid"));
    println!("{counted} invalid, {written} written");
    let missing = reading.health.sum.missed_bytes / 64;
    assert!(written > 100 && counted <= written && written <= counted + missing);
    assert_exact(&reading, &truth(), "a", a.id, &processes[0]);
}

/// Data loss stops the hardware; pulls count the loss and restart sampling.
#[test]
fn lost_data_and_collisions_are_counted_and_sampling_goes_on() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=core,spe");
    pmu.control("spe loss_every 3");
    pmu.control("spe collision_every 2");
    let a = TestCgroup::new("a");
    let mut load = a.load("burst 0 3000 500 1500");
    let pid = load.pid();
    pmu.control("spe reset");
    let mut sampling = Sampling::start();
    load.go();
    let mut grown = 0;
    let mut last = 0;
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(100));
        let chunks = sampling.pull().health.sum.chunks;
        grown += u32::from(chunks > last);
        last = chunks;
    }
    load.finish();
    let reading = sampling.end(&pmu);
    assert_conserved(&reading);
    assert_exact(&reading, &truth(), "a", a.id, &[pid]);
    let sum = &reading.health.sum;
    assert!(stat("lost_data") > 3 && stat("collided") > 3);
    assert_eq!(
        (sum.truncated, sum.partial, sum.collided),
        (stat("lost_data"), stat("lost_data"), stat("collided"))
    );
    println!("the cores count {:?}", reading.health.sampler);
    if value("ARCH") == "arm64" && !is_6_1() {
        // The core test PMU has these events, and counts them at its own rates.
        assert!(reading.health.sampler["sample_collision"] > 0);
        assert_eq!(reading.health.sampler.len(), 4);
    }
    assert!(grown >= 8, "sampling went on in {grown} of 10 windows");
}

/// A chunk that ends outside of its buffer is counted, and in the kernel log.
#[test]
fn an_unreadable_chunk_is_counted_and_logged() {
    let Some(_machine) = machine() else { return };
    let messages = Messages::with_kernel_log();
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe unreadable_every 3");
    let a = TestCgroup::new("a");
    let (mut sampling, _) = sample(&pmu, &[(&a, "burn 0 600")], Sampling::start);
    let reading = sampling.end(&pmu);
    let unreadable = reading.health.sum.unreadable;
    assert!(unreadable > 0 && unreadable <= stat("unreadable"));
    let logged = messages.take(" could not be read; ");
    assert!(
        !logged.is_empty() && logged.len() as u64 <= unreadable,
        "{logged:?}"
    );
}

/// With a time limit that emulation cannot meet, skipped records are counted, and the estimate
/// includes them.
#[test]
fn bytes_skipped_by_the_time_limit_are_counted_and_estimated() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    let (mut sampling, processes) = sample(&pmu, &[(&a, "burn 0 600")], || {
        Sampling::with(|config| {
            config.spe.as_mut().unwrap().irq_max = Duration::from_micros(10);
        })
    });
    let reading = sampling.end(&pmu);
    assert_conserved(&reading);
    let sum = &reading.health.sum;
    println!("longest {} ns", reading.health.longest);
    assert!(
        sum.skipped > sum.bytes / 4,
        "{} of {}",
        sum.skipped,
        sum.bytes
    );
    let own = samples(&written(&truth(), |row| processes[0].contains(&row.tgid)));
    let estimated: f64 = reading
        .rows
        .iter()
        .filter(|(key, _)| key.cgroup == a.id)
        .map(|(_, counts)| counts.operations)
        .sum();
    let error = estimated / (own * PERIOD) as f64 - 1.0;
    println!("estimated {estimated}, error {:+.2}%", error * 100.0);
    // Only some records of each chunk were decoded, at several positions.
    assert!(error.abs() < 0.15, "{error}");
}

/// If the map is full, samples are counted in the overflow rows.
#[test]
fn a_full_map_loses_owners_but_no_record() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    let (mut sampling, _) = sample(&pmu, &[(&a, "burn 0 200")], || {
        Sampling::with(|config| config.spe.as_mut().unwrap().max_rows = Some(3))
    });
    let reading = sampling.end(&pmu);
    assert_conserved(&reading);
    let overflow = |key: &SpeKey| key.cgroup == probe_user::snapshot::OVERFLOW;
    let overflowed = samples(&counted(&reading, overflow));
    assert!(overflowed > 0);
    assert_eq!(overflowed, reading.health.sum.overflowed);
}

/// The module of the PMU cannot be unloaded while it is in use.
#[test]
fn unloading_while_counting_is_refused_and_changes_nothing() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    let mut load = a.load("burn 0 300");
    let pid = load.pid();
    pmu.control("spe reset");
    let mut sampling = Sampling::start();
    load.go();
    let output = Command::new("rmmod").arg("testpmu").output().unwrap();
    assert!(!output.status.success(), "it went away under an open event");
    load.finish();
    let reading = sampling.end(&pmu);
    assert_exact(&reading, &truth(), "a", a.id, &[pid]);
    assert_conserved(&reading);
}
