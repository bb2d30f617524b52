use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    join::{By, View},
    machine::pressure::{CgroupCounts, PressureDelta},
    snapshot::Names,
    window,
};

fn rows(by: By, below: Option<&str>) -> WaitRows {
    let view = View {
        by,
        below: below.map(str::to_owned),
        ..View::default()
    };
    rows_of(&view)
}

fn rows_of(view: &View) -> WaitRows {
    let container = |digit: &str| format!("/docker/{}", digit.repeat(64));
    let names = Names {
        cgroups: [
            (CgroupId(7), container("a")),
            (CgroupId(8), container("b")),
            (CgroupId(9), "/init.scope".to_owned()),
        ]
        .into(),
        processes: [(42, "redis".to_owned())].into(),
        ..Names::default()
    };
    let pair = |waiting, tgid, running| WaitPair {
        waiting: CgroupId(waiting),
        tgid,
        running,
    };
    let delta = WaitDelta {
        pairs: vec![
            (pair(7, 42, CgroupId::IDLE), 1),
            (pair(7, 42, CgroupId(7)), 2),
            (pair(7, 42, CgroupId(8)), 4),
            (pair(7, 42, CgroupId(9)), 8),
            (pair(8, 0, CgroupId(77)), 16),
            (pair(9, 0, CgroupId::OTHER_CPU), 32),
        ],
        unplaced: 64,
        ..WaitDelta::default()
    };
    let window = window::tests::empty();
    WaitRows::from_delta(&delta, &window, &view.naming(&Arc::new(names)), None)
}

fn entity(name: &str) -> WaitedFor {
    WaitedFor::Entity(Entity::Container {
        id: name.repeat(64).into(),
        pod: None,
    })
}

#[test]
fn owners_become_rows_on_both_sides() {
    let rows = rows(By::Container, None);
    let WaitedFor::Entity(a) = entity("a") else {
        unreachable!()
    };
    let system = WaitedFor::Entity(Entity::System);
    let expected = [
        (entity("a"), 2),
        (entity("b"), 4),
        (system, 8),
        (WaitedFor::Nobody, 1),
    ];
    assert_eq!(rows.entities[&a].behind, expected.into());
    let of_system = &rows.entities[&Entity::System].behind;
    assert_eq!(*of_system, [(WaitedFor::OtherCpu, 32)].into());
    assert_eq!((rows.entities.len(), rows.unplaced), (3, 64));
}

/// Waits merged as `Others` may be behind the entity itself, or behind nobody.
#[test]
fn sums_include_merged_waits() {
    let view = View {
        by: By::Container,
        waited_for: 1,
        ..View::default()
    };
    let WaitedFor::Entity(a) = entity("a") else {
        unreachable!()
    };
    let row = &rows_of(&view).entities[&a];
    assert_eq!(row.behind[&WaitedFor::Entity(Entity::Others)], 7);
    // Behind container b and the system.
    assert_eq!((row.waited, row.waited_for_others), (15, 12));
}

#[test]
fn processes_and_hidden_rows_are_named_by_container_or_cgroup() {
    let by_process = rows(By::Process, None);
    let process = Entity::Process {
        tgid: 42,
        name: Some("redis".into()),
    };
    let cgroup = |path: &str| WaitedFor::Entity(Entity::Cgroup(path.into()));
    let of_process = &by_process.entities[&process].behind;
    assert_eq!(of_process[&cgroup("/init.scope")], 8);
    assert_eq!((of_process[&entity("a")], of_process[&entity("b")]), (2, 4));
    let hidden = rows(By::Container, Some("/docker"));
    let parts: Vec<_> = hidden.entities.values().collect();
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[0].behind[&cgroup("/init.scope")], 8);
    // In a view by cgroup, which does not check who created a cgroup, no path is taken for a
    // container.
    let outside = rows(By::Cgroup, Some("/init.scope"));
    assert!(
        outside
            .entities
            .keys()
            .all(|it| matches!(it, Entity::Cgroup(_)))
    );
    let inside = rows(By::Cgroup, Some(&format!("/docker/{}", "a".repeat(64))));
    let parts = inside.entities.values().next().unwrap();
    assert_eq!(
        parts.behind[&cgroup(&format!("/docker/{}", "b".repeat(64)))],
        4
    );
}

/// Cgroups by number: two containers of one pod, a container of another pod, a container without a
/// pod, a unit, and a cgroup without a name.
fn cgroup(number: u8) -> (CgroupId, Option<String>) {
    let of_pod = |pod: u8, container: char| {
        let (pod, id) = (pod.to_string().repeat(32), container.to_string().repeat(64));
        let dashed = [&pod[..8], &pod[..4], &pod[..4], &pod[..4], &pod[..12]].join("-");
        format!("/kubepods/pod{dashed}/{id}")
    };
    let path = match number {
        0 => Some(of_pod(1, 'a')),
        1 => Some(of_pod(1, 'b')),
        2 => Some(of_pod(2, 'c')),
        3 => Some(format!("/docker/{}", "d".repeat(64))),
        4 => Some("/system.slice/cron.service".to_owned()),
        _ => None,
    };
    (CgroupId(100 + u64::from(number)), path)
}

proptest! {
    /// In every view, and with any limit of names, each nanosecond is in one row and behind one
    /// name.
    #[test]
    fn waits_are_conserved_in_every_view(
        pairs in prop::collection::vec((0..6_u8, 1..4_u32, 0..9_u8, 0..(1_u64 << 40)), 0..40),
        shown in 0..5_usize,
    ) {
        let known = (0..6).filter_map(|number| {
            let (id, path) = cgroup(number);
            Some((id, path?))
        });
        let names = Arc::new(Names { cgroups: known.collect(), ..Names::default() });
        for (by, rows) in [(By::Container, 6), (By::Pod, 5), (By::Cgroup, 6), (By::Process, 4)] {
            let pair = |(waiting, tgid, running, nanos): &(u8, u32, u8, u64)| {
                let pair = WaitPair {
                    waiting: cgroup(*waiting).0,
                    tgid: if by == By::Process { *tgid } else { 0 },
                    running: match running {
                        6 => CgroupId::IDLE,
                        7 => CgroupId::EARLIER,
                        8 => CgroupId::OTHER_CPU,
                        number => cgroup(*number).0,
                    },
                };
                (pair, *nanos)
            };
            let delta = WaitDelta {
                pairs: pairs.iter().map(pair).collect(),
                ..WaitDelta::default()
            };
            let view = View { by, waited_for: shown, ..View::default() };
            let window = window::tests::empty();
            let all = WaitRows::from_delta(&delta, &window, &view.naming(&names), None);
            prop_assert!(all.entities.len() <= rows, "{:?}", all.entities.keys());
            let sum = |part: fn(&EntityWaits) -> u64| all.entities.values().map(part).sum::<u64>();
            let expected: u64 = delta.pairs.iter().map(|(_, nanos)| nanos).sum();
            prop_assert_eq!(sum(|row| row.behind.values().sum()), expected, "{:?}", by);
            prop_assert_eq!(sum(|row| row.waited), expected, "{:?}", by);
            prop_assert!(all.entities.values().all(|row| row.waited_for_others <= row.waited));
        }
    }
}

/// The total of an entity only grows while the entity has a name.
#[test]
fn the_longest_waits_are_named() {
    let named = |most: &MostWaitedFor| {
        let named = most.named.iter();
        let totals = named.map(|it| match &it.behind {
            WaitedFor::Entity(Entity::Unnamed(id)) => (*id, it.total),
            other => panic!("{other:?}"),
        });
        totals.collect::<BTreeMap<_, _>>()
    };
    let window = |parts: &[(u64, u64)]| {
        let parts = parts.iter();
        let parts = parts.map(|(id, nanos)| (WaitedFor::Entity(Entity::Unnamed(*id)), *nanos));
        parts.collect::<BTreeMap<_, _>>()
    };
    let second = Duration::from_secs;
    let exists = |_: &WaitedFor| true;
    let mut most = MostWaitedFor::default();
    most = most.after_window(
        &window(&[(1, 50), (2, 40), (3, 30), (4, 20)]),
        second(1),
        &exists,
    );
    assert_eq!(named(&most), [(1, 50), (2, 40), (3, 30)].into());
    assert_eq!(most.others, 20);
    // Entity 3 keeps its name: the recent waits behind 4 are less than twice those behind 3.
    most = most.after_window(&window(&[(1, 50), (2, 40), (4, 35)]), second(2), &exists);
    assert_eq!(named(&most), [(1, 100), (2, 80), (3, 30)].into());
    assert_eq!(most.others, 55);
    most = most.after_window(&window(&[(5, 1000)]), second(3), &exists);
    assert_eq!(named(&most), [(1, 100), (2, 80), (5, 1000)].into());
    // The total of a name that returns starts at 0.
    most = most.after_window(&window(&[(3, 5000)]), second(4), &exists);
    let of_third = most.named.iter().find(|it| it.total == 5000).unwrap();
    assert_eq!((of_third.since, most.others), (second(4), 55));
    assert_eq!(most.named.len(), MostWaitedFor::NAMED);
    for at in 0..200 {
        most = most.after_window(&window(&[(100 + at, 1)]), second(5 + at), &exists);
    }
    assert!(most.recent.len() < 110, "{}", most.recent.len());
    // An entity that ended keeps its name in its last window, and then loses it even if no other
    // takes its place.
    let is_first = |who: &WaitedFor| *who == WaitedFor::Entity(Entity::Unnamed(1));
    let mut most = MostWaitedFor::default();
    most = most.after_window(&window(&[(1, 50), (2, 40)]), second(1), &is_first);
    assert_eq!(named(&most), [(1, 50), (2, 40)].into());
    most = most.after_window(&window(&[(1, 5)]), second(2), &is_first);
    assert_eq!(named(&most), [(1, 55)].into());
    assert_eq!(most.recent.len(), 1);
}

/// The quota of a cgroup also throttles all cgroups below it.
#[test]
fn a_cgroup_is_throttled_by_its_quota_or_one_above() {
    let container = |digit: &str| format!("/pods/{}", digit.repeat(64));
    let names = Names {
        cgroups: [
            (CgroupId(6), "/pods".to_owned()),
            (CgroupId(7), container("a")),
            (CgroupId(8), "/podsx".to_owned()),
        ]
        .into(),
        ..Names::default()
    };
    let throttled_ids = |id: u64, nanos: u64| {
        let mut window = window::tests::empty();
        window.sources.pressure = Some(PressureDelta {
            beside_waits: false,
            cgroups: vec![(
                CgroupId(id),
                CgroupCounts::default().with(CgroupCounter::Throttled, Some(nanos)),
            )],
            machine: CgroupCounts::default(),
            length: Duration::from_secs(1),
        });
        let naming_names = Arc::new(names.clone());
        let ids = throttled(&window, &View::default().naming(&naming_names));
        ids.into_iter().map(|id| id.0).collect::<Vec<_>>()
    };
    assert_eq!(throttled_ids(6, 1), [6, 7]);
    assert_eq!(throttled_ids(7, 1), [7]);
    assert_eq!(throttled_ids(6, 0), [0_u64; 0]);
}
