//! Memory accesses that events sample, against PMUs that know what they raised: AMD's `ibs_op`, and
//! Intel's events of loads and stores.

use std::collections::BTreeSet;

use probe_common::{
    CgroupId,
    spe::{Class, SpeRow},
};
use probe_user::{
    session::SamplingConfig,
    snapshot::{SampledHealth, SpeCounts},
    window::{Owner, Sampler, Served, SpeUsage, SpeWindow, Window},
};

use crate::{
    access_support::{MIXES, OTHER, Op, PERIOD, Truth, events, give, sampling},
    cli::{command, run_with_load},
    guest::{skip, value},
    support::{Counting, Load, TestCgroup, machine, pmuscope, this_machine},
    testpmu::TestPmu,
};

/// Two containers with the mixes run to their end beside a session that samples them.
fn sample(pmu: &TestPmu, config: SamplingConfig) -> ([TestCgroup; 2], Window) {
    let cgroups = ["one", "two"].map(TestCgroup::new);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        give(pmu, cgroup.id, mix);
    }
    // As much of each however seldom the host runs its CPU.
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
    // Nothing is raised from here on, so that what was raised and what was taken can be compared.
    pmu.control("sample ops_per_tick 0");
    (cgroups, counting.window())
}

fn accessed(window: &Window) -> &SpeWindow {
    window.samples.as_ref().unwrap()
}

fn of(window: &Window, cgroup: CgroupId) -> SpeUsage {
    let owner = Owner { cgroup, tgid: 0 };
    accessed(window)
        .usage
        .get(&owner)
        .cloned()
        .unwrap_or_default()
}

/// Asserts that what was taken of an operation is what was raised: its samples, latencies, walks
/// and page. Where samples were missed it is no more than that.
#[track_caller]
fn assert_taken(window: &Window, cgroup: CgroupId, op: &Op, raised: u64, missed: u64) {
    let Some(kind) = op.kind else { return };
    let usage = of(window, cgroup);
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
    let SpeCounts {
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
    let walked = if op.word >> 26 & 0x14 == 0x14 {
        operations
    } else {
        0.0
    };
    assert!(near(walks, walked), "{counts:?}");
}

/// Of so many samples that were raised, those that are in no row of their owner: missed, or the
/// kernel had no memory at hand for a row.
fn unseen(raised: u64, health: &SampledHealth) -> u64 {
    raised - health.sum.samples + health.sum.overflow.samples
}

/// Samples of the page of an address. Stores of both mixes have the same one.
fn of_page(window: &Window, address: u64) -> u64 {
    let page = address / rustix::param::page_size() as u64;
    let pages = accessed(window).pages.iter();
    let of_page = pages.filter(|(key, _)| key.page == page);
    of_page.map(|(_, row)| row.samples).sum()
}

#[test]
fn ibs_samples_are_their_containers() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=ibs");
    let (cgroups, window) = sample(&pmu, sampling(events(Some(PERIOD), None)));
    let truth = Truth::of("ibs_op");
    let health = &window.sampled.as_ref().unwrap().events[0];
    let (all, missed) = (truth.all_raised(), health.missed);
    println!("of {all} samples {missed} were missed: {health:?}");
    assert!(all > 100, "{all}");
    // A missed one is known from a full period later on.
    let cpus = this_machine().online().unwrap().iter().count() as u64;
    assert!(health.sum.samples <= all && all <= health.sum.samples + missed + cpus);
    let unseen = unseen(all, health);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in mix {
            let raised = truth.raised(cgroup.id, op);
            assert!(raised > 0);
            assert_taken(&window, cgroup.id, op, raised, unseen);
        }
    }
    // What is no access is in no row, and counted.
    let others = truth.raised(cgroups[0].id, &OTHER) + truth.others;
    assert!(health.sum.others <= others && others <= health.sum.others + unseen);
    let kinds = accessed(&window).total.total.keys();
    let kinds = kinds.filter(|(class, _)| *class != Class::Other).count();
    assert_eq!(kinds, 6, "{:?}", window.samples);
    let loads = |mix: &[Op]| -> Vec<Op> {
        let loads = mix.iter().filter(|op| op.word & 0x02 != 0);
        loads.copied().collect()
    };
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in loads(mix) {
            let taken = of(&window, cgroup.id)[&op.kind.unwrap()].samples;
            let of_page = of_page(&window, op.address);
            assert!(
                taken <= of_page + health.sum.unpaged,
                "{of_page} of {taken}"
            );
            assert!(
                of_page <= taken + health.sum.overflow.samples,
                "{of_page} of {taken}"
            );
        }
    }
    estimates_what_was_executed(&window, &truth, &cgroups);
}

/// Accesses are the same share of what was executed as of the mix; a period that is under way on a
/// CPU may be another's.
#[track_caller]
fn estimates_what_was_executed(window: &Window, truth: &Truth, cgroups: &[TestCgroup; 2]) {
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        let weights = |ops: &mut dyn Iterator<Item = &Op>| ops.map(|op| op.weight).sum::<u64>();
        let accesses = weights(&mut mix.iter().filter(|op| op.kind.is_some())) as f64;
        let share = accesses / weights(&mut mix.iter()) as f64;
        let executed = truth.executed[&cgroup.id.0] as f64 * share;
        let usage = of(window, cgroup.id);
        let estimated: f64 = usage.values().map(|counts| counts.operations).sum();
        println!(
            "{}: executed {executed}, estimated {estimated}",
            cgroup.path
        );
        let sampled = usage.values().map(|counts| counts.samples).sum::<u64>() as f64;
        // A round of the mix that is not whole, and the periods under way.
        let slack = (mix.len() + 4) as f64 * PERIOD as f64 + executed / sampled.max(1.0);
        assert!((estimated - executed).abs() <= slack, "{slack}");
    }
}

/// Every third sample is held back: they are known by the event's own count, and the others stand
/// for them.
#[test]
fn samples_that_are_held_back_are_made_up_for() {
    let Some(_machine) = machine() else { return };
    let pmu = TestPmu::load("set=ibs");
    pmu.control("sample lose_every 3");
    let (cgroups, window) = sample(&pmu, sampling(events(Some(PERIOD), None)));
    let truth = Truth::of("ibs_op");
    let health = &window.sampled.as_ref().unwrap().events[0];
    let due = truth.lost + truth.all_raised();
    println!("of {due} samples {} were held back: {health:?}", truth.lost);
    assert!(truth.lost > 30, "{}", truth.lost);
    // Those that the kernel itself did not show too. One that is raised after the rows were read,
    // and before the counts were, is taken for missed.
    let missed = due - health.sum.samples;
    assert!(
        missed <= health.missed + 2 && health.missed <= missed + 16,
        "{missed}"
    );
    let unseen = unseen(due, health);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in mix {
            let raised = truth.raised(cgroup.id, op);
            assert_taken(&window, cgroup.id, op, raised, unseen - truth.lost);
        }
    }
    let estimated: f64 = accessed(&window)
        .total
        .total
        .values()
        .map(|counts| counts.operations)
        .sum();
    // What is no access stands for itself.
    let kept = (health.sum.samples - health.sum.others) as f64 / health.sum.samples as f64;
    let counted = health.counted as f64 * kept;
    println!("counted {counted}, estimated {estimated}");
    assert!((estimated - counted).abs() <= 0.05 * counted);
}

#[test]
fn intels_loads_and_stores_are_their_containers() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let pmu = TestPmu::load("set=pebs");
    let (cgroups, window) = sample(&pmu, sampling(events(Some(PERIOD), None)));
    let health = &window.sampled.as_ref().unwrap().events;
    println!("{health:?}");
    let unseen: Vec<u64> = ["mem-loads", "mem-stores"]
        .iter()
        .zip(health)
        .map(|(event, health)| {
            let all = Truth::of(event).all_raised();
            assert!(all > 100, "{event}: {all}");
            // Of a driver that buffers records a program sees all, since it asks for a wake-up.
            let missed = all - health.sum.samples;
            assert!(missed <= health.missed + 2, "{event}: {missed}");
            unseen(all, health)
        })
        .collect();
    let [loads, stores] = ["mem-loads", "mem-stores"].map(Truth::of);
    for (cgroup, mix) in cgroups.iter().zip(MIXES) {
        for op in mix {
            let (truth, unseen) = match op.kind {
                Some((Class::Load, _)) => (&loads, unseen[0]),
                _ => (&stores, unseen[1]),
            };
            let raised = truth.raised(cgroup.id, op);
            assert_taken(&window, cgroup.id, op, raised, unseen);
        }
        // Loads are those that the core chose; stores are counted.
        let usage = of(&window, cgroup.id);
        let estimated = usage[&(Class::Store, Served::NotSaid)].operations;
        let executed = stores.executed[&cgroup.id.0] as f64;
        println!(
            "{}: executed {executed}, estimated {estimated}",
            cgroup.path
        );
        assert!((estimated - executed).abs() <= 4.0 * PERIOD as f64 + executed * 0.01);
    }
    let Sampler::Events { tagged, .. } = &accessed(&window).sampler else {
        panic!("{:?}", window.samples);
    };
    // What found no room in its row has no class.
    let mut classes = vec![Class::Load];
    classes.extend((health[0].sum.overflow.samples > 0).then_some(Class::Other));
    assert_eq!(tagged.iter().copied().collect::<Vec<_>>(), classes);
}

/// The kernel begins a frequency with a period of 1, which no attribute can say otherwise, and
/// finds the right one by a burst of samples in one interrupt. These are in the rows of their
/// owners.
#[test]
fn the_burst_of_a_cold_start_is_in_rows() {
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
        let health = &window.sampled.as_ref().unwrap().events;
        for (name, health) in names.iter().zip(health) {
            let raised = Truth::of(name).all_raised();
            println!("{set}: of {raised} samples of {name}: {health:?}");
            let sum = &health.sum;
            assert!(raised > 50 && sum.samples <= raised, "{raised}");
            assert_eq!((sum.full, sum.refused), (0, 0), "{name}");
        }
        // Whatever a program was shown is somewhere.
        let shown: u64 = health.iter().map(|it| it.sum.samples - it.sum.others).sum();
        let rows = accessed(&window).total.total.values();
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
        let truth = Truth::of(event);
        let health = &window.sampled.as_ref().unwrap().events[0];
        let unseen = unseen(truth.all_raised(), health);
        let mut kept = BTreeSet::new();
        for (cgroup, mix) in cgroups.iter().zip(MIXES) {
            // Stores have no latency, so that they are not known to be short; those of Intel's are
            // of an event of their own.
            for op in mix.iter().filter(|op| set == "ibs" || op.latency > 0) {
                let stays = op.latency == 0 || op.latency >= u64::from(least);
                let raised = if stays {
                    truth.raised(cgroup.id, op)
                } else {
                    0
                };
                assert_eq!(raised > 0, stays, "{set}");
                assert_taken(&window, cgroup.id, op, raised, unseen);
                kept.extend(op.kind.filter(|_| stays));
            }
        }
        let kinds = accessed(&window).total.total.keys().copied();
        // What found no room has the class `other`.
        let kinds: BTreeSet<_> = kinds
            .filter(|(class, _)| match class {
                Class::Other => false,
                Class::Store => set == "ibs",
                _ => true,
            })
            .collect();
        assert_eq!(kinds, kept, "{set}");
    }
}

/// What a kernel says that does not name the event which must lead, and what we make of it.
#[test]
fn loads_without_their_leader_are_refused_in_a_sentence() {
    let Some(_machine) = machine() else { return };
    if value("ARCH") == "arm64" {
        return skip("Intel's core PMU is named cpu, and counts the generic events of amd64 alone");
    }
    let _pmu = TestPmu::load("set=pebs-noaux");
    let output = pmuscope().args(["mem", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().last().unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(
        error.contains("cannot sample cpu/mem-loads,ldlat=3/ on CPU 0"),
        "{said}"
    );
    assert!(
        error.contains("another event leads (`mem-loads-aux`)"),
        "{said}"
    );
}

/// As a user sees it: a row of the command with sources, latencies and pages.
#[test]
fn mem_shows_what_events_sampled() {
    let Some(_machine) = machine() else { return };
    let arguments = "mem --format json --period 50000 --hot-pages 2 --self";
    for (set, event) in [("ibs", "ibs_op"), ("pebs", "mem-loads")] {
        if set == "pebs" && value("ARCH") == "arm64" {
            continue;
        }
        let pmu = TestPmu::load(&format!("set={set}"));
        give(&pmu, CgroupId(0), MIXES[0]);
        let (json, said) = run_with_load(arguments, "burn 0 400");
        assert!(said.contains("sampling by"), "{said}");
        let classes = &command(&json)["classes"];
        let loads = &classes["load"];
        let shares = |source: &str| {
            let share = &loads["sources"][source]["spe_source_share"];
            ["low", "value", "high"].map(|end| share[end].as_f64().unwrap_or_default())
        };
        let [low, value, high] = shares("dram");
        println!("{event}: {loads}");
        assert!(low <= 0.2 && 0.2 <= high && value > 0.0, "{loads}");
        let operations = &loads["spe_operations"];
        if set == "ibs" {
            assert!(operations["raw"].as_u64().unwrap() > 50, "{loads}");
        } else {
            assert!(operations["value"].is_null(), "{loads}");
            assert!(
                operations["reason"].as_str().unwrap().contains("chooses"),
                "{loads}"
            );
            assert!(
                loads["spe_samples"]["raw"].as_u64().unwrap() > 50,
                "{loads}"
            );
        }
        assert!(classes["store"]["spe_operations"]["raw"].as_u64().unwrap() > 10);
        let walks = &classes["store"]["spe_tlb_walk_share"]["value"];
        let walks = walks.as_f64().unwrap();
        assert!((walks - 1.0).abs() < 1e-9, "{classes}");
        // Only SPE tells when an operation was issued.
        assert!(loads.get("spe_issue_latency_mean_cycles").is_none());
        let pages = json["pages"].as_array().unwrap().iter();
        let pages: Vec<&str> = pages.filter_map(|page| page["address"].as_str()).collect();
        assert!(pages.contains(&"0x7f0000010000"), "{pages:?}");
        assert!(json["self"]["samples"].as_u64().unwrap() > 100);
        assert!(json["self"].get("spe_records").is_none());
    }
}
