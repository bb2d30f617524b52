//! Counts of nested cgroups, quotas above them, and totals over windows.

use std::{sync::Arc, time::Duration};

use probe_common::CgroupId;

use super::{CgroupCounter::*, *};
use crate::{
    join::{By, View},
    snapshot::Names,
    window,
};

const POD: &str = "/kubepods/pod7d0f2a34-4b3c-4c7e-9f10-2a5b6c7d8e9f";

fn container(digit: char) -> String {
    format!("{POD}/{}", digit.to_string().repeat(64))
}

fn entity(digit: char) -> Entity {
    Entity::Container {
        id: digit.to_string().repeat(64).into(),
        pod: Some("7d0f2a34-4b3c-4c7e-9f10-2a5b6c7d8e9f".into()),
    }
}

/// The rows of cgroups at these paths, which have these counts.
fn rows(by: By, cgroups: &[(&str, CgroupCounts)], before: Option<&PressureRows>) -> PressureRows {
    let ids = (10..).map(CgroupId);
    let names = Names {
        cgroups: ids
            .clone()
            .zip(cgroups.iter().map(|(path, _)| (*path).to_owned()))
            .collect(),
        ..Names::default()
    };
    let view = View {
        by,
        ..View::default()
    };
    let delta = PressureDelta {
        beside_waits: false,
        cgroups: ids.zip(cgroups.iter().map(|(_, counts)| *counts)).collect(),
        machine: CgroupCounts::default(),
        length: Duration::from_secs(1),
    };
    let mut window = window::tests::empty();
    window.start = Duration::from_secs(if before.is_some() { 9 } else { 4 });
    PressureRows::from_delta(&delta, &window, &view.naming(&Arc::new(names)), before)
}

fn counts(throttled: u64, pressure: u64, quota: Option<f64>) -> CgroupCounts {
    CgroupCounts {
        quota,
        ..CgroupCounts::default()
            .with(Throttled, Some(throttled))
            .with(CpuSome, Some(pressure))
    }
}

#[test]
fn the_outer_cgroup_includes_the_inner_one_and_quotas_above_apply() {
    let (a, b) = (container('a'), container('b'));
    let init = format!("{a}/init");
    let cgroups = [
        ("/kubepods", counts(3, 90, None)),
        (POD, counts(70, 80, Some(1.5))),
        (&a, counts(7, 50, Some(2.0)).with(OomKills, Some(9))),
        (&init, counts(1, 49, None).with(OomKills, Some(8))),
        (&b, counts(0, 20, Some(0.5))),
        ("/host", counts(0, 5, None)),
    ];
    let rows = rows(By::Container, &cgroups, None);
    assert_eq!(rows.entities.len(), 2, "{:?}", rows.entities.keys());
    let a = &rows.entities[&entity('a')];
    let delta = &a.counts.delta;
    // Throttling is counted in each cgroup by itself; the other counters include the cgroups below.
    let values = [Throttled, CpuSome, OomKills].map(|counter| delta.get(counter));
    assert_eq!(values, [Some(8), Some(50), Some(9)]);
    assert_eq!((a.throttled_above, a.quota), (Some(70), Some(1.5)));
    assert_eq!(rows.entities[&entity('b')].quota, Some(0.5));
}

/// A pod whose own cgroup is unknown has the sums of its containers, except of their pressure.
#[test]
fn pressure_of_two_cgroups_has_no_sum() {
    let (a, b) = (container('a'), container('b'));
    let cgroups = [
        ("/kubepods", counts(0, 0, Some(2.0))),
        (a.as_str(), counts(7, 50, Some(2.0)).with(OomKills, Some(9))),
        (&b, counts(1, 20, Some(0.5)).with(OomKills, Some(1))),
    ];
    let rows = rows(By::Pod, &cgroups, None);
    let pod = rows.entities.values().next().unwrap();
    let values = [Throttled, CpuSome, OomKills].map(|counter| pod.counts.delta.get(counter));
    assert_eq!(
        (rows.entities.len(), values),
        (1, [Some(8), None, Some(10)])
    );
    assert_eq!((pod.quota, pod.throttled_above), (Some(2.0), Some(0)));
}

/// Rows of nested cgroups do not show the same events twice.
#[test]
fn counts_that_include_other_rows_are_not_shown() {
    let with_kills = |kills| counts(1, 50, None).with(OomKills, Some(kills));
    let cgroups = [("/a", with_kills(9)), ("/a/b", with_kills(8))];
    let rows = rows(By::Cgroup, &cgroups, None);
    let values = |path: &str| {
        let row = &rows.entities[&Entity::Cgroup(path.into())];
        [Throttled, CpuSome, OomKills].map(|counter| row.counts.delta.get(counter))
    };
    assert_eq!(values("/a"), [Some(1), Some(50), None]);
    assert_eq!(values("/a/b"), [Some(1), Some(50), Some(8)]);
}

/// After a window without values the total is unknown, rather than too small.
#[test]
fn totals_continue_while_they_are_known() {
    let a = container('a');
    let first = rows(By::Container, &[(&a, counts(7, 50, None))], None);
    let second = rows(
        By::Container,
        &[(&a, counts(5, 1, Some(0.5)))],
        Some(&first),
    );
    let total = |rows: &PressureRows| {
        let counts = &rows.entities[&entity('a')].counts;
        assert_eq!(counts.since, Duration::from_secs(4));
        counts.total.get(Throttled)
    };
    assert_eq!(total(&second), Some(12));
    let unknown = rows(
        By::Container,
        &[(&a, CgroupCounts::default())],
        Some(&second),
    );
    let last = rows(By::Container, &[(&a, counts(5, 1, None))], Some(&unknown));
    assert_eq!((total(&unknown), total(&last)), (None, None));
    assert_eq!(
        last.entities[&entity('a')].counts.delta.get(Throttled),
        Some(5)
    );
}
