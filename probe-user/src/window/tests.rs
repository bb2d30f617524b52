//! Windows over random histories of rows.

use probe_common::{GROUP_COUNTERS, Sampled, UsageKey};
use proptest::{collection::hash_map, prelude::*};

use super::*;
use crate::{
    load::Hook,
    pull::{Health, MapMemory},
};

const GROUPS: usize = 2;

fn snapshot(rows: impl IntoIterator<Item = (UsageKey, UsageRow)>) -> Snapshot {
    let health = Health {
        hook: Hook::SchedSwitch,
        runs: 0,
        charges: 0,
        same: Sampled::default(),
        changed: Sampled::default(),
        flushes: 0,
        rows: 0,
        memory: MapMemory { rows: 0, fixed: 0 },
        rebased: 0,
        read_errors: 0,
        overflowed: 0,
        lost_events: 0,
        missed_switches: 0,
    };
    let rows = rows.into_iter().collect();
    Snapshot {
        at: Duration::ZERO,
        rows,
        spe: None,
        uncore: Vec::new(),
        names: Arc::default(),
        health,
    }
}

fn key(cgroup: u64, cpu: u16, group: u16) -> UsageKey {
    UsageKey {
        cgroup: CgroupId(cgroup),
        tgid: 0,
        cpu,
        group,
    }
}

fn row(count: u64) -> UsageRow {
    UsageRow {
        counts: [count; GROUP_COUNTERS],
        enabled: count,
        running: count,
    }
}

fn first(window: &Window, cgroup: u64, group: usize) -> Option<u64> {
    let owner = Owner {
        cgroup: CgroupId(cgroup),
        tgid: 0,
    };
    Some(window.usage.get(&owner)?.get(group)?.as_ref()?.counts[0])
}

fn any_rows() -> impl Strategy<Value = HashMap<UsageKey, UsageRow>> {
    let keys =
        (2_u64..6, 0_u16..3, 0_u16..2).prop_map(|(cgroup, cpu, group)| key(cgroup, cpu, group));
    hash_map(keys, (0_u64..1 << 40).prop_map(row), 0..20)
}

proptest! {
    /// Two windows in a row are the window over both, whatever appears in between.
    #[test]
    fn windows_add_up(a in any_rows(), b in any_rows(), c in any_rows()) {
        let grown = |old: &HashMap<UsageKey, UsageRow>, more: HashMap<UsageKey, UsageRow>| {
            let mut rows = old.clone();
            for (key, gain) in more {
                add(rows.entry(key).or_insert(UsageRow::ZERO), &gain);
            }
            rows
        };
        let b = grown(&a, b);
        let c = grown(&b, c);
        let [a, b, c] = [a, b, c].map(snapshot);
        let whole = Window::between(&a, &c, GROUPS);
        let parts = [Window::between(&a, &b, GROUPS), Window::between(&b, &c, GROUPS)];
        for cgroup in 2..6 {
            for group in 0..GROUPS {
                let sum: u64 = parts.iter().filter_map(|part| first(part, cgroup, group)).sum();
                prop_assert_eq!(first(&whole, cgroup, group).unwrap_or(0), sum);
            }
        }
    }

    /// No gain is ever larger than what the later snapshot holds, also when rows were freed and made anew.
    #[test]
    fn no_gain_is_made_up(a in any_rows(), b in any_rows()) {
        let window = Window::between(&snapshot(a), &snapshot(b.clone()), GROUPS);
        for cgroup in 2..6 {
            for group in 0..GROUPS {
                let held = b.iter().filter(|(key, _)| key.cgroup.0 == cgroup && usize::from(key.group) == group);
                let held: u64 = held.map(|(_, row)| row.counts[0]).sum();
                prop_assert!(first(&window, cgroup, group).unwrap_or(0) <= held);
            }
        }
    }
}

#[test]
fn a_freed_row_is_no_loss() {
    let window = Window::between(&snapshot([(key(7, 0, 0), row(100))]), &snapshot([]), GROUPS);
    assert_eq!(first(&window, 7, 0), None);
}

#[test]
fn a_row_that_went_back_was_made_anew() {
    // Counters of 64 bits do not wrap within a machine's life; a smaller row is another row.
    let window = Window::between(
        &snapshot([(key(7, 0, 0), row(u64::MAX))]),
        &snapshot([(key(7, 0, 0), row(30))]),
        GROUPS,
    );
    assert_eq!(first(&window, 7, 0), Some(30));
}

#[test]
fn a_cpu_that_vanished_keeps_its_counts() {
    let before = snapshot([(key(7, 0, 0), row(100)), (key(7, 1, 0), row(100))]);
    // CPU 1 is offline: its row stays as it was.
    let after = snapshot([(key(7, 0, 0), row(150)), (key(7, 1, 0), row(100))]);
    assert_eq!(
        first(&Window::between(&before, &after, GROUPS), 7, 0),
        Some(50)
    );
}

#[test]
fn a_group_without_a_row_has_no_usage() {
    let window = Window::between(&snapshot([]), &snapshot([(key(7, 0, 1), row(5))]), GROUPS);
    assert_eq!(
        (first(&window, 7, 0), first(&window, 7, 1)),
        (None, Some(5))
    );
}

#[test]
fn an_uncore_counter_that_went_back_has_no_gain() {
    let reading = |count| UncoreReading {
        at: 0,
        socket: 1,
        count,
        enabled: 10,
        running: 10,
    };
    let gain = |before, now| uncore(&[reading(before)], &[reading(now)])[0].count;
    assert_eq!(gain(Some(5), Some(12)), Some(7));
    assert_eq!(gain(Some(12), Some(5)), None);
    assert_eq!(gain(None, Some(5)), None);
    assert_eq!(gain(Some(5), None), None);
}
