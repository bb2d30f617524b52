//! Shares of a socket's traffic, compared with the truth. The uncore test PMU counts a known number
//! for each nanosecond that a watched container runs, so each container's traffic is known exactly.
//!
//! This measures the errors of attribution: weights charged at switches, counters read one after
//! another, other tasks. It does not measure how well a core's misses represent a socket's traffic.
//! `cargo xtask vm --filter arm64-6.12-shares` prints the tables of docs/how-it-works/accuracy.md.

mod errors;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    thread::{self, sleep},
    time::Duration,
};

use probe_common::{
    CgroupId,
    spe::{Class, Source},
};
use probe_user::{
    catalogue::{Catalogue, Chip, Hardware, MemoryTraffic},
    event::{self},
    join::share::{Shares, Traffic, Weights},
    machine::Pmus,
    plan::{CountSource, MetricSource, Plan, PlannedMetric, PlannedWeight},
    session::spe::SpeEvents,
    snapshot::SampleCounts,
    window::{MemLevel, Owner, SampleKind, Window},
};
use test_harness::{Counting, Load, TestCgroup, machine};

use self::errors::ShareErrors;
use crate::{
    cli::{command, run_with_load},
    guest::{skip, value},
    hotplug::Cpu1Offline,
    spe_support,
    testpmu::{TestPmu, core, event as code},
};

fn place(plan: &Plan, name: &str) -> CountSource {
    let mut columns = plan.columns.iter();
    columns.find(|column| column.name == name).unwrap().place
}

fn owner(cgroup: CgroupId) -> Owner {
    Owner { cgroup, tgid: 0 }
}

/// The weights that a core counts: event, and its count for each nanosecond that a task runs.
const COUNTED: [(&str, u64); 3] = [("llc_read_misses", 1), ("bus_reads", 2), ("write_backs", 3)];

/// The weights by a counted event, of all owners.
fn counted((name, _): (&str, u64), plan: &Plan, window: &Window) -> Weights {
    let planned = PlannedWeight {
        name: name.into(),
        of: MemoryTraffic::Reads,
        local: false,
        but: None,
        all: place(plan, name),
        remote: None,
    };
    Weights::counted(&planned, window)
}

/// The weights by SPE samples, of all owners. Every load counts as one from memory, on any core.
fn sampled(window: &Window) -> Weights {
    let samples = window.samples.as_ref().unwrap();
    let mut on_socket = BTreeMap::new();
    let containers = samples.on_socket.iter();
    for (key, usage) in containers.filter(|((_, owner), _)| is_container(owner)) {
        let mut loads = SampleCounts::default();
        for (kind, counts) in usage {
            if kind.access.is_some_and(|(class, _)| class == Class::Load) {
                loads.samples += counts.samples;
                loads.operations += counts.operations;
            }
        }
        let from_memory = SampleKind::spe(Class::Load, MemLevel::By(Source::Dram));
        on_socket.insert(*key, BTreeMap::from([(from_memory, loads)]));
    }
    Weights::sampled(&on_socket)
}

/// Shares of socket 0's traffic.
fn shares(weights: &Weights, traffic: &Traffic) -> Shares {
    weights.tells_of(0).unwrap();
    let shares = weights.cpu_reads(0, traffic).unwrap();
    assert_eq!(shares.measured(), traffic.measured, "conservation");
    shares
}

/// Containers on CPU 0. Each runs for its `on` microseconds of every `period`.
struct Containers {
    cgroups: Vec<TestCgroup>,
    loads: Vec<Load>,
}

impl Containers {
    fn new(on: &[u64], period: u64, milliseconds: u64) -> Self {
        let cgroups: Vec<TestCgroup> = on.iter().map(|_| TestCgroup::new("share")).collect();
        let burst = |on: &u64| format!("burst 0 {on} {} {milliseconds}", period - on);
        let loads = cgroups.iter().zip(on);
        let loads = loads.map(|(cgroup, on)| cgroup.load(&burst(on))).collect();
        Self { cgroups, loads }
    }

    fn events(pmu: &TestPmu) -> String {
        let (core, _) = core();
        let event = |((name, per_ns), at)| {
            let code = code(at);
            pmu.control(&format!("rate {core} {code} 0 0 {per_ns}000000"));
            format!("{core}/config={code:#x},name={name}/")
        };
        let events: Vec<String> = COUNTED.into_iter().zip(0..).map(event).collect();
        events.join(",") + ",nvidia_scf_pmu_0/cmem_rd_data/"
    }

    fn go(&mut self) {
        self.loads.iter_mut().for_each(Load::go);
    }

    fn finish(&mut self) {
        self.loads.drain(..).for_each(|load| drop(load.finish()));
        wait_until_nothing_else_runs();
    }
}

/// A reaped process may have been preempted in its exit, and then still has to run the last
/// microseconds of it.
fn wait_until_nothing_else_runs() {
    let only_this_thread = || {
        let load = fs::read_to_string("/proc/loadavg").unwrap();
        load.split([' ', '/']).nth(3) == Some("1")
    };
    while !only_this_thread() {
        thread::yield_now();
    }
}

/// Only containers make traffic. pmuscope itself is in the root cgroup, and runs at the ends of
/// every window, between the readings of weights and of traffic.
fn is_container(owner: &Owner) -> bool {
    owner.cgroup != CgroupId::ROOT
}

/// Errors over a window that starts and ends while no container runs, so that it covers the time of
/// the true counts.
fn errors_of_whole_run(
    pmu: &TestPmu,
    on: &[u64],
    count: impl FnOnce() -> Counting,
    weights: impl FnOnce(&Plan, &Window) -> Vec<Weights>,
) -> Vec<ShareErrors> {
    let mut containers = Containers::new(on, 10_000, 1500);
    pmu.control("taskrate nvidia_scf_pmu_0 0x1a5 0 0 1000000");
    for cgroup in &containers.cgroups {
        pmu.control(&format!("watch cgroup {} 1", cgroup.id.0));
    }
    let time = |cgroup: &TestCgroup| (cgroup.id, pmu.time_on(cgroup.id, 0));
    let before: BTreeMap<CgroupId, u64> = containers.cgroups.iter().map(time).collect();
    let mut counting = count();
    containers.go();
    containers.finish();
    let mut window = counting.window();
    window.on_socket.retain(|(_, owner), _| is_container(owner));
    let traffic = Traffic {
        measured: window.uncore[0].count.unwrap(),
        ..Traffic::default()
    };
    let truth: BTreeMap<CgroupId, u64> = containers
        .cgroups
        .iter()
        .map(|cgroup| (cgroup.id, time(cgroup).1 - before[&cgroup.id]))
        .collect();
    let all: u64 = truth.values().sum();
    let errors = |weights: Weights| {
        let shares = shares(&weights, &traffic);
        let mut errors = ShareErrors::default();
        for (cgroup, truth) in &truth {
            if truth * 100 >= all {
                errors.add(&shares, *cgroup, *truth);
            }
        }
        errors
    };
    let weights = weights(counting.session.plan(), &window);
    let errors = weights.into_iter().map(errors).collect();
    pmu.control("unwatch");
    errors
}

/// Names and `on` times of loads: of two containers, and of many equal ones.
fn loads() -> impl Iterator<Item = (String, Vec<u64>)> {
    let two = (5..=9).rev().map(|first| {
        let on = vec![first * 1_000, 10_000 - first * 1_000];
        (format!("{first}0:{}0", 10 - first), on)
    });
    let equal = [5_u64, 10, 20, 50].into_iter().map(|containers| {
        let on = (0..containers).map(|_| 9_000 / containers).collect();
        (format!("{containers} equal"), on)
    });
    two.chain(equal)
}

#[test]
fn shares_are_near_the_truth() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,core rates=0");
    let events = Containers::events(&pmu);
    println!(
        "| load | method | error (root mean square) | largest | stated (median) | error / stated |"
    );
    let weights = |plan: &Plan, window: &Window| {
        let weights = COUNTED.map(|weight| counted(weight, plan, window));
        weights.to_vec()
    };
    // Weights are read in pmuscope's hook at a switch, and traffic is counted up to the test PMU's
    // hook: a slice of the other CPU between the two hooks would be in the traffic or in the
    // weights, but not in both.
    let _cpu1_offline = Cpu1Offline::new();
    for (load, on) in loads() {
        let errors = errors_of_whole_run(&pmu, &on, || Counting::start(&events), weights);
        for (errors, (method, _)) in errors.iter().zip(COUNTED) {
            errors.print(&load, method);
            assert!(errors.largest < 1e-4, "{load}: {}", errors.largest);
        }
    }
}

/// There are few samples, so their number dominates the error.
#[test]
fn shares_by_samples_are_within_their_stated_errors() {
    const PERIOD: u64 = 32_768;
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=grace,spe rates=0");
    pmu.control("spe clear");
    pmu.control("spe op 0 1 load 0x00 0xe 300 100 2 1 0x001e");
    let start = || {
        let pmus = Pmus::read(Path::new("/sys")).unwrap();
        let mut spe = spe_support::config().spe.unwrap();
        spe.events = SpeEvents::resolve(&pmus, "load_filter=1", PERIOD).unwrap();
        let plan = event::parse("nvidia_scf_pmu_0/cmem_rd_data/", &pmus).unwrap();
        Counting::with_plan(Plan::new(&plan).unwrap(), |config| config.spe = Some(spe))
    };
    println!(
        "| load | method | error (root mean square) | largest | stated (median) | error / stated |"
    );
    for (load, on) in loads() {
        let blind = spe_support::stat("blind_ns");
        let errors = errors_of_whole_run(&pmu, &on, start, |_, window| vec![sampled(window)]);
        let errors = &errors[0];
        let blind = spe_support::stat("blind_ns") - blind;
        errors.print(&load, "spe");
        let normalized = errors.mean(errors.normalized_squares);
        println!("{blind} ns not sampled");
        // The shares of two containers have one common error, which may be twice its standard
        // deviation.
        assert!(normalized < 3.0, "{load}: the stated error is too small");
    }
}

/// One count has the times of two containers: a nanosecond of the first container adds 1, and one
/// of the second adds 2^30. So the uncore counter and both true times are read at the same instant.
const DIGIT: u64 = 1 << 30;

fn digits(count: u64) -> [u64; 2] {
    [count % DIGIT, count / DIGIT]
}

/// A plan of the events, in which a metric's uncore event is shared out by weights.
fn shared_plan(events: &str) -> Plan {
    let pmus = Pmus::read(Path::new("/sys")).unwrap();
    let mut plan = Plan::new(&event::parse(events, &pmus).unwrap()).unwrap();
    let catalogue = Catalogue::builtin().unwrap();
    let grace = Hardware::of_chip(Chip::named("grace-cpu-superchip").unwrap());
    let metrics = catalogue.select("cmem_read_bandwidth", &grace).unwrap();
    let source = MetricSource {
        events: vec![("CMEM_RD_DATA".to_owned(), CountSource::Uncore { at: 0 })],
        ..MetricSource::default()
    };
    plan.metrics.list.push(PlannedMetric {
        metric: metrics[0].clone(),
        sources: Ok(vec![source]),
        io: Vec::new(),
    });
    plan
}

/// Errors of the shares of the first container and, if there are two, of the second. Windows of
/// `length` end while the containers run.
fn errors_of_cut_windows(on: &[u64], length: Duration) -> ShareErrors {
    // Loads the module again, so that the weighted times do not overflow.
    let pmu = &TestPmu::load("set=grace,core rates=0");
    const WINDOWS: u32 = 15;
    // The loads are killed after the last window.
    let mut containers = Containers::new(on, 10_000, 3_600_000);
    pmu.control("taskrate nvidia_scf_pmu_0 0x1a5 0 0 1000000");
    for (at, cgroup) in containers.cgroups.iter().enumerate() {
        let weight = if at == 0 { 1 } else { DIGIT };
        pmu.control(&format!("watch cgroup {} {weight}", cgroup.id.0));
    }
    let plan = shared_plan(&Containers::events(pmu));
    let mut counting = Counting::with_plan(plan, |_| {});
    containers.go();
    sleep(Duration::from_millis(100));
    let mut errors = ShareErrors::default();
    for _ in 0..WINDOWS {
        counting.first = counting.session.pull().unwrap();
        sleep(length);
        let mut window = counting.window();
        // Only watched cgroups make traffic.
        let watched = |owner: &Owner| containers.cgroups.iter().any(|it| it.id == owner.cgroup);
        window.on_socket.retain(|(_, owner), _| watched(owner));
        let reading = window.uncore[0];
        let truth = digits(reading.count.unwrap());
        let traffic = Traffic {
            measured: truth.iter().sum(),
            skew: digits(reading.skew).iter().sum(),
            ..Traffic::default()
        };
        if truth[0] == 0 || window.on_socket.is_empty() {
            continue;
        }
        let weights = counted(COUNTED[0], counting.session.plan(), &window);
        let shares = shares(&weights, &traffic);
        errors.add(&shares, containers.cgroups[0].id, truth[0]);
        if containers.cgroups.len() == 2 && truth[1] > 0 {
            errors.add(&shares, containers.cgroups[1].id, truth[1]);
        }
    }
    // Kills the loads before their cgroups are removed.
    containers.loads.clear();
    pmu.control("unwatch");
    errors
}

/// The stated error of a share is right, also in short windows of a running load.
#[test]
fn the_stated_error_holds_for_windows_cut_under_load() {
    let Some(_machine) = machine() else { return };
    println!(
        "| load | window | method | error (root mean square) | largest | stated (median) | error \
         / stated |"
    );
    for milliseconds in [500, 100, 20] {
        for on in [
            &[1_000, 9_000][..],
            &[3_000, 7_000],
            &[5_000, 5_000],
            &[900; 10],
        ] {
            let errors = errors_of_cut_windows(on, Duration::from_millis(milliseconds));
            let load = match on {
                [first, second] => format!("{}:{}", second / 100, first / 100),
                equal_loads => format!("{} equal", equal_loads.len()),
            };
            errors.print(&format!("{load} | {milliseconds} ms"), COUNTED[0].0);
            let normalized = errors.mean(errors.normalized_squares);
            println!("{} shares", errors.shares);
            // With correctly stated errors this ratio is at most 1. With so few shares it varies by
            // about a fifth.
            assert!(normalized < 1.6, "{load}: the stated error is too small");
        }
    }
}

/// The weights of shares run all the time while the groups of many metrics are multiplexed.
#[test]
fn weights_are_live_while_others_take_turns() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") != "arm64" {
        return skip("x86 guests list no events of Neoverse");
    }
    if Path::new("/sys/bus/event_source/devices/armv8_pmuv3").exists() {
        return skip("with QEMU's own PMU beside it there are two core PMUs");
    }
    let _pmu = TestPmu::load("set=grace,core");
    let metrics = "cmem_read_bandwidth,group:cache,group:tlb,group:branch";
    let (printed, messages) = run_with_load(
        &format!("stat -M {metrics} --rotate 20 --chip grace-cpu-superchip --format json"),
        "burn 0 1000",
    );
    assert!(!messages.contains("take turns with others"), "{messages}");
    let list = |key: &str| printed[key].as_array().unwrap().clone();
    let running = |value: &serde_json::Value| value["running"].as_f64();
    let shares: Vec<f64> = list("shares").iter().filter_map(running).collect();
    assert!(!shares.is_empty(), "{printed}");
    assert!(shares.iter().all(|ratio| *ratio > 0.99), "{shares:?}");
    let metrics = command(&printed)["metrics"].as_object().unwrap();
    let multiplexed = (metrics.values().filter_map(running)).filter(|ratio| *ratio < 0.9);
    assert!(
        multiplexed.count() > 5,
        "nothing is multiplexed: {metrics:?}"
    );
}
