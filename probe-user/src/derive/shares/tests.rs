//! Shares of the metrics of `-M` on the fixture machines, from counts chosen by hand.

mod devices;
mod sockets;
mod weights;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use probe_common::{
    CgroupId, UsageRow,
    spe::{Class, Source},
};

use super::*;
use crate::{
    catalogue::{Chip, Hardware},
    join::{Entity, View, share},
    machine::{
        Pmus,
        resctrl::{GroupBytes, MonitoringGroup},
    },
    plan::{CountSource, tests::of_metrics},
    snapshot::{Names, SampleCounts, UncoreReading},
    window::{self, GroupCounts, MemLevel, Owner, SampleKind, SampleUsage},
};

pub(super) fn plan(tree: &str, chip: Chip, metrics: &str) -> Plan {
    plan_of(tree, Hardware::of_chip(chip), metrics)
}

fn plan_of(tree: &str, machine: Hardware, metrics: &str) -> Plan {
    let pmus = Pmus::read(&test_support::sysfs(tree)).unwrap();
    of_metrics(metrics, machine, &pmus, 2)
}

/// A window of one second. `uncore` has counts by event and socket; `weights` has, by socket and
/// cgroup, all accesses and remote accesses of the first weight.
pub(super) fn window(
    plan: &Plan,
    uncore: &dyn Fn(&str, u32) -> u64,
    weights: &[(u32, u64, [u64; 2])],
) -> Window {
    const SECOND: u64 = 1_000_000_000;
    let mut window = window::tests::empty();
    window.length = Duration::from_nanos(SECOND);
    window.uncore = window::tests::uncore_counts(plan, SECOND, 0, |at, socket| {
        uncore(&plan.columns[plan.uncore[at].column].name, socket)
    });
    for (socket, cgroup, counts) in weights {
        let mut usage = vec![None; plan.groups.len()];
        let weight = &plan.weights[0];
        for (place, count) in [Some(weight.all), weight.remote].into_iter().zip(counts) {
            let Some(CountSource::Core { group, at }) = place else {
                continue;
            };
            let row = usage[group].get_or_insert(GroupCounts::of(&UsageRow {
                enabled: SECOND,
                running: SECOND,
                ..UsageRow::ZERO
            }));
            row.counts[at] = *count;
        }
        let owner = Owner::from(CgroupId(*cgroup));
        window.on_socket.insert((*socket, owner), usage);
    }
    window
}

/// The shares of a window: metric, socket, owner, and the value in thousandths.
fn shares(plan: &Plan, window: &Window) -> Vec<(String, u32, String, i64)> {
    let joined = View::default().join(plan, window, None);
    let rows = joined.shares.iter().flat_map(|shared| {
        let metric = &plan.metrics.list[shared.by_owner.metric].metric;
        let rows = rows(plan, window, shared).into_iter();
        rows.map(move |row| (metric.name.clone(), row))
    });
    rows.map(|(name, row)| {
        let owner = match row.owner {
            Subject::Entity(Entity::Unnamed(id)) => format!("cgroup {id}"),
            owner => format!("{owner:?}"),
        };
        let share = row
            .share
            .unwrap_or_else(|reason| panic!("{owner}: {reason}"));
        #[expect(clippy::cast_possible_truncation, reason = "a value of some thousands")]
        let value = (share.value * 1000.0).round() as i64;
        (name, row.socket, owner, value)
    })
    .collect()
}

fn row(metric: &str, socket: u32, owner: &str, value: i64) -> (String, u32, String, i64) {
    (metric.to_owned(), socket, owner.to_owned(), value)
}

#[test]
fn reads_of_grace_memory_are_shared_by_both_sockets() {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "cmem_read_bandwidth",
    );
    assert_eq!(plan.weights.len(), 1);
    // 32 bytes a beat: the memory of socket 0 is read at 32 GB/s, 8 of them by CPUs of socket 1.
    // Only its own CPUs read the memory of socket 1.
    let uncore = |event: &str, socket| match (event.contains("remote"), socket) {
        (false, 0) => 1_000_000_000,
        (false, _) => 500_000_000,
        (true, 0) => 0,
        (true, _) => 250_000_000,
    };
    let weights = [(0, 7, [300, 0]), (0, 8, [100, 0]), (1, 9, [50, 10])];
    let window = window(&plan, &uncore, &weights);
    let metric = "cmem_read_bandwidth";
    assert_eq!(
        shares(&plan, &window),
        [
            row(metric, 0, "cgroup 7", 17_526),
            row(metric, 0, "cgroup 9", 8_000),
            row(metric, 0, "cgroup 8", 5_842),
            // 7.9 % of the reads that socket 1 sent.
            row(metric, 0, "Unattributed", 632),
            row(metric, 1, "cgroup 9", 16_000),
            row(metric, 1, "Unattributed", 0),
        ]
    );
}

/// The fixture has two sockets; `single_socket` keeps only the counts of socket 0.
fn spr_window(single_socket: bool) -> (Plan, Window) {
    let plan = plan(
        "spr",
        Chip::named("sapphire-rapids").unwrap(),
        "memory_bandwidth_read",
    );
    // Both channels and both slices of a socket are added up: 2 x 500,000 lines read, and 2 x
    // 125,000 by each event of devices.
    let uncore = |event: &str, _| {
        if event.contains("imc") {
            500_000
        } else {
            125_000
        }
    };
    let weights = [(0, 7, [3, 0]), (0, 8, [1, 0]), (1, 7, [1, 0])];
    let mut window = window(&plan, &uncore, &weights);
    if single_socket {
        window.uncore.retain(|reading| reading.socket == 0);
        window.on_socket.retain(|(socket, _), _| *socket == 0);
    }
    (plan, window)
}

#[test]
fn reads_of_devices_are_not_shared_by_containers() {
    let (plan, window) = spr_window(true);
    let metric = "memory_bandwidth_read";
    assert_eq!(
        shares(&plan, &window),
        [
            row(metric, 0, "cgroup 7", 24_000),
            row(metric, 0, "cgroup 8", 8_000),
            // Reads of devices, and the reads of memory that their partial writes cause.
            row(metric, 0, "Io", 32_000),
            row(metric, 0, "Unattributed", 0),
        ]
    );
}

/// No event counts the reads of the CPUs of one Intel socket from the memory of the other.
#[test]
fn reads_by_two_sockets_have_no_owners_without_a_count_of_each() {
    let reasons = |window: &Window, plan: &Plan| {
        let shared = share::of_window(plan, window, &View::default().naming(&window.names));
        let why = shared.iter().map(|shared| shared.shares.clone().err());
        why.collect::<Vec<_>>()
    };
    let (plan, mut window) = spr_window(false);
    assert_eq!(reasons(&window, &plan), [Some(NoShare::OtherSockets); 2]);
    // The memory controllers of socket 1 have no counts, but its CPUs still read memory.
    window.uncore.retain(|reading| reading.socket == 0);
    assert_eq!(reasons(&window, &plan), [Some(NoShare::OtherSockets)]);
}

#[test]
fn without_weights_the_reason_is_shown() {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "remote_read_bandwidth",
    );
    let window = window(&plan, &|_, _| 1_000, &[]);
    let joined = View::default().join(&plan, &window, None);
    let shared = joined.shares.iter();
    let rows: Vec<_> = shared
        .flat_map(|shared| rows(&plan, &window, shared))
        .map(|row| (row.socket, row.owner, row.share))
        .collect();
    let why = Err(Reason::NoShare(NoShare::NoWeight));
    assert_eq!(
        rows,
        [
            (0, Subject::Unknown, why.clone()),
            (1, Subject::Unknown, why)
        ]
    );
}

/// An owner that ran only while the weight was rotated out has a row with the reason; other owners
/// have a larger error.
#[test]
fn an_unseen_owner_has_a_reason_in_place_of_a_share() {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "remote_read_bandwidth",
    );
    let counted = [
        (0, 7, [9_000_000, 1_000_000]),
        (1, 7, [9_000_000, 1_000_000]),
    ];
    let mut window = window(&plan, &|_, _| 1_000, &counted);
    let mut unseen = window.on_socket.values().next().unwrap().clone();
    // Its time is a tenth of the time of both owners.
    for row in unseen.iter_mut().flatten() {
        *row = GroupCounts::of(&UsageRow {
            enabled: row.enabled / 9,
            ..UsageRow::ZERO
        });
    }
    let owner = Owner::from(CgroupId(8));
    window.on_socket.insert((0, owner), unseen);
    let joined = View::default().join(&plan, &window, None);
    let shared = joined.shares.iter();
    let rows: Vec<_> = shared
        .flat_map(|shared| rows(&plan, &window, shared))
        .map(|row| {
            let error = row.share.map(|share| share.counting_error());
            (row.socket, row.owner, error)
        })
        .collect();
    let cgroup = |id| Subject::Entity(Entity::Unnamed(id));
    let (first, second) = (rows[0].2.clone(), rows[3].2.clone());
    assert!((first.unwrap().unwrap() - 0.1).abs() < 1e-3);
    assert!(second.unwrap().unwrap() < 0.01);
    let why = Reason::NoShare(NoShare::OwnerUnseen);
    assert_eq!((rows[0].0, &rows[0].1), (0, &cgroup(7)));
    assert_eq!(rows[1], (0, cgroup(8), Err(why)));
    assert_eq!(rows[2], (0, Subject::Unattributed, Ok(None)));
    assert_eq!((rows[3].0, &rows[3].1), (1, &cgroup(7)));
    assert_eq!(rows.len(), 5);
}

#[test]
fn traffic_without_owners_has_no_shares() {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "scf_frequency",
    );
    assert!(plan.weights.is_empty());
    let window = window(&plan, &|_, _| 1_000, &[]);
    assert_eq!(
        share::of_window(&plan, &window, &View::default().naming(&window.names)),
        []
    );
}

/// Each of three sockets counts only the sum of the reads that it sent to all others.
#[test]
fn reads_of_more_than_two_sockets_have_no_owners() {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "cmem_read_bandwidth",
    );
    let mut window = window(&plan, &|_, _| 1_000, &[(0, 7, [300, 0])]);
    let third = |reading: &UncoreReading| UncoreReading {
        socket: 2,
        ..*reading
    };
    let readings: Vec<_> = window
        .uncore
        .iter()
        .filter(|it| it.socket == 1)
        .map(third)
        .collect();
    window.uncore.extend(readings);
    let joined = View::default().join(&plan, &window, None);
    let mut shared = joined.shares.iter();
    let of_socket_0 = shared.find(|shared| shared.by_owner.socket == 0).unwrap();
    assert_eq!(of_socket_0.by_owner.shares, Err(NoShare::ManySockets));
    let rows = rows(&plan, &window, of_socket_0);
    let why = Reason::NoShare(NoShare::ManySockets);
    assert_eq!((rows.len(), &rows[0].share), (1, &Err(why)));
}

/// Cgroups 7 and 8 run on socket 0.
fn two_cgroups() -> (Plan, Window) {
    let plan = plan(
        "grace",
        Chip::named("grace-cpu-superchip").unwrap(),
        "remote_read_bandwidth",
    );
    let window = window(&plan, &|_, _| 1_000_000, &[(0, 7, [1, 1]), (0, 8, [1, 1])]);
    (plan, window)
}

fn group(path: &str, cgroups: &[u64], bytes: u64) -> GroupBytes {
    GroupBytes {
        group: Arc::new(MonitoringGroup {
            path: path.into(),
            cgroups: cgroups.iter().map(|id| CgroupId(*id)).collect(),
        }),
        bytes: [(0, bytes)].into(),
    }
}

#[test]
fn rows_with_shares_have_counts_of_resctrl() {
    let (plan, mut window) = two_cgroups();
    // A control group, a monitoring group in it, and another monitoring group, all of cgroup 7; and
    // a group of cgroups 7 and 8.
    window.sources.resctrl = Some(vec![
        group("/gold", &[7], 5_000),
        group("/gold/mon_groups/a", &[7], 3_000),
        group("/mon_groups/a", &[7], 20),
        group("/mon_groups/both", &[7, 8], 1),
    ]);
    window.length = Duration::from_secs(2);
    let view = View::default();
    let joined = view.join(&plan, &window, None);
    let report = Report::new(&plan, &window, &joined, &view);
    let rate = |id| {
        let subject = Subject::Entity(Entity::Unnamed(id));
        let series = report.find_series(&subject, "resctrl_bandwidth").next()?;
        assert_eq!(report.attributes(series).socket, Some(0));
        Some(series.estimate()?.value)
    };
    assert_eq!((rate(7), rate(8)), (Some(2_510.0 / 1e9), None));
}

/// If only one of two cgroups of a container is in a monitoring group, the container moved more
/// bytes than the group.
#[test]
fn a_row_that_is_monitored_in_part_has_no_count() {
    let (plan, mut window) = two_cgroups();
    let container = format!("/docker/{}", "a".repeat(64));
    let below = ["", "/init"].map(|below| format!("{container}{below}"));
    window.names = Arc::new(Names {
        cgroups: [CgroupId(7), CgroupId(8)].into_iter().zip(below).collect(),
        ..Names::default()
    });
    for (cgroups, rows) in [(vec![7], 0), (vec![7, 8], 1)] {
        window.sources.resctrl = Some(vec![group("/mon_groups/a", &cgroups, 1)]);
        let joined = View::default().join(&plan, &window, None);
        assert_eq!(joined.sources.resctrl.unwrap().0.len(), rows);
    }
}
