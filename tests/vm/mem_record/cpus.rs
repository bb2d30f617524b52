//! CPUs that leave and come back while they are recorded.

use std::collections::BTreeMap;

use parquet::record::Field;

use crate::{
    guest::{skip, value},
    hotplug::set_online,
    mem_support::{Recording, Rows, arm, assert_exact, end, now, samples, truth},
    support::TestCgroup,
    testpmu::TestPmu,
};

/// How many samples the PMU wrote on a CPU.
fn written_on(cpu: u32) -> u64 {
    let truth = truth().into_iter();
    truth
        .filter(|(key, _)| key.0 == cpu)
        .map(|(_, (count, _))| count)
        .sum()
}

/// Samples on a CPU from a moment on.
fn on_cpu_since(rows: &Rows, cpu: u32, since: u64) -> usize {
    let of = |row: &&BTreeMap<String, Field>| {
        let later = matches!(row["time_ns"], Field::ULong(time) if time > since);
        row["cpu"] == Field::UInt(cpu) && later
    };
    rows.rows.iter().filter(of).count()
}

#[test]
fn a_cgroup_on_a_cpu_that_leaves_and_comes_back() {
    let Some(_machine) = arm() else { return };
    if value("CONTROLLERS").is_empty() {
        return skip("without a controller a cgroup has no perf state to record by");
    }
    let _pmu = TestPmu::load("set=spe");
    let cgroup = TestCgroup::new("hotplug");
    // What is there when the recording begins is known by name.
    let rounds = [0, 1]
        .map(|_| ["burn 1 100", "burn 0 300", "burn 1 600000"].map(|words| cgroup.load(words)));
    let recording = Recording::new();
    let child = recording.begin(&format!("--period 8192 --cgroup {}", cgroup.path));
    let mut back = 0;
    for (round, [before, meanwhile, mut after]) in rounds.into_iter().enumerate() {
        before.finish();
        set_online(1, false);
        // In one round the recorder does not notice that it is away.
        if round == 0 {
            meanwhile.finish();
        }
        set_online(1, true);
        back = now();
        let there = written_on(1);
        after.go();
        // Until the buffer is there, and some more.
        while written_on(1) < there + 200 {
            std::thread::yield_now();
        }
        drop(after);
    }
    end(child);
    let rows = Rows::read(&recording.path());
    assert_exact(&rows);
    assert!(on_cpu_since(&rows, 1, back) > 100);
    assert_eq!(rows.count("cpus_left"), 2);
    assert!(rows.count("unsampled_cpu_ns") > 0);
}

#[test]
fn a_process_on_a_cpu_that_was_offline_at_first() {
    let Some(_machine) = arm() else { return };
    let _pmu = TestPmu::load("set=spe");
    let cgroup = TestCgroup::new("hotplug");
    let mut load = cgroup.load("threads 4 2000");
    set_online(1, false);
    let recording = Recording::new();
    let mut child = recording.begin(&format!("--period 32768 -p {}", load.pid()));
    load.go();
    while samples(&truth()) < 100 {
        std::thread::yield_now();
    }
    set_online(1, true);
    let back = now();
    load.finish();
    assert!(child.wait().unwrap().success());
    let rows = Rows::read(&recording.path());
    assert_exact(&rows);
    assert!(on_cpu_since(&rows, 1, back) > 100);
    assert!(rows.count("unsampled_cpu_ns") > 0);
}
