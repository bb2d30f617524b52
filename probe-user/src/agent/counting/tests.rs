//! The profile of a machine: what it counts, and how many series it makes.

use std::{collections::BTreeMap, io::Write as _, time::Duration};

use flate2::{Compression, write::GzEncoder};
use probe_common::{
    CgroupId, UsageRow,
    spe::{Class, Source},
};

use super::*;
use crate::{
    catalogue::{Chip, Settings},
    derive::{Report, Subject},
    emit::{Dialect, Exposition},
    join::Entity,
    machine::Pmus,
    plan::{Capacity, CountSource},
    snapshot::{SpeCounts, UncoreReading},
    sys::tree::fixture,
    window::{self, Counted, Owner, Served, SpeUsage, Usage, Window, sampled_window},
};

/// Of all recorded machines: the profile by name of the tree and the chip, on so many sockets.
fn planned(tree: &str, chip: &str, sockets: u32) -> Plan {
    planned_as(tree, chip, sockets, |count, told| {
        of_profile(count, told).unwrap()
    })
}

/// What is wanted, on such a machine.
fn planned_as(
    tree: &str,
    chip: &str,
    sockets: u32,
    wanted: impl Fn(&Count, &Hardware) -> Wanted,
) -> Plan {
    let pmus = Pmus::read(&fixture(&format!("sysfs/{tree}"))).unwrap();
    let told = Hardware {
        sockets: Some(sockets),
        ..Hardware::of_chip(Chip::named(chip).unwrap())
    };
    let catalogue = Catalogue::builtin().unwrap();
    let count = Config::default().count;
    assert_eq!(count.reserve_counters, 1);
    let capacity = Capacity::documented(&catalogue, &told, &pmus, count.reserve_counters);
    let wanted = wanted(&count, &told);
    let plan = wanted.packed(
        &pmus,
        &catalogue,
        told,
        (&capacity, 144),
        Settings::default(),
    );
    plan.unwrap()
}

/// The names of what is counted on the cores, by group.
fn groups(plan: &Plan) -> Vec<Vec<&str>> {
    let names = plan.groups.iter().map(|group| {
        let columns = group.iter().map(|planned| &plan.columns[planned.column]);
        columns.map(|column| column.name.as_str()).collect()
    });
    names.collect()
}

const SOFTWARE_EVENTS: [&str; 3] = ["task-clock", "page-faults", "context-switches"];

/// Asserts that it is one group on the PMU, all the time, and software events, and no more.
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
fn on_grace_it_is_one_group_without_turns() {
    for (chip, sockets) in [("grace-hopper", 1), ("grace-cpu-superchip", 2)] {
        let plan = planned("grace", chip, sockets);
        assert_one_group(&plan, &GRACE);
        let weights: Vec<&str> = plan.weights.iter().map(|weight| &*weight.name).collect();
        assert_eq!(weights, ["llc_read_misses", "bus_writes"]);
        assert!(!plan.uncore.is_empty());
    }
}

#[test]
fn on_spr_it_is_one_group_without_turns() {
    let plain = ["cycles", "instructions", "cache-misses", "stalls_l2_miss"];
    // A core has two registers for the masks of these.
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
        let plan = planned("spr", chip, sockets);
        assert_one_group(&plan, &[plain.as_slice(), &offcore].concat());
        let named: Vec<&str> = plan.weights.iter().map(|weight| &*weight.name).collect();
        assert_eq!(named, weights, "{sockets} sockets");
        assert!(!plan.uncore.is_empty());
    }
}

/// What a smaller budget leaves of a plan is one that can be counted.
#[test]
fn a_plan_with_fewer_counters_is_whole() {
    let grace = planned("grace", "grace-hopper", 1);
    assert_eq!(grace.reads(), (6, 3));
    let one = grace.clone().with_fewer(1, 3);
    assert_eq!(groups(&one), [SOFTWARE_EVENTS.to_vec(), vec!["cycles"]]);
    assert!(one.weights.is_empty(), "what tells shares is not counted");
    let none = grace.clone().with_fewer(0, 1);
    assert_eq!(groups(&none), [["task-clock"]]);
    assert_eq!(groups(&grace.clone().with_fewer(6, 3)), groups(&grace));
    assert_eq!(grace.clone().with_fewer(6, 3).weights, grace.weights);

    let all = |count: &Count, _: &Hardware| Wanted {
        metrics: vec!["all".to_owned()],
        ..by_name(count)
    };
    let turns = planned_as("spr", "sapphire-rapids", 2, all);
    assert!(turns.rotated > 1);
    let (hardware, software) = turns.reads();
    for kept in [
        (hardware, software),
        (hardware / 2, software),
        (1, software),
        (0, 1),
    ] {
        let fewer = turns.clone().with_fewer(kept.0, kept.1);
        assert_eq!(fewer.reads(), kept);
        assert!(fewer.rotated <= fewer.groups.len());
        assert!(fewer.groups.iter().all(|group| !group.is_empty()));
        // Each place is one of this plan, and what is computed needs no other.
        let is_there = |place: CountSource| match place {
            CountSource::Core { group, at } => at < fewer.groups[group].len(),
            CountSource::Uncore { at } => at < fewer.uncore.len(),
            CountSource::Duration | CountSource::Sampled(_) => true,
        };
        assert!(fewer.columns.iter().all(|column| is_there(column.place)));
        let planned = fewer.groups.iter().flatten().chain(&fewer.uncore);
        for planned in planned {
            // The column of a counter is that of the same event as before.
            let before = turns.groups.iter().flatten().chain(&turns.uncore);
            let mut before = before.filter(|it| it.opened() == planned.opened());
            let name = &fewer.columns[planned.column].name;
            assert!(
                before.any(|it| turns.columns[it.column].name == *name),
                "{name}"
            );
        }
        for metric in &fewer.metrics.list {
            let sources = metric.sources.iter().flatten();
            let mut events = sources.flat_map(|source| &source.events);
            assert!(
                events.all(|(_, place)| is_there(*place)),
                "{}",
                metric.metric.name
            );
        }
    }
}

/// Where the platform has no profile it is what the PMU counts at one time.
#[test]
fn elsewhere_there_is_no_profile() {
    let count = Config::default().count;
    for chip in ["other", "epyc-zen4"] {
        let told = Hardware::of_chip(Chip::named(chip).unwrap());
        assert!(of_profile(&count, &told).is_none());
    }
    // Nor where the configuration names something.
    let named = Count {
        metrics: vec!["ipc".to_owned()],
        ..count
    };
    let told = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    assert!(of_profile(&named, &told).is_none());
}

const SECOND: u64 = 1_000_000_000;

/// A window of one second in which containers, by number and by how much each used, used everything
/// that the plan counts, on both sockets.
fn window(plan: &Plan, sampled: bool, containers: &[(u64, u64)]) -> Window {
    let mut window = window::tests::empty();
    window.length = Duration::from_nanos(SECOND);
    let names = Arc::make_mut(&mut window.names);
    for (id, _) in containers {
        let path = format!("/system.slice/docker-{id:064}.scope");
        names.cgroups.insert(CgroupId(*id), path);
    }
    for (at, planned) in plan.uncore.iter().enumerate() {
        let crate::event::Scope::Uncore { cpus } = &planned.counter.scope else {
            panic!("an uncore event is counted per CPU");
        };
        let pmu = planned.counter.pmu.as_deref().unwrap();
        let named = crate::machine::named_node(pmu);
        let sockets = (0..).take(cpus.len()).map(|n| named.unwrap_or(n));
        window.uncore.extend(sockets.map(|socket| UncoreReading {
            at,
            socket,
            instance: 0,
            count: Some(1_000_000),
            skew: 3,
            enabled: SECOND,
            running: SECOND,
        }));
    }
    let usage = |scale: u64| -> Usage {
        let of = |group: &Vec<_>| {
            let mut row = UsageRow {
                enabled: SECOND,
                running: SECOND,
                ..UsageRow::ZERO
            };
            for (at, count) in row.counts.iter_mut().take(group.len()).enumerate() {
                *count = 10_000 * (at as u64 + 1) * scale;
            }
            Some(Counted::of(&row))
        };
        plan.groups.iter().map(of).collect()
    };
    let owner = |id| Owner {
        cgroup: CgroupId(id),
        tgid: 0,
    };
    for &(id, scale) in containers {
        window.usage.insert(owner(id), usage(scale));
        for socket in [0, 1] {
            window.on_socket.insert((socket, owner(id)), usage(scale));
        }
    }
    if sampled {
        let mut counts = SpeCounts {
            operations: 1e6,
            variance: 1e4,
            cycles: 9e6,
            squares: 1e8,
            ..SpeCounts::default()
        };
        counts.samples = 1000;
        counts.histogram[3] = 1e6;
        // What a Neoverse tells of loads; of stores nothing.
        let sources = [
            Source::L1d,
            Source::L2,
            Source::PeerCore,
            Source::LocalCluster,
            Source::SystemCache,
            Source::PeerCluster,
            Source::Remote,
            Source::Dram,
        ];
        let loads = sources.map(|source| ((Class::Load, Served::By(source)), counts));
        let mut samples: SpeUsage = loads.into_iter().collect();
        samples.insert((Class::Store, Served::NotSaid), counts);
        let mut all = sampled_window(BTreeMap::new());
        for (id, _) in containers {
            all.usage.insert(owner(*id), samples.clone());
        }
        all.total.total = samples.clone();
        all.total.delta = samples;
        window.samples = Some(all);
    }
    window
}

fn report(plan: &Plan, sampled: bool, containers: &[(u64, u64)]) -> Report {
    let window = window(plan, sampled, containers);
    let view = View {
        accesses: sampled.then(Hottest::default),
        ..View::default()
    };
    let joined = view.join(plan, &window, None);
    Report::new(plan, &window, &joined, &view)
}

/// How many series a container has.
fn series_of_container(plan: &Plan, sampled: bool) -> usize {
    let report = report(plan, sampled, &[(7, 3), (8, 1)]);
    let counts = Exposition::counts(&report);
    let subjects = report.subjects.iter().zip(counts);
    let of_seven = subjects.filter(|(subject, _)| {
        matches!(subject, Subject::Entity(Entity::Container { id, .. }) if id.ends_with('7'))
    });
    of_seven.map(|(_, count)| count).sum()
}

/// The promise of docs/agent.md.
#[test]
fn a_container_has_at_most_60_series() {
    let grace = planned("grace", "grace-hopper", 1);
    let superchip = planned("grace", "grace-cpu-superchip", 2);
    let spr = planned("spr", "sapphire-rapids", 2);
    let counts = [
        series_of_container(&grace, true),
        series_of_container(&superchip, true),
        series_of_container(&spr, false),
    ];
    println!("{counts:?}");
    assert!(
        counts.iter().all(|count| (20..=60).contains(count)),
        "{counts:?}"
    );
}

/// The table in docs/kubernetes.md: series and kB of a scrape, plain and compressed, by the number
/// of containers of a node. Counts have digits as real ones do.
#[test]
fn the_page_has_what_a_scrape_weighs() {
    let page = include_str!("../../../../docs/kubernetes.md");
    let machines = [
        (
            "Grace Hopper, sampled",
            planned("grace", "grace-hopper", 1),
            true,
        ),
        (
            "Grace CPU Superchip, sampled",
            planned("grace", "grace-cpu-superchip", 2),
            true,
        ),
        (
            "Sapphire Rapids, two sockets",
            planned("spr", "sapphire-rapids", 2),
            false,
        ),
    ];
    let mut rows = Vec::new();
    for (machine, plan, sampled) in machines {
        let mut row = format!("| {machine} |");
        for count in [10, 100, 300] {
            let containers: Vec<_> = (1..=count)
                .map(|id| (id, 1_000 + id * 7_919 % 100_003))
                .collect();
            let report = report(&plan, sampled, &containers);
            let series: usize = Exposition::counts(&report).iter().sum();
            let text = Exposition::default().write(&report, Dialect::Prometheus);
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&text).unwrap();
            let compressed = gzip.finish().unwrap().len();
            row += &format!(" {series}: {}, {} |", text.len() / 1000, compressed / 1000);
        }
        println!("{row}");
        rows.push(row);
    }
    let missing: Vec<_> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(
        missing.is_empty(),
        "docs/kubernetes.md has not {missing:#?}"
    );
}
