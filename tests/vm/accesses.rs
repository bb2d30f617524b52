//! Memory accesses sampled by events, compared with test PMUs that know their samples: AMD's
//! `ibs_op`, and Intel's events of loads and stores.

use std::collections::{BTreeMap, BTreeSet};

use probe_common::{
    CgroupId,
    spe::{Class, SpeRow},
};
use probe_user::{
    session::SamplingConfig,
    snapshot::{SampleCounts, SampledEventHealth},
    window::{MemLevel, Owner, SampleUsage, SampleWindow, Window},
};
use test_harness::{Counting, Load, TestCgroup, machine, pmuscope, this_machine};

use crate::{
    access_support::{MIXES, OTHER, Op, PERIOD, Truth, events, sampling, set_mix},
    cli::{command, run_with_load},
    guest::{skip, value},
    testpmu::TestPmu,
};

/// Runs two containers with the mixes to their end in a session that samples them.
fn sample(pmu: &TestPmu, config: SamplingConfig) -> ([TestCgroup; 2], Window) {
    let cgroups = ["one", "two"].map(TestCgroup::new);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        set_mix(pmu, cgroup.id, mix);
    }
    // Both loads execute about the same number of operations, however rarely the host runs their
    // CPUs.
    let loads = ["burn 0 400", "bursts 1 300 300 600"];
    pmu.control("sample ops_per_tick 100000");
    let mut loads: Vec<Load> = cgroups
        .iter()
        .zip(loads)
        .map(|(cgroup, words)| cgroup.load(words))
        .collect();
    let mut counting = Counting::with("task-clock", |it| it.sampling = Some(config));
    loads.iter_mut().for_each(Load::go);
    loads.into_iter().for_each(|load| drop(load.finish()));
    // No samples are raised from here on, so that raised and taken samples can be compared.
    pmu.control("sample ops_per_tick 0");
    (cgroups, counting.window())
}

fn access_window(window: &Window) -> &SampleWindow {
    window.samples.as_ref().unwrap()
}

/// The accounting of each sampled event.
fn health_of(window: &Window) -> Vec<&SampledEventHealth> {
    let events = access_window(window).events.iter();
    events.map(|event| &event.health).collect()
}

type Accesses = BTreeMap<(Class, MemLevel), SampleCounts>;

/// Samples by kind of access. Asserts that each kind comes from one event only.
fn accesses(usage: &SampleUsage) -> Accesses {
    let mut accesses = Accesses::new();
    for (kind, counts) in usage {
        let access = kind.access.unwrap();
        if access.0 != Class::Other {
            let other = accesses.insert(access, *counts);
            assert!(other.is_none(), "{kind:?}");
        }
    }
    accesses
}

fn cgroup_usage(window: &Window, cgroup: CgroupId) -> Accesses {
    let owner = Owner { cgroup, tgid: 0 };
    let usage = access_window(window).usage.get(&owner);
    usage.map_or_else(Accesses::new, accesses)
}

/// Asserts that an operation's taken samples are the raised ones, with their latencies and walks.
/// At most `missed` of them may be missing.
#[track_caller]
fn assert_taken(window: &Window, cgroup: CgroupId, op: &Op, raised: u64, missed: u64) {
    let Some(kind) = op.kind else { return };
    let usage = cgroup_usage(window, cgroup);
    let counts = usage.get(&kind).copied().unwrap_or_default();
    println!("{kind:?}: raised {raised}, taken {}", counts.samples);
    if missed == 0 {
        assert_eq!(counts.samples, raised, "{kind:?}");
    }
    assert!(
        counts.samples <= raised && raised <= counts.samples + missed,
        "{kind:?}: {} of {raised}, missed {missed}",
        counts.samples
    );
    if counts.samples == 0 {
        return;
    }
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs();
    let SampleCounts {
        operations,
        cycles,
        histogram,
        walks,
        ..
    } = counts;
    if op.latency == 0 {
        assert!(cycles == 0.0 && histogram.iter().all(|count| *count == 0.0));
    } else {
        let latency = u16::try_from(op.latency).unwrap();
        assert!(near(cycles / operations, f64::from(latency)), "{counts:?}");
        let bucket = histogram[SpeRow::bucket(latency)];
        assert!(near(bucket, operations), "{counts:?}");
    }
    let walked = if op.data_src >> 26 & 0x14 == 0x14 {
        operations
    } else {
        0.0
    };
    assert!(near(walks, walked), "{counts:?}");
}

/// The number of raised samples that are in no row of their owner: they were missed, or the kernel
/// had no memory for a row.
fn without_row(raised: u64, health: &SampledEventHealth) -> u64 {
    raised - health.sum.samples + health.sum.overflow.samples
}

/// Samples on the page of an address. The stores of both mixes are on the same page.
fn page_samples(window: &Window, address: u64) -> u64 {
    let page = address / rustix::param::page_size() as u64;
    let rows = (access_window(window).pages.iter()).filter(|(key, _)| key.page == page);
    rows.map(|(_, row)| row.samples).sum()
}

#[test]
fn ibs_samples_are_charged_to_their_containers() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=ibs");
    let (cgroups, window) = sample(&pmu, sampling(events(Some(PERIOD), None)));
    let truth = Truth::read("ibs_op");
    let health = health_of(&window)[0];
    let (all, missed) = (truth.all_raised(), health.missed);
    println!("of {all} samples {missed} were missed: {health:?}");
    assert!(all > 100, "{all}");
    // A missed sample is detected only at the CPU's next sample.
    let cpus = this_machine().online().unwrap().iter().count() as u64;
    assert!(health.sum.samples <= all && all <= health.sum.samples + missed + cpus);
    let without_row = without_row(all, health);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in mix {
            let raised = truth.raised(cgroup.id, op);
            assert!(raised > 0);
            assert_taken(&window, cgroup.id, op, raised, without_row);
        }
    }
    // Samples without an access are in no row, but counted.
    let others = truth.raised(cgroups[0].id, &OTHER) + truth.others;
    assert!(health.sum.others <= others && others <= health.sum.others + without_row);
    let kinds = accesses(&access_window(&window).total.total).len();
    assert_eq!(kinds, 6, "{:?}", window.samples);
    let loads = |mix: &[Op]| -> Vec<Op> {
        let loads = mix.iter().filter(|op| op.data_src & 0x02 != 0);
        loads.copied().collect()
    };
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in loads(mix) {
            let taken = cgroup_usage(&window, cgroup.id)[&op.kind.unwrap()].samples;
            let on_page = page_samples(&window, op.address);
            assert!(
                taken <= on_page + health.sum.unpaged,
                "{on_page} of {taken}"
            );
            assert!(
                on_page <= taken + health.sum.overflow.samples,
                "{on_page} of {taken}"
            );
        }
    }
    assert_estimates_are_executed(&window, &truth, &cgroups);
}

/// Asserts that estimates match the executed accesses: the executed operations, times the share of
/// accesses in the mix. A period that another container began on a CPU adds to the error.
#[track_caller]
fn assert_estimates_are_executed(window: &Window, truth: &Truth, cgroups: &[TestCgroup; 2]) {
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        let weights = |ops: &mut dyn Iterator<Item = &Op>| ops.map(|op| op.weight).sum::<u64>();
        let accesses = weights(&mut mix.iter().filter(|op| op.kind.is_some())) as f64;
        let share = accesses / weights(&mut mix.iter()) as f64;
        let executed = truth.executed[&cgroup.id.0] as f64 * share;
        let usage = cgroup_usage(window, cgroup.id);
        let estimated: f64 = usage.values().map(|counts| counts.operations).sum();
        println!(
            "{}: executed {executed}, estimated {estimated}",
            cgroup.path
        );
        let sampled = usage.values().map(|counts| counts.samples).sum::<u64>() as f64;
        // An incomplete round of the mix, and incomplete periods.
        let slack = (mix.len() + 4) as f64 * PERIOD as f64 + executed / sampled.max(1.0);
        assert!((estimated - executed).abs() <= slack, "{slack}");
    }
}

/// Every third sample is dropped. The event's own count reveals the dropped samples, and the
/// weights of later samples make up for them.
#[test]
fn weights_of_later_samples_make_up_for_dropped_ones() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=ibs");
    pmu.control("sample lose_every 3");
    let (cgroups, window) = sample(&pmu, sampling(events(Some(PERIOD), None)));
    let truth = Truth::read("ibs_op");
    let health = health_of(&window)[0];
    let due = truth.lost + truth.all_raised();
    println!("of {due} samples {} were dropped: {health:?}", truth.lost);
    assert!(truth.lost > 30, "{}", truth.lost);
    // Includes samples that the kernel itself dropped.
    let missed = due - health.sum.samples;
    assert!(health.missed.abs_diff(missed) <= 4, "{missed}");
    let without_row = without_row(due, health);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in mix {
            let raised = truth.raised(cgroup.id, op);
            assert_taken(&window, cgroup.id, op, raised, without_row - truth.lost);
        }
    }
    let estimated: f64 = access_window(&window)
        .total
        .total
        .values()
        .map(|counts| counts.operations)
        .sum();
    // Samples without an access stand for operations that access no memory.
    let accesses = (health.sum.samples - health.sum.others) as f64 / health.sum.samples as f64;
    let counted = health.counted as f64 * accesses;
    println!("counted {counted}, estimated {estimated}");
    assert!((estimated - counted).abs() <= 0.05 * counted);
}

#[test]
fn intel_loads_and_stores_are_charged_to_their_containers() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let pmu = TestPmu::load("set=pebs");
    let (cgroups, window) = sample(&pmu, sampling(events(Some(PERIOD), None)));
    let health = health_of(&window);
    println!("{health:?}");
    let without_rows: Vec<u64> = ["mem-loads", "mem-stores"]
        .iter()
        .zip(&health)
        .map(|(event, health)| {
            let all = Truth::read(event).all_raised();
            assert!(all > 100, "{event}: {all}");
            // The driver buffers records, but passes all to a program that asks for a wake-up.
            let missed = all - health.sum.samples;
            assert!(missed <= health.missed + 2, "{event}: {missed}");
            without_row(all, health)
        })
        .collect();
    let [loads, stores] = ["mem-loads", "mem-stores"].map(Truth::read);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in mix {
            let (truth, without_row) = match op.kind {
                Some((Class::Load, _)) => (&loads, without_rows[0]),
                _ => (&stores, without_rows[1]),
            };
            let raised = truth.raised(cgroup.id, op);
            assert_taken(&window, cgroup.id, op, raised, without_row);
        }
        // The core chooses the sampled loads, so only stores have an estimate.
        let usage = cgroup_usage(&window, cgroup.id);
        let estimated = usage[&(Class::Store, MemLevel::Unknown)].operations;
        let executed = stores.executed[&cgroup.id.0] as f64;
        println!(
            "{}: executed {executed}, estimated {estimated}",
            cgroup.path
        );
        assert!((estimated - executed).abs() <= 4.0 * PERIOD as f64 + executed * 0.01);
    }
    let tagged = access_window(&window).tagged();
    // Samples in the overflow row have no class.
    let mut classes = vec![Class::Load];
    classes.extend((health[0].sum.overflow.samples > 0).then_some(Class::Other));
    assert_eq!(tagged.iter().copied().collect::<Vec<_>>(), classes);
}

/// With a frequency, the kernel starts with a period of 1, which no attribute can change, and finds
/// the right one by a burst of samples in one interrupt. The burst is in the rows of its owners.
#[test]
fn the_burst_of_a_cold_start_is_charged_to_its_owners() {
    let Some(_machine) = machine() else { return };
    for (set, names) in [
        ("ibs", &["ibs_op"][..]),
        ("pebs", &["mem-loads", "mem-stores"]),
    ] {
        if set == "pebs" && value("ARCH") == "arm64" {
            continue;
        }
        let pmu = TestPmu::load(&format!("set={set}"));
        let (_cgroups, window) = sample(&pmu, sampling(events(None, None)));
        let health = health_of(&window);
        for (name, health) in names.iter().zip(&health) {
            let raised = Truth::read(name).all_raised();
            println!("{set}: of {raised} samples of {name}: {health:?}");
            let sum = &health.sum;
            assert!(raised > 50 && sum.samples <= raised, "{raised}");
            assert_eq!((sum.full, sum.refused), (0, 0), "{name}");
        }
        // Every sample that a program got is in some row.
        let shown: u64 = health.iter().map(|it| it.sum.samples - it.sum.others).sum();
        let rows = access_window(&window).total.total.values();
        assert_eq!(rows.map(|row| row.samples).sum::<u64>(), shown);
    }
}

#[test]
fn short_loads_are_left_out() {
    let Some(_machine) = machine() else { return };
    let least = 200;
    for (set, event) in [("ibs", "ibs_op"), ("pebs", "mem-loads")] {
        if set == "pebs" && value("ARCH") == "arm64" {
            continue;
        }
        let pmu = TestPmu::load(&format!("set={set}"));
        let config = SamplingConfig {
            least_weight: least.into(),
            ..sampling(events(Some(PERIOD), Some(least)))
        };
        let (cgroups, window) = sample(&pmu, config);
        let truth = Truth::read(event);
        let health = health_of(&window)[0];
        let without_row = without_row(truth.all_raised(), health);
        let mut recorded = BTreeSet::new();
        for (cgroup, mix) in cgroups.iter().zip(MIXES) {
            // Stores have no latency, so they are not known to be short. On Intel they have a
            // separate event.
            for op in mix.iter().filter(|op| set == "ibs" || op.latency > 0) {
                let is_sampled = op.latency == 0 || op.latency >= u64::from(least);
                let raised = if is_sampled {
                    truth.raised(cgroup.id, op)
                } else {
                    0
                };
                assert_eq!(raised > 0, is_sampled, "{set}");
                assert_taken(&window, cgroup.id, op, raised, without_row);
                recorded.extend(op.kind.filter(|_| is_sampled));
            }
        }
        // Samples in the overflow row have the class `other`.
        let kinds: BTreeSet<_> = accesses(&access_window(&window).total.total)
            .into_keys()
            .filter(|(class, _)| *class != Class::Store || set == "ibs")
            .collect();
        assert_eq!(kinds, recorded, "{set}");
    }
}

/// The kernel's sysfs lacks the event that must lead the group.
#[test]
fn loads_without_their_group_leader_are_refused_with_the_reason() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let _pmu = TestPmu::load("set=pebs-noaux");
    let output = pmuscope().args(["mem", "--", "true"]).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    let error = messages.lines().last().unwrap();
    assert!(!output.status.success(), "{messages}");
    assert!(
        error.contains("cannot sample cpu/mem-loads,ldlat=3/ on CPU 0"),
        "{messages}"
    );
    assert!(
        error.contains("another event leads (`mem-loads-aux`)"),
        "{messages}"
    );
}

/// The output of `mem`: a row of the command with sources, latencies and pages.
#[test]
fn mem_shows_what_events_sampled() {
    let Some(_machine) = machine() else { return };
    let arguments = "mem --format json --period 50000 --hot-pages 2 --self";
    for (set, event) in [("ibs", "ibs_op"), ("pebs", "mem-loads")] {
        if set == "pebs" && value("ARCH") == "arm64" {
            continue;
        }
        let pmu = TestPmu::load(&format!("set={set}"));
        set_mix(&pmu, CgroupId(0), MIXES[0]);
        let (json, messages) = run_with_load(arguments, "burn 0 400");
        assert!(messages.contains("sampling by"), "{messages}");
        let classes = &command(&json)["classes"];
        let loads = &classes["load"];
        let shares = |source: &str| {
            let share = &loads["sources"][source]["memory_access_source_share"];
            ["low", "value", "high"].map(|end| share[end].as_f64().unwrap_or_default())
        };
        let [low, value, high] = shares("dram");
        println!("{event}: {loads}");
        assert!(low <= 0.2 && 0.2 <= high && value > 0.0, "{loads}");
        let operations = &loads["memory_accesses"];
        if set == "ibs" {
            assert!(operations["raw"].as_u64().unwrap() > 50, "{loads}");
        } else {
            assert!(operations["value"].is_null(), "{loads}");
            assert!(
                operations["reason"].as_str().unwrap().contains("chooses"),
                "{loads}"
            );
            assert!(
                loads["chosen_access_samples"]["raw"].as_u64().unwrap() > 50,
                "{loads}"
            );
        }
        assert!(classes["store"]["memory_accesses"]["raw"].as_u64().unwrap() > 10);
        let walks = &classes["store"]["memory_access_tlb_walk_share"]["value"];
        let walks = walks.as_f64().unwrap();
        assert!((walks - 1.0).abs() < 1e-9, "{classes}");
        // Only SPE has issue latencies.
        assert!(
            loads
                .get("memory_access_issue_latency_mean_cycles")
                .is_none()
        );
        let pages = json["pages"].as_array().unwrap().iter();
        let pages: Vec<&str> = pages.filter_map(|page| page["address"].as_str()).collect();
        assert!(pages.contains(&"0x7f0000010000"), "{pages:?}");
        assert!(json["self"]["samples"].as_u64().unwrap() > 100);
        assert!(json["self"].get("spe_records").is_none());
    }
}
