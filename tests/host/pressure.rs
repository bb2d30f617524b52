//! Pressure and throttling of containers, compared with the kernel's own files.

use std::{fs, path::Path};

use probe_user::{
    join::{By, Entity, EntityPressure, View},
    machine::pressure::CgroupCounter,
    session::Config,
    window::Window,
};
use test_harness::{Counting, Load, TestCgroup, machine, pmuscope, shared_machine};

use crate::controlled::Controlled;

fn with_pressure(config: &mut Config) {
    config.pressure = true;
}

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// The pressure and throttling of a container in a window.
fn container_pressure(counting: &Counting, window: &Window, id: &str) -> EntityPressure {
    let view = View {
        by: By::Container,
        ..View::default()
    };
    let joined = view.join(counting.session.plan(), window, None);
    let is_container =
        |entity: &Entity| matches!(entity, Entity::Container { id: it, .. } if **it == *id);
    let mut rows = joined.pressure().unwrap().entities.iter();
    rows.find(|(entity, _)| is_container(entity))
        .unwrap()
        .1
        .clone()
}

/// The first number after a word in a file.
fn number(file: &Path, word: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let rest = text.split_once(word).unwrap().1;
    let digits = rest
        .split(|it: char| !it.is_ascii_digit())
        .find(|it| !it.is_empty());
    digits.unwrap().parse().unwrap()
}

/// Two containers that burn on one CPU wait for each other.
#[test]
fn pressure_is_what_the_kernel_reports() {
    let Some(_machine) = machine() else { return };
    let pod = TestCgroup::new("pressure");
    let containers = ['a', 'b'].map(|digit| pod.child(&id(digit)));
    let file = containers[0].directory.join("cpu.pressure");
    if fs::read(&file).is_err() {
        println!("skipped: cgroups have no pressure here");
        return;
    }
    let mut counting = Counting::with("task-clock", with_pressure);
    let before = number(&file, "total=");
    let mut loads = [&containers[0], &containers[1]].map(|it| it.load("burn 0 100"));
    loads.iter_mut().for_each(Load::go);
    for load in loads {
        load.finish();
    }
    let least = number(&file, "total=") - before;
    let window = counting.window();
    let most = number(&file, "total=") - before;
    let row = container_pressure(&counting, &window, &id('a'));
    let counted = row.counts.delta.get(CgroupCounter::CpuSome).unwrap();
    println!("{counted} us of {least} to {most}");
    assert!((least..=most).contains(&counted));
    assert!(counted > 20_000, "both have a CPU of their own");
}

/// A container that was created during counting, with a quota of a fifth of a CPU.
#[test]
fn throttling_is_what_the_kernel_reports() {
    let Some(_machine) = machine() else { return };
    let mut counting = Counting::with("task-clock", with_pressure);
    let pod = TestCgroup::new("throttled");
    let container = pod.child(&id('c'));
    let files = ["cpu.max", "cpu.cfs_quota_us"];
    let Some(controlled) = Controlled::new("cpu", files, &pod, &container) else {
        return;
    };
    controlled.set(20_000);
    let mut load = container.load("burn 0 120");
    controlled.adopt(load.pid());
    load.go();
    load.finish();
    let stat = controlled.directory().join("cpu.stat");
    let (time, factor) = match &controlled {
        Controlled::V1 { .. } => ("throttled_time ", 1),
        Controlled::V2 { .. } => ("throttled_usec ", 1000),
    };
    // The timer of the periods continues for a while after the load.
    let read = || ["nr_periods ", "nr_throttled ", time].map(|word| number(&stat, word));
    let least = read();
    let window = counting.window();
    let most = read();
    let row = container_pressure(&counting, &window, &id('c'));
    let counters = [
        CgroupCounter::Periods,
        CgroupCounter::ThrottledPeriods,
        CgroupCounter::Throttled,
    ];
    let counted = counters.map(|counter| row.counts.delta.get(counter).unwrap());
    println!("{counted:?} of {least:?} to {most:?}");
    for (at, factor) in [1, 1, factor].into_iter().enumerate() {
        assert!((least[at] * factor..=most[at] * factor).contains(&counted[at]));
    }
    assert!(counted[1] > 1, "120 ms took {} periods", counted[0]);
    assert_eq!(row.quota, Some(0.2));
}

#[test]
fn stat_shows_the_pressure_of_the_machine() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let mut stat = pmuscope();
    stat.args(["stat", "--pressure", "--format", "json"]);
    stat.args(["--output-fd", "1", "--", "true"]);
    let output = stat.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let total = &report["total"]["metrics"]["cpu_pressure_some"]["value"];
    let has_pressure = fs::read("/proc/pressure/cpu").is_ok();
    let is_share = total.as_f64().is_some_and(|it| (0.0..=100.0).contains(&it));
    assert_eq!(is_share, has_pressure, "{total}");
}

#[test]
fn processes_have_no_pressure() {
    let mut stat = pmuscope();
    stat.args(["stat", "--pressure", "--by", "process", "--", "true"]);
    let output = stat.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(message.contains("no such counts by process"), "{message}");
}
