//! The events that the profile of a machine counts.

mod series;

use std::fs;

use test_support::sysfs;

use super::{profile::profile_request, *};
use crate::{
    catalogue::{Chip, Hardware, MetricSettings},
    machine::{Pmus, Roots},
    plan::{Capacity, CountSource},
};

/// The plan of the profile of a chip with this many sockets, on a recorded tree.
fn profile_plan(tree: &str, chip: &str, sockets: u32) -> Plan {
    plan_of(tree, chip, sockets, |count, hardware| {
        profile_request(&wanted(count), hardware).unwrap()
    })
}

/// The plan of `request` on a chip with this many sockets, on a recorded tree.
fn plan_of(
    tree: &str,
    chip: &str,
    sockets: u32,
    request: impl Fn(&config::Count, &Hardware) -> PlanRequest,
) -> Plan {
    let pmus = Pmus::read(&sysfs(tree)).unwrap();
    let hardware = Hardware {
        sockets: Some(sockets),
        ..Hardware::of_chip(Chip::named(chip).unwrap())
    };
    let catalogue = Catalogue::builtin().unwrap();
    let count = Config::default().count;
    assert_eq!(count.reserve_counters, 1);
    let capacity = Capacity::documented(&catalogue, &hardware, &pmus, count.reserve_counters);
    let request = request(&count, &hardware);
    let plan = request.packed(
        &pmus,
        &catalogue,
        hardware,
        // 144 CPUs, as on a Grace CPU Superchip.
        (&capacity, 144),
        MetricSettings::default(),
    );
    plan.unwrap()
}

/// The request of a configuration, without waits.
fn wanted(count: &config::Count) -> PlanRequest {
    configured_request(count, &Machine::at(Roots::below("/nonexistent".as_ref())))
}

/// Names of the events on the cores, by group.
fn groups(plan: &Plan) -> Vec<Vec<&str>> {
    let names = plan.groups.iter().map(|group| {
        let columns = group.iter().map(|planned| &plan.columns[planned.column]);
        columns.map(|column| column.name.as_str()).collect()
    });
    names.collect()
}

const SOFTWARE_EVENTS: [&str; 3] = ["task-clock", "page-faults", "context-switches"];

/// Asserts that the plan is one group on the PMU, without multiplexing, and software events.
#[track_caller]
fn assert_one_group(plan: &Plan, events: &[&str]) {
    assert_eq!((plan.rotated, &plan.weights_in_turns), (0, &None));
    assert_eq!(groups(plan), [SOFTWARE_EVENTS.to_vec(), events.to_vec()]);
}

const GRACE: [&str; 6] = [
    "cycles",
    "inst_retired",
    "stall_backend",
    "l2d_cache_refill",
    "ll_cache_miss_rd",
    "bus_access_wr",
];

#[test]
fn the_profile_of_grace_is_one_group_without_multiplexing() {
    for (chip, sockets) in [("grace-hopper", 1), ("grace-cpu-superchip", 2)] {
        let plan = profile_plan("grace", chip, sockets);
        assert_one_group(&plan, &GRACE);
        let weights: Vec<&str> = plan.weights.iter().map(|weight| &*weight.name).collect();
        assert_eq!(weights, ["llc_read_misses", "bus_writes"]);
        assert!(!plan.uncore.is_empty());
    }
}

#[test]
fn the_profile_of_spr_is_one_group_without_multiplexing() {
    let plain = ["cycles", "instructions", "cache-misses", "stalls_l2_miss"];
    // A core has two registers for the masks of offcore events.
    let one = [
        "cpu/event=0x2a,umask=0x1,offcore_rsp=0x3f3fc04477/",
        "cpu/event=0x2a,umask=0x1,offcore_rsp=0xfbff80822/",
    ];
    let two = ["local_dram_reads", "remote_dram_reads"];
    for (chip, sockets, offcore, weights) in [
        (
            "sapphire-rapids",
            1,
            one,
            vec!["l3_read_misses", "memory_writes"],
        ),
        ("sapphire-rapids", 2, two, vec!["dram_reads"]),
        ("emerald-rapids", 2, two, vec!["dram_reads"]),
    ] {
        let plan = profile_plan("spr", chip, sockets);
        assert_one_group(&plan, &[plain.as_slice(), &offcore].concat());
        let named: Vec<&str> = plan.weights.iter().map(|weight| &*weight.name).collect();
        assert_eq!(named, weights, "{sockets} sockets");
        assert!(!plan.uncore.is_empty());
    }
}

/// A plan reduced by a smaller budget can still be counted.
#[test]
fn a_plan_with_fewer_counters_refers_only_to_them() {
    let grace = profile_plan("grace", "grace-hopper", 1);
    assert_eq!(grace.reads(), (6, 3));
    let one_hardware = grace.clone().degraded(1, 3);
    assert_eq!(
        groups(&one_hardware),
        [SOFTWARE_EVENTS.to_vec(), vec!["cycles"]]
    );
    assert!(
        one_hardware.weights.is_empty(),
        "the events that divide traffic are not counted"
    );
    let no_hardware = grace.clone().degraded(0, 1);
    assert_eq!(groups(&no_hardware), [["task-clock"]]);
    assert_eq!(groups(&grace.clone().degraded(6, 3)), groups(&grace));
    assert_eq!(grace.clone().degraded(6, 3).weights, grace.weights);

    let all_metrics = |count: &config::Count, _: &Hardware| PlanRequest {
        metrics: vec!["all".to_owned()],
        ..wanted(count)
    };
    let multiplexed = plan_of("spr", "sapphire-rapids", 2, all_metrics);
    assert!(multiplexed.rotated > 1);
    let (hardware, software) = multiplexed.reads();
    for reads in [
        (hardware, software),
        (hardware / 2, software),
        (1, software),
        (0, 1),
    ] {
        let fewer = multiplexed.clone().degraded(reads.0, reads.1);
        assert_eq!(fewer.reads(), reads);
        assert!(fewer.rotated <= fewer.groups.len());
        assert!(fewer.groups.iter().all(|group| !group.is_empty()));
        // Columns and metrics of the reduced plan refer only to its own counters.
        let exists = |place: CountSource| match place {
            CountSource::Core { group, at } => at < fewer.groups[group].len(),
            CountSource::Uncore { at } => at < fewer.uncore.len(),
            CountSource::Duration | CountSource::Sampled(_) => true,
        };
        assert!(fewer.columns.iter().all(|column| exists(column.place)));
        let planned = fewer.groups.iter().flatten().chain(&fewer.uncore);
        for planned in planned {
            // A counter has the same column as in the whole plan.
            let before = multiplexed
                .groups
                .iter()
                .flatten()
                .chain(&multiplexed.uncore);
            let mut before = before.filter(|it| it.opened() == planned.opened());
            let name = &fewer.columns[planned.column].name;
            assert!(
                before.any(|it| multiplexed.columns[it.column].name == *name),
                "{name}"
            );
        }
        for metric in &fewer.metrics.list {
            let sources = metric.sources.iter().flatten();
            let mut events = sources.flat_map(|source| &source.events);
            assert!(
                events.all(|(_, place)| exists(*place)),
                "{}",
                metric.metric.name
            );
        }
    }
}

/// A profile is not multiplexed, so it has no message.
#[test]
fn a_message_says_how_many_groups_are_multiplexed() {
    let online: CpuList = (0..4).collect();
    let profile = profile_plan("spr", "sapphire-rapids", 1);
    assert_eq!(multiplexing(&profile, &online), None);
    let named = plan_of("zen4-guest", "epyc-zen4", 1, |count, _| PlanRequest {
        events: vec!["{cycles,instructions,branches},{cache-misses,branch-misses,cycles:u}".into()],
        ..wanted(count)
    });
    assert_eq!(
        multiplexing(&named, &online).unwrap(),
        "2 groups of counters are multiplexed: each counts 50% of the time"
    );
}

/// Platforms without a profile count what fits the PMU at one time.
#[test]
fn only_some_platforms_have_a_profile() {
    let count = Config::default().count;
    for chip in ["other", "epyc-zen4"] {
        let hardware = Hardware::of_chip(Chip::named(chip).unwrap());
        assert!(profile_request(&wanted(&count), &hardware).is_none());
    }
    // A configuration that names something does not use the profile.
    let named = config::Count {
        metrics: vec!["ipc".to_owned()],
        ..count
    };
    let hardware = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    assert!(profile_request(&wanted(&named), &hardware).is_none());
}

/// A fleet has one configuration: calibrations of other types of machines are no error.
#[test]
fn calibrations_of_other_machines_are_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let count = config::Count {
        calibration: Some(directory.path().to_owned()),
        ..Config::default().count
    };
    let machine = Machine::this();
    assert!(calibration(&count, &machine).unwrap().is_empty());
    fs::write(directory.path().join("a.toml"), "format = 2").unwrap();
    let wrong = calibration(&count, &machine).unwrap_err().to_string();
    assert!(wrong.starts_with("count.calibration: "), "{wrong}");
}
