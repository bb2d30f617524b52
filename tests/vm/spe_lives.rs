//! Processes that start, exec and end between two reads of the buffer; owners without free rows;
//! and the period that follows a budget.

use std::{thread, time::Duration};

use probe_user::snapshot::ENDED;
use test_harness::{Load, TestCgroup, machine};

use crate::{
    cli::{command, run_with_load},
    spe_support::{
        PERIOD, Sampling, assert_conserved, assert_exact, counted, sample, samples, stat, truth,
        written,
    },
    testpmu::TestPmu,
};

/// A thread that executes another program takes over the thread id of its process's first thread.
#[test]
fn records_of_threads_that_exec_are_charged() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let [a, b] = ["a", "b"].map(TestCgroup::new);
    let loads = [(&a, "execs 20"), (&b, "burn 0 200")];
    let (mut sampling, processes) = sample(&pmu, &loads, Sampling::start);
    let reading = sampling.end(&pmu);
    let truth = truth();
    for (cgroup, processes) in [&a, &b].into_iter().zip(&processes) {
        assert_exact(&reading, &truth, &cgroup.path, cgroup.id, processes);
    }
    assert_conserved(&reading);
    assert_eq!(reading.health.sum.unattributed, [0; 4]);
}

/// The buffer is so large that processes start and end between two interrupts.
#[test]
fn records_of_processes_within_one_chunk_are_charged() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    let mut load = a.load("forks 100 1 ids");
    let own = load.pid();
    pmu.control("spe reset");
    let mut sampling = Sampling::with(|config| {
        config.spe.as_mut().unwrap().aux_size = 16 << 20;
    });
    load.go();
    let children = load.finish();
    let children = children.lines().map(|line| line.parse::<u32>().unwrap());
    let processes: Vec<u32> = children.chain([own]).collect();
    let reading = sampling.end(&pmu);
    let chunks = reading.health.sum.chunks;
    println!("{} processes in {chunks} chunks", processes.len());
    // Each chunk ends within one process, so all other processes were within a chunk.
    let whole = (processes.len() as u64).saturating_sub(chunks);
    assert!(whole >= 20, "{chunks} chunks: {whole} whole processes");
    assert_exact(&reading, &truth(), "a", a.id, &processes);
    assert_conserved(&reading);
    assert_eq!(reading.health.sum.unattributed, [0; 4]);
}

/// More processes than the map has rows start and end between two snapshots.
#[test]
fn more_processes_than_rows_lose_no_record() {
    const ROWS: u32 = 400;
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    // The loads wait in the cgroup until `go`.
    let loads: Vec<Load> = (0..34).map(|_| a.load("forks 12 1 ids")).collect();
    let mut processes: Vec<u32> = loads.iter().map(Load::pid).collect();
    pmu.control("spe reset");
    let mut sampling = Sampling::with(|config| {
        config.by_process = true.into();
        config.spe.as_mut().unwrap().max_rows = Some(ROWS);
    });
    for mut load in loads {
        load.go();
        let children = load.finish();
        processes.extend(children.lines().map(|line| line.parse::<u32>().unwrap()));
        sampling.session.upkeep().unwrap();
    }
    assert!(processes.len() > ROWS as usize);
    let reading = sampling.end(&pmu);
    assert_eq!(reading.health.sum.overflowed, 0);
    let summed = reading.freed.iter().any(|(key, _)| key.tgid == ENDED);
    assert!(summed, "{} rows of their own", reading.freed.len());
    let row_count = reading.rows.len() + reading.freed.len();
    println!("{} processes, {row_count} rows", processes.len());
    assert_eq!(stat("truth_lost"), 0);
    assert_exact(&reading, &truth(), "a", a.id, &processes);
    assert_conserved(&reading);
}

/// More owners than the map has rows are sampled one after another, and none ends. Rows of idle
/// owners are freed, and no sample is lost or counted twice.
#[test]
fn rows_of_idle_owners_are_freed() {
    const ROWS: u32 = 96;
    const OWNERS: usize = 12;
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let cgroups: Vec<TestCgroup> = (0..OWNERS)
        .map(|n| TestCgroup::new(&format!("c{n}")))
        .collect();
    // The first owner runs again at the end, in new rows.
    let order: Vec<&TestCgroup> = cgroups.iter().chain(cgroups.first()).collect();
    let loads: Vec<Load> = order.iter().map(|it| it.load("burn 0 60")).collect();
    let processes: Vec<u32> = loads.iter().map(Load::pid).collect();
    pmu.control("spe reset");
    let mut sampling = Sampling::with(|config| {
        config.spe.as_mut().unwrap().max_rows = Some(ROWS);
    });
    let mut most = 0;
    for (at, load) in loads.into_iter().enumerate() {
        load.finish();
        // Rows are freed by upkeep between snapshots, and by pulls.
        match at % 3 {
            0 => most = most.max(sampling.pull().health.rows),
            _ => sampling.session.upkeep().unwrap(),
        }
    }
    let reading = sampling.end(&pmu);
    let freed = reading.health.freed_idle;
    println!("{freed} rows were freed; at most {most} were in use");
    assert!(freed > 0 && most <= ROWS as usize);
    assert_eq!(reading.health.sum.overflowed, 0);
    let truth = truth();
    for (at, cgroup) in cgroups.iter().enumerate() {
        let own = [Some(&processes[at]), processes.last().filter(|_| at == 0)];
        let own: Vec<u32> = own.into_iter().flatten().copied().collect();
        assert_exact(&reading, &truth, &format!("c{at}"), cgroup.id, &own);
    }
    assert_conserved(&reading);
}

/// With a budget that cannot be met, the period doubles and is reported, and estimates follow it.
#[test]
fn the_period_follows_the_budget() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=spe");
    let a = TestCgroup::new("a");
    // The load runs until the test drops it.
    let mut load = a.load("burn 0 600000");
    let pid = load.pid();
    pmu.control("spe reset");
    let mut sampling = Sampling::with(|config| {
        config.spe.as_mut().unwrap().budget = Some(1e-9);
    });
    let own = || samples(&written(&truth(), |row| row.tgid == pid));
    assert_eq!(sampling.pull().health.period, PERIOD);
    load.go();
    thread::sleep(Duration::from_millis(1200));
    // This pull finds the cost, and the next changes the period of each CPU after draining it.
    assert_eq!(sampling.pull().health.period, PERIOD);
    let earlier = own();
    assert_eq!(sampling.pull().health.period, PERIOD);
    let before = own();
    assert_eq!(sampling.pull().health.period, 2 * PERIOD);
    // Waits for about as many operations as before the change.
    while own() < before + before / 2 {
        thread::yield_now();
    }
    drop(load);
    let reading = sampling.end(&pmu);
    assert_eq!(reading.health.period, 2 * PERIOD, "one step per minute");
    assert_conserved(&reading);
    // Sums of latencies are weighted by both periods, so only numbers of samples are compared.
    let [counted, written] = [
        counted(&reading, |key| key.cgroup == a.id),
        written(&truth(), |row| row.tgid == pid),
    ]
    .map(|sums| -> Vec<_> { sums.iter().map(|(kind, [n, ..])| (*kind, *n)).collect() });
    if reading.health.sum.missed_bytes == 0 {
        assert_eq!(counted, written);
    }
    let operations: f64 = reading
        .rows
        .iter()
        .filter(|(key, _)| key.cgroup == a.id)
        .map(|(_, counts)| counts.operations)
        .sum();
    let all = own();
    println!("{earlier} to {before} of {all} samples are of {PERIOD} operations");
    let [least, most] =
        [before, earlier].map(|single| (single + 2 * (all - single)) as f64 * PERIOD as f64);
    assert!(all - before > 100);
    assert!(
        operations > 0.99 * least && operations < 1.01 * most,
        "{operations}, {least} to {most}"
    );
}

/// The sampled metrics of the catalogue, together with a counted one.
#[test]
fn stat_shows_sampled_metrics() {
    let Some(_machine) = machine() else { return };
    let _pmu = TestPmu::load("set=spe");
    let (json, _) = run_with_load("stat --format json -M group:spe,cpus_used", "burn 0 2000");
    let command = command(&json);
    let value = |name: &str| command["metrics"][name]["value"].as_f64();
    // On amd64 no table of a core decodes the data sources.
    assert!(value("spe_load_rate").unwrap() > 1e6, "{command}");
    assert!(value("spe_load_latency").unwrap() > 4.0);
    for name in [
        "spe_load_rate",
        "spe_load_latency",
        "spe_load_tlb_walk_ratio",
    ] {
        let metric = &command["metrics"][name];
        let end = |end: &str| metric[end].as_f64().unwrap();
        assert!(end("low") < end("high"), "{name}: {metric}");
        assert!(
            (end("low")..=end("high")).contains(&end("value")),
            "{name}: {metric}"
        );
    }
    assert!((0.0..=1.0).contains(&value("spe_load_tlb_walk_ratio").unwrap()));
    assert!(value("cpus_used").unwrap() > 0.0);
    if crate::guest::value("ARCH") == "arm64" {
        let places = [
            "l1",
            "l2",
            "peer",
            "cluster",
            "system_cache",
            "dram",
            "remote",
        ];
        let shares = places.map(|place| value(&format!("spe_load_{place}_ratio")).unwrap());
        let sum: f64 = shares.iter().sum();
        assert!((sum - 1.0).abs() < 0.01, "{shares:?}");
    } else {
        assert_eq!(value("spe_load_l1_ratio"), None);
    }
}
