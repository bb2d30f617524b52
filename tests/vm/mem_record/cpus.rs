//! Recording while CPUs go offline and online.

use std::collections::BTreeMap;

use parquet::record::Field;
use test_harness::TestCgroup;

use crate::{
    guest::{skip, value},
    hotplug::set_online,
    mem_support::{Recording, Rows, assert_exact, end, now, samples, spe_machine, truth},
    testpmu::TestPmu,
};

/// Number of samples that the PMU wrote on a CPU.
fn written_on(cpu: u32) -> u64 {
    (truth().into_iter())
        .filter(|(key, _)| key.0 == cpu)
        .map(|(_, (count, _))| count)
        .sum()
}

/// Number of samples on a CPU after `since`.
fn on_cpu_since(rows: &Rows, cpu: u32, since: u64) -> usize {
    let matches = |row: &&BTreeMap<String, Field>| {
        let later = matches!(row["time_ns"], Field::ULong(time) if time > since);
        row["cpu"] == Field::UInt(cpu) && later
    };
    rows.rows.iter().filter(matches).count()
}

#[test]
fn a_cgroup_is_recorded_after_its_cpu_was_offline() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    if value("CONTROLLERS").is_empty() {
        return skip("without a controller a cgroup has no perf state to record by");
    }
    let _pmu = TestPmu::load("set=spe");
    let cgroup = TestCgroup::new("hotplug");
    // The loads start before the recording, so that the recorder knows their names.
    let rounds = [0, 1]
        .map(|_| ["burn 1 100", "burn 0 300", "burn 1 600000"].map(|words| cgroup.load(words)));
    let recording = Recording::new();
    let child = recording.begin(&format!("--period 8192 --cgroup {}", cgroup.path));
    let mut online_at = 0;
    for (round, [before, meanwhile, mut after]) in rounds.into_iter().enumerate() {
        before.finish();
        set_online(1, false);
        // In the other round the recorder does not notice that CPU 1 is offline.
        if round == 0 {
            meanwhile.finish();
        }
        set_online(1, true);
        online_at = now();
        let written = written_on(1);
        after.go();
        // Waits until the CPU has a buffer and the PMU has written 200 samples.
        while written_on(1) < written + 200 {
            std::thread::yield_now();
        }
        drop(after);
    }
    end(child);
    let rows = Rows::read(&recording.path());
    assert_exact(&rows);
    assert!(on_cpu_since(&rows, 1, online_at) > 100);
    assert_eq!(rows.count("cpus_left"), 2);
    assert!(rows.count("unsampled_cpu_ns") > 0);
}

#[test]
fn a_process_is_recorded_on_a_cpu_that_comes_online_later() {
    let Some(_machine) = spe_machine() else {
        return;
    };
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
    let online_at = now();
    load.finish();
    assert!(child.wait().unwrap().success());
    let rows = Rows::read(&recording.path());
    assert_exact(&rows);
    assert!(on_cpu_since(&rows, 1, online_at) > 100);
    assert!(rows.count("unsampled_cpu_ns") > 0);
}
