//! Windows over random histories of rows.

use probe_common::{Field as _, GROUP_COUNTERS, UsageKey, UsageRow};
use proptest::{
    collection::{hash_map, vec},
    prelude::*,
};

use super::*;
use crate::{
    event::Scope,
    snapshot::{Health, SourceReadings, UncoreReading},
};

const GROUPS: usize = 2;

/// A plan of two groups; the last `rotated` of them are multiplexed.
fn plan(rotated: usize) -> Plan {
    Plan {
        groups: vec![Vec::new(); GROUPS],
        rotated,
        ..Plan::default()
    }
}

pub(crate) fn snapshot(rows: impl IntoIterator<Item = (UsageKey, UsageRow)>) -> Snapshot {
    let rows = rows.into_iter().collect();
    Snapshot {
        at: Duration::ZERO,
        boot_time: Duration::ZERO,
        rows,
        freed: Vec::new(),
        samples: None,
        uncore: Vec::new(),
        topology: None,
        sources: SourceReadings::default(),
        names: Arc::default(),
        health: Health::default(),
    }
}

/// A window in which nothing happened.
pub(crate) fn empty() -> Window {
    Window::between(&snapshot([]), &snapshot([]), &plan(0))
}

/// One reading for each uncore event of the plan and socket, with `length` ns of running time.
/// `count` gives the count, from the event's index in the plan and the socket.
pub(crate) fn uncore_counts(
    plan: &Plan,
    length: u64,
    skew: u64,
    count: impl Fn(usize, u32) -> u64,
) -> Vec<UncoreReading> {
    let mut readings = Vec::new();
    for (at, planned) in plan.uncore.iter().enumerate() {
        let counter = &planned.counter;
        let Scope::Uncore { cpus } = &counter.scope else {
            panic!("{counter:?} is counted per CPU");
        };
        // NVIDIA has a PMU for each socket, Intel a CPU in the cpumask for each socket.
        let named = crate::machine::named_node(counter.pmu.as_deref().unwrap());
        let sockets = (0..).take(cpus.len()).map(|n| named.unwrap_or(n));
        readings.extend(sockets.map(|socket| UncoreReading {
            at,
            socket,
            instance: 0,
            count: Some(count(at, socket)),
            skew,
            enabled: length,
            running: length,
        }));
    }
    readings
}

pub(crate) fn key(cgroup: u64, cpu: u16, group: u16) -> UsageKey {
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
        estimated: 0,
        made: 1,
    }
}

fn first_counter(window: &Window, cgroup: u64, group: usize) -> Option<u64> {
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

/// Adds counts; the generation stays.
fn grow(row: &mut UsageRow, by: &UsageRow) {
    row.add(&UsageRow { made: 0, ..*by });
}

proptest! {
    /// Two consecutive windows add up to the window over both, whichever rows appear in between.
    #[test]
    fn windows_add_up(a in any_rows(), b in any_rows(), c in any_rows()) {
        let grown = |old: &HashMap<UsageKey, UsageRow>, added: HashMap<UsageKey, UsageRow>| {
            let mut rows = old.clone();
            for (key, delta) in added {
                grow(rows.entry(key).or_insert(UsageRow::ZERO), &delta);
            }
            rows
        };
        let b = grown(&a, b);
        let c = grown(&b, c);
        let [a, b, c] = [a, b, c].map(snapshot);
        let whole = Window::between(&a, &c, &plan(0));
        let parts = [Window::between(&a, &b, &plan(0)), Window::between(&b, &c, &plan(0))];
        for cgroup in 2..6 {
            for group in 0..GROUPS {
                let counts = parts.iter().filter_map(|part| first_counter(part, cgroup, group));
                let sum: u64 = counts.sum();
                prop_assert_eq!(first_counter(&whole, cgroup, group).unwrap_or(0), sum);
            }
        }
    }

    /// Rows grow, are freed and are created again with smaller or larger counts. The windows add up
    /// to everything that was counted.
    #[test]
    fn rows_created_again_count_as_a_whole(
        steps in vec((0_u64..1 << 40, any::<bool>()), 1..20)
    ) {
        let mut now = UsageRow::ZERO;
        let (mut last, mut gained, mut counted) = (snapshot([]), 0, 0);
        for ((delta, freed), at) in steps.into_iter().zip(1..) {
            if now.made == 0 {
                now.made = at;
            }
            grow(&mut now, &row(delta));
            counted += delta;
            let later = snapshot([(key(7, 0, 0), now)]);
            let window = Window::between(&last, &later, &plan(0));
            gained += first_counter(&window, 7, 0).unwrap();
            last = later;
            if freed {
                now = UsageRow::ZERO;
            }
        }
        prop_assert_eq!(gained, counted);
    }

    /// No delta exceeds the count in the later snapshot, even if rows were freed and created again.
    #[test]
    fn no_delta_exceeds_the_later_count(a in any_rows(), b in any_rows()) {
        let window = Window::between(&snapshot(a), &snapshot(b.clone()), &plan(0));
        for cgroup in 2..6 {
            for group in 0..GROUPS {
                let belongs = |key: &UsageKey| {
                    key.cgroup.0 == cgroup && usize::from(key.group) == group
                };
                let later_count = b.iter().filter(|(key, _)| belongs(key));
                let later_count: u64 = later_count.map(|(_, row)| row.counts[0]).sum();
                prop_assert!(first_counter(&window, cgroup, group).unwrap_or(0) <= later_count);
            }
        }
    }
}

#[test]
fn a_freed_row_has_no_delta() {
    let window = Window::between(
        &snapshot([(key(7, 0, 0), row(100))]),
        &snapshot([]),
        &plan(0),
    );
    assert_eq!(first_counter(&window, 7, 0), None);
}

/// If such a row counted as a whole, its whole history would be one window's delta.
#[test]
fn a_row_that_went_back_has_no_delta() {
    let window = Window::between(
        &snapshot([(key(7, 0, 0), row(1 << 40))]),
        &snapshot([(key(7, 0, 0), row((1 << 40) - 30))]),
        &plan(0),
    );
    assert_eq!(first_counter(&window, 7, 0), Some(0));
}

#[test]
fn an_offline_cpu_keeps_its_counts() {
    let before = snapshot([(key(7, 0, 0), row(100)), (key(7, 1, 0), row(100))]);
    // CPU 1 is offline: its row does not change.
    let after = snapshot([(key(7, 0, 0), row(150)), (key(7, 1, 0), row(100))]);
    assert_eq!(
        first_counter(&Window::between(&before, &after, &plan(0)), 7, 0),
        Some(50)
    );
}

#[test]
fn a_group_without_a_row_has_no_usage() {
    let window = Window::between(&snapshot([]), &snapshot([(key(7, 0, 1), row(5))]), &plan(0));
    assert_eq!(
        (first_counter(&window, 7, 0), first_counter(&window, 7, 1)),
        (None, Some(5))
    );
}

#[test]
fn an_uncore_counter_that_went_back_has_no_gain() {
    let reading = |count| UncoreReading {
        at: 0,
        socket: 1,
        instance: 0,
        count,
        skew: count.unwrap_or(0),
        enabled: 10,
        running: 10,
    };
    let delta = |before, now| uncore_deltas(&[reading(before)], &[reading(now)])[0].count;
    assert_eq!(delta(Some(5), Some(12)), Some(7));
    assert_eq!(delta(Some(12), Some(5)), None);
    assert_eq!(delta(None, Some(5)), None);
    assert_eq!(delta(Some(5), None), None);
    let delta = uncore_deltas(&[reading(Some(5))], &[reading(Some(12))])[0];
    assert_eq!(delta.skew, 17, "the skews of both readings");
}

#[test]
fn usage_is_split_by_socket_if_uncore_events_are_counted() {
    let counted = || {
        snapshot([
            (key(7, 0, 0), row(100)),
            (key(7, 1, 0), row(20)),
            (key(7, 2, 0), row(3)),
        ])
    };
    let window = Window::between(&snapshot([]), &counted(), &plan(0));
    assert!(window.on_socket.is_empty());
    let mut later = counted();
    later.topology = Some(Arc::new(crate::machine::topology::Topology::with_sockets(
        &[0, 0, 1],
    )));
    let window = Window::between(&snapshot([]), &later, &plan(0));
    let on = |socket| {
        let owner = Owner {
            cgroup: CgroupId(7),
            tgid: 0,
        };
        window.on_socket[&(socket, owner)][0]
            .as_ref()
            .unwrap()
            .counts[0]
    };
    assert_eq!((on(0), on(1)), (120, 3));
    assert_eq!(first_counter(&window, 7, 0), Some(123));
}

/// On CPU 0 group 0 was on the PMU for 30 ns, then group 1 for 70 ns. On CPU 1 group 1 was on the
/// PMU for all of 100 ns.
#[test]
fn a_multiplexed_group_is_enabled_in_the_intervals_of_other_groups() {
    let interval = |count, enabled| UsageRow {
        counts: [count; GROUP_COUNTERS],
        enabled,
        running: enabled,
        estimated: 0,
        made: 1,
    };
    let rows = [
        (key(7, 0, 0), interval(3, 30)),
        (key(7, 0, 1), interval(70, 70)),
        (key(7, 1, 1), interval(100, 100)),
    ];
    let window = Window::between(&snapshot([]), &snapshot(rows), &plan(2));
    let owner = Owner {
        cgroup: CgroupId(7),
        tgid: 0,
    };
    let rows: Vec<GroupCounts> = window.usage[&owner].iter().flatten().cloned().collect();
    assert_eq!(
        (rows[0].enabled, rows[0].running, rows[0].counts[0]),
        (200, 30, 3)
    );
    assert_eq!(
        (rows[1].enabled, rows[1].running, rows[1].counts[0]),
        (200, 170, 170)
    );
}

/// The estimates of consecutive windows add up, by event and socket.
#[test]
fn totals_of_sockets_continue() {
    let reading = |at, socket, instance, count, running| UncoreReading {
        at,
        socket,
        instance,
        count,
        skew: 0,
        enabled: 100,
        running,
    };
    let snapshot_at = |seconds: u64, readings: &[UncoreReading]| {
        let mut snapshot = snapshot([]);
        snapshot.at = Duration::from_secs(seconds);
        // Each second adds the same counts.
        let times = seconds - 5;
        let sum = |reading: &UncoreReading| UncoreReading {
            count: reading.count.map(|count| count * times),
            enabled: reading.enabled * times,
            running: reading.running * times,
            ..*reading
        };
        snapshot.uncore = readings.iter().map(sum).collect();
        snapshot
    };
    let mut readings = vec![
        reading(0, 0, 0, Some(10), 100),
        reading(0, 0, 1, Some(20), 50),
        reading(0, 1, 0, Some(3), 100),
        // Never on the PMU: its count is unknown.
        reading(1, 0, 0, Some(0), 0),
        reading(2, 1, 0, Some(7), 100),
    ];
    let [a, b] = [5, 6].map(|seconds| snapshot_at(seconds, &readings));
    let mut c = snapshot_at(7, &readings);
    readings[0].count = None;
    c.uncore[0].count = None;
    let first = Window::between(&a, &b, &plan(0));
    let second = first.next(&b, &c, &plan(0));
    let totals = |window: &Window| -> Vec<_> {
        let totals = window.uncore_totals.iter();
        let known = totals.map(|it| (it.at, it.socket, it.raw, it.estimate, it.variance));
        known.collect()
    };
    // A count of 20 in half of the time is estimated as 40, with an error of 20.
    let [socket_1, event_2] = [(0, 1, 3, 3.0, 0.0), (2, 1, 7, 7.0, 0.0)];
    assert_eq!(totals(&first), [(0, 0, 30, 50.0, 400.0), socket_1, event_2]);
    let [socket_1, event_2] = [(0, 1, 6, 6.0, 0.0), (2, 1, 14, 14.0, 0.0)];
    assert_eq!(
        totals(&second),
        [(0, 0, 50, 90.0, 800.0), socket_1, event_2]
    );
    let time = |window: &Window| {
        let total = window.uncore_totals[0];
        (total.enabled, total.running, total.since.as_secs())
    };
    assert_eq!(
        (time(&first), time(&second)),
        ((200, 150, 5), (300, 200, 5))
    );
    assert_eq!((second.began, second.start.as_secs()), (first.start, 6));
}
