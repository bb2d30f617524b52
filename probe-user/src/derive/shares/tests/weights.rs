//! Which weights divide a socket's traffic, and the reasons in place of shares.

use super::*;
use crate::{
    calibration::{CalibratedTraffic, Pattern},
    catalogue::MemoryTraffic,
    join::share::Method,
};

fn plan_with_sockets(tree: &str, chip: &str, sockets: u32, metric: &str) -> Plan {
    let machine = Hardware {
        sockets: Some(sockets),
        ..Hardware::of_chip(Chip::named(chip).unwrap())
    };
    plan_of(tree, machine, metric)
}

fn spr(sockets: u32, metric: &str) -> Plan {
    plan_with_sockets("spr", "sapphire-rapids", sockets, metric)
}

fn names(plan: &Plan) -> Vec<(&str, bool)> {
    let weights = plan.weights.iter();
    weights
        .map(|weight| (&*weight.name, weight.remote.is_some()))
        .collect()
}

/// A million lines at the memory of each socket, by its two counters; none of devices.
fn lines(event: &str, _: u32) -> u64 {
    u64::from(event.contains("imc")) * 500_000
}

/// Adds counts of the weight of `traffic`, by socket and cgroup: accesses to local memory, and to
/// memory of the other socket.
fn add(window: &mut Window, plan: &Plan, traffic: MemoryTraffic, counts: &[(u32, u64, [u64; 2])]) {
    let weight = plan
        .weights
        .iter()
        .find(|weight| weight.of == traffic)
        .unwrap();
    for (socket, cgroup, counts) in counts {
        let owner = Owner::from(CgroupId(*cgroup));
        let usage = window.on_socket.entry((*socket, owner)).or_default();
        usage.resize(plan.groups.len(), None);
        for (place, count) in [Some(weight.all), weight.remote].into_iter().zip(counts) {
            let Some(CountSource::Core { group, at }) = place else {
                continue;
            };
            let row = usage[group].get_or_insert(GroupCounts::of(&UsageRow {
                enabled: 1_000_000_000,
                running: 1_000_000_000,
                ..UsageRow::ZERO
            }));
            row.counts[at] = *count;
        }
    }
}

/// The weights are events that include prefetches and streaming stores, in as few registers as
/// possible.
#[test]
fn weights_of_a_xeon_depend_on_the_number_of_sockets() {
    assert_eq!(
        names(&spr(1, "memory_bandwidth_read,memory_bandwidth_write")),
        [("l3_read_misses", false), ("memory_writes", false)]
    );
    assert_eq!(
        names(&spr(2, "memory_bandwidth_read")),
        [("dram_reads", true)]
    );
    let four = spr(4, "memory_bandwidth_read");
    assert_eq!(names(&four), [("llc_read_misses", false)]);
    for (tree, chip) in [("icx", "ice-lake-server"), ("gnr", "granite-rapids")] {
        let both = "memory_bandwidth_read,memory_bandwidth_write";
        assert_eq!(
            names(&plan_with_sockets(tree, chip, 1, both)),
            [("l3_read_misses", false), ("memory_writes", false)]
        );
        assert_eq!(
            names(&plan_with_sockets(tree, chip, 2, both)),
            [("dram_reads", true), ("memory_writes", false)]
        );
    }
}

/// Two sockets have no shares: the count of reads includes devices of the other socket. Writes have
/// no shares, since cores do not count them.
#[test]
fn the_reads_of_an_epyc_are_divided_by_fills_from_memory() {
    let metric = "memory_bandwidth_read";
    let epycs = [("zen4", "epyc-zen4", 4), ("zen5", "epyc-zen5", 8)];
    for (tree, chip, roots) in epycs {
        let plan = plan_with_sockets(tree, chip, 1, metric);
        assert_eq!(names(&plan), [("l2_fills_from_dram", false)]);
        let lines = |event: &str, _| {
            if event.contains("amd_df") {
                25_000
            } else {
                500_000
            }
        };
        let counts = [(0, 7, [300, 0]), (0, 8, [100, 0])];
        let mut window = window(&plan, &lines, &counts);
        // The fixture has two sockets.
        window.uncore.retain(|reading| reading.socket == 0);
        let io = roots * 1_600;
        assert_eq!(
            shares(&plan, &window),
            [
                row(metric, 0, "cgroup 7", (128_000 - io) / 4 * 3),
                row(metric, 0, "cgroup 8", (128_000 - io) / 4),
                row(metric, 0, "Io", io),
                row(metric, 0, "Unattributed", 0),
            ]
        );
        assert_eq!(names(&plan_with_sockets(tree, chip, 2, metric)), []);
        assert_eq!(
            names(&plan_with_sockets(tree, chip, 1, "memory_bandwidth_write")),
            []
        );
    }
}

/// The CPUs of both sockets read the memory of socket 0: cgroup 7 runs on socket 0, cgroup 8 on
/// socket 1.
#[test]
fn the_reads_of_two_xeons_are_divided_by_memory() {
    let metric = "memory_bandwidth_read";
    let plan = spr(2, metric);
    let mut window = window(&plan, &lines, &[]);
    let counts = [(0, 7, [300, 0]), (1, 8, [10, 100])];
    add(&mut window, &plan, MemoryTraffic::Reads, &counts);
    assert_eq!(
        shares(&plan, &window),
        [
            row(metric, 0, "cgroup 7", 48_000),
            row(metric, 0, "cgroup 8", 16_000),
            row(metric, 0, "Io", 0),
            row(metric, 0, "Unattributed", 0),
            row(metric, 1, "cgroup 8", 64_000),
            row(metric, 1, "Io", 0),
            row(metric, 1, "Unattributed", 0),
        ]
    );
}

/// Cgroup 7 reads 600,000 lines of memory 0 from its own socket, cgroup 8 400,000 from socket 1,
/// which also has the devices. These may have read either memory.
#[test]
fn the_calibrated_reads_of_two_xeons_have_an_error_that_covers_devices() {
    let mut plan = spr(2, "memory_bandwidth_read");
    let pattern = |counts: f64| Pattern {
        name: "read-stream".to_owned(),
        counts: vec![counts],
    };
    plan.calibration.traffics = vec![CalibratedTraffic {
        metric: "memory_bandwidth_read".to_owned(),
        events: vec!["dram_reads".to_owned()],
        spreads: vec![0.001],
        patterns: vec![pattern(1.0)],
        remote: vec![pattern(2.0)],
    }];
    let errors = |devices: u64| {
        let uncore = move |event: &str, socket: u32| match event.contains("imc") {
            true => 500_000,
            false => u64::from(socket == 1) * devices,
        };
        let mut window = window(&plan, &uncore, &[]);
        let counts = [(0, 7, [600_000, 0]), (1, 8, [1_000_000, 800_000])];
        add(&mut window, &plan, MemoryTraffic::Reads, &counts);
        let joined = View::default().join(&plan, &window, None);
        let of_socket = |shared: &&EntityShares| shared.by_owner.socket == 0;
        let shared = joined.shares.iter().find(of_socket).unwrap();
        let shares = shared.by_owner.shares.as_ref().unwrap();
        assert!(matches!(shares.method, Method::Calibrated(_)), "{shares:?}");
        [(7, 600_000), (8, 400_000)].map(|(cgroup, lines)| {
            let share = &shares.owners[&Owner::from(CgroupId(cgroup))];
            assert!(share.count.abs_diff(lines) < lines / 100, "{share:?}");
            shares.relative_error(share).unwrap()
        })
    };
    let (without, with) = (errors(0), errors(10_000));
    for (without, with) in without.into_iter().zip(with) {
        assert!(without < 0.01 && with > without + 0.005, "{without} {with}");
    }
}

/// To which memory a write goes is unknown: it is assumed where its owner reads, else local.
#[test]
fn writes_of_two_xeons_go_where_their_owner_reads() {
    let metric = "memory_bandwidth_write";
    let plan = spr(2, metric);
    assert_eq!(
        names(&plan),
        [("dram_reads", true), ("memory_writes", false)]
    );
    let mut window = window(&plan, &lines, &[]);
    let reads = [(0, 7, [300, 100]), (1, 8, [0, 0])];
    add(&mut window, &plan, MemoryTraffic::Reads, &reads);
    let writes = [(0, 7, [400, 0]), (1, 8, [300, 0])];
    add(&mut window, &plan, MemoryTraffic::Writes, &writes);
    assert_eq!(
        shares(&plan, &window),
        [
            row(metric, 0, "cgroup 7", 64_000),
            row(metric, 0, "Io", 0),
            row(metric, 0, "Unattributed", 0),
            row(metric, 1, "cgroup 8", 48_000),
            row(metric, 1, "cgroup 7", 16_000),
            row(metric, 1, "Io", 0),
            row(metric, 1, "Unattributed", 0),
        ]
    );
}

/// A million beats of this socket's memory, none of them requested by the other socket.
fn local_beats(event: &str, _: u32) -> u64 {
    u64::from(!event.contains("remote")) * 1_000_000
}

fn grace() -> Plan {
    plan(
        "grace",
        Chip::named("grace-hopper").unwrap(),
        "cmem_read_bandwidth",
    )
}

fn rows_of(plan: &Plan, window: &Window) -> Vec<ShareRow> {
    let joined = View::default().join(plan, window, None);
    let shares = joined.shares.iter();
    shares
        .flat_map(|shared| rows(plan, window, shared))
        .filter(|row| row.socket == 0)
        .collect()
}

/// A memset causes no read misses, but still has traffic.
#[test]
fn an_owner_that_ran_uncounted_has_a_reason() {
    let plan = grace();
    let counted = [
        (0, 7, [0, 0]),
        (0, 8, [10_000, 0]),
        (0, CgroupId::IDLE.0, [0, 0]),
    ];
    let mut window = window(&plan, &local_beats, &counted);
    // Cgroup 9 has counts of earlier windows, and did not run in this one.
    let idle = window
        .on_socket
        .values()
        .next()
        .unwrap()
        .iter()
        .map(|row| row.as_ref().map(|_| GroupCounts::of(&UsageRow::ZERO)));
    let owner = Owner::from(CgroupId(9));
    let idle = idle.collect();
    window.on_socket.insert((0, owner), idle);
    let rows = rows_of(&plan, &window);
    let reasons: Vec<_> = rows
        .iter()
        .map(|row| match &row.owner {
            Subject::Entity(Entity::Unnamed(id)) => (*id, row.share.as_ref().err()),
            _ => (0, row.share.as_ref().err()),
        })
        .collect();
    let why = Reason::NoShare(NoShare::NothingCounted);
    let expected = [(8, None), (7, Some(&why)), (0, None)];
    assert_eq!(reasons, expected);
}

/// With a running ratio of a quarter, three quarters of the weights are uncertain.
#[test]
fn multiplexing_is_in_the_error_and_shown() {
    let plan = grace();
    let counted = [(0, 7, [10_000_000, 0]), (0, 8, [10_000_000, 0])];
    let mut window = window(&plan, &local_beats, &counted);
    for usage in window.on_socket.values_mut() {
        for row in usage.iter_mut().flatten() {
            *row = GroupCounts::of(&UsageRow {
                enabled: 1_000_000_000,
                running: 250_000_000,
                counts: row.counts,
                ..UsageRow::ZERO
            });
        }
    }
    let rows = rows_of(&plan, &window);
    let share = rows[0].share.as_ref().unwrap();
    assert_eq!(share.running_ratio, 0.25);
    // In the unobserved three quarters of the time, each owner may have caused from none to twice
    // its usual traffic: an error of 0.75 of its weight. A share of a half has half of this error,
    // combined with half of the other owner's error.
    let error = share.counting_error().unwrap();
    assert!((error - 0.75 / 2_f64.sqrt()).abs() < 1e-3, "{error}");
}

/// The counting error makes no interval: it excludes how well the weight represents the traffic.
#[test]
fn a_share_by_a_weight_has_no_interval() {
    let plan = grace();
    let counted = [(0, 7, [10_000, 0]), (0, 8, [1_000, 0])];
    let rows = rows_of(&plan, &window(&plan, &local_beats, &counted));
    let shares: Vec<_> = rows.iter().flat_map(|row| &row.share).collect();
    let errors = shares.iter().filter(|share| share.error() > Some(0.0));
    assert_eq!(errors.count(), 2);
    assert!(shares.iter().all(|share| share.interval().is_none()));
}

/// Bus reads include those served by the system cache, so no error can be stated.
#[test]
fn a_weight_that_counts_something_else_states_no_error() {
    let mut plan = grace();
    let counted = [(0, 7, [10_000, 0])];
    let window = window(&plan, &local_beats, &counted);
    assert!(
        rows_of(&plan, &window)[0]
            .share
            .as_ref()
            .unwrap()
            .error()
            .is_some()
    );
    plan.weights[0].but = Some("more".into());
    let rows = rows_of(&plan, &window);
    assert_eq!(rows[0].share.as_ref().unwrap().error(), None);
    let weights = Chip::named("grace-hopper").unwrap().platform().weights();
    let bus = weights.iter().find(|weight| weight.name == "bus_reads");
    assert!(bus.unwrap().but.is_some());
}

/// On two sockets with GPUs the count of the other socket includes both memories.
#[test]
fn cpu_memory_of_two_grace_hoppers_has_no_shares() {
    let chip = Chip::named("grace-hopper-multi").unwrap();
    for metric in ["cmem_read_bandwidth", "cmem_write_bandwidth"] {
        let plan = plan("grace", chip, metric);
        let counted = [(0, 7, [100, 50]), (1, 8, [100, 50])];
        let window = window(&plan, &|_, _| 1_000, &counted);
        for row in rows_of(&plan, &window) {
            assert_eq!(row.share, Err(Reason::NoShare(NoShare::BothMemories)));
        }
    }
    // The count of GPU memory includes the CPUs of both sockets.
    let plan = plan("grace", chip, "gmem_read_bandwidth");
    let counted = [(0, 7, [100, 50]), (1, 8, [100, 50])];
    let window = window(&plan, &|_, _| 1_000, &counted);
    for row in rows_of(&plan, &window) {
        assert_eq!(row.share, Err(Reason::NoShare(NoShare::OtherSockets)));
    }
}

/// An implausible counter is neither an overflow nor a plausible share.
#[test]
fn weights_beyond_all_bounds_are_flagged() {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "remote_read_bandwidth",
    );
    let counted = [(0, 7, [u64::MAX, u64::MAX]), (0, 8, [u64::MAX, 1 << 63])];
    let window = window(&plan, &|_, _| u64::MAX, &counted);
    let rows = rows_of(&plan, &window);
    let owners = rows
        .iter()
        .filter(|row| matches!(row.owner, Subject::Entity(_)));
    let values: Vec<_> = owners.map(|row| row.share.clone()).collect();
    assert_eq!(
        values,
        [
            Err(Reason::NoShare(NoShare::Saturated)),
            Err(Reason::NoShare(NoShare::Saturated))
        ]
    );
}

/// Implausible counts of two CPUs that would sum to 0.
#[test]
fn weights_of_two_cpus_do_not_wrap() {
    let plan = grace();
    let counted = [(0, 7, [1 << 63, 0]), (0, 8, [1_000, 0])];
    let mut window = window(&plan, &local_beats, &counted);
    for usage in window.on_socket.values_mut().take(1) {
        for row in usage.iter_mut().flatten() {
            let same = row.clone();
            row.add(&same);
        }
    }
    let rows = rows_of(&plan, &window);
    assert_eq!(rows[0].share, Err(Reason::NoShare(NoShare::Saturated)));
}

/// Counters include prefetches, which are not sampled. Samples are the weight only where nothing
/// was counted, and not if they are few.
#[test]
fn counted_weights_are_preferred_to_samples() {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "remote_read_bandwidth",
    );
    let counted = [(1, 7, [100, 50])];
    let mut window = window(&plan, &|_, _| 1000, &counted);
    let owner = |cgroup| Owner::from(CgroupId(cgroup));
    let loads = |samples: u64, operations: f64| {
        let counts = SampleCounts {
            samples,
            operations,
            ..SampleCounts::default()
        };
        let kind = SampleKind::spe(Class::Load, MemLevel::By(Source::Remote));
        SampleUsage::from([(kind, counts)])
    };
    let on_socket = BTreeMap::from([
        ((0, owner(7)), loads(100, 3e6)),
        ((0, owner(8)), loads(33, 1e6)),
        ((1, owner(8)), loads(900, 9e6)),
    ]);
    window.samples = Some(window::sampled_window(on_socket));
    let shared = share::of_window(&plan, &window, &View::default().naming(&window.names));
    let shares: Vec<_> = shared
        .iter()
        .map(|shared| shared.shares.as_ref().unwrap())
        .map(|shares| {
            let owners = shares.owners.iter();
            let weights = owners.map(|(owner, share)| (owner.cgroup.0, share.count));
            (shares.method.to_string(), weights.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(
        shares,
        [
            ("spe".to_owned(), vec![(7, 750), (8, 250)]),
            ("llc_read_misses".to_owned(), vec![(7, 1000)]),
        ]
    );
}
