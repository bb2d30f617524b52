//! Counts and metrics of windows with known values.

mod rows;

use std::{collections::HashMap, time::Duration};

use probe_common::{CgroupId, UsageKey, UsageRow};
use proptest::prelude::*;

use super::{
    counts::{scale, total},
    *,
};
use crate::{
    event::{self, Exclude, Scope},
    formula::NoValue,
    join::By,
    machine::cpus::CpuList,
    plan::{CountSource, EventColumn, Planned},
    snapshot::UncoreReading,
    window::tests::{key, snapshot},
};

mod metrics;
mod names;
mod totals;

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// A plan with this many groups of two events each. The last `rotated` groups are multiplexed.
fn plan(groups: usize, rotated: usize) -> Plan {
    let mut plan = Plan {
        rotated,
        ..Plan::default()
    };
    for group in 0..groups {
        let mut planned = Vec::new();
        for at in 0..2 {
            planned.push(Planned {
                column: plan.columns.len(),
                counter: event::Counter {
                    pmu: None,
                    type_: 4,
                    config: 0,
                    config1: 0,
                    config2: 0,
                    config3: 0,
                    config4: 0,
                    scope: Scope::Cpu,
                },
                exclude: Exclude::default(),
            });
            plan.columns.push(EventColumn {
                name: format!("e{group}{at}"),
                unit: None,
                scale: 1.0,
                place: CountSource::Core { group, at },
                clock: false,
                shown: true,
            });
        }
        plan.groups.push(planned);
    }
    plan
}

/// Adds one uncore event with several names, each with its unit and scale.
fn add_uncore(plan: &mut Plan, names: &[(&str, Option<&str>, f64)]) {
    let mut uncore = plan.groups[0][0].clone();
    uncore.column = plan.columns.len();
    plan.uncore.push(uncore);
    plan.uncore_groups.push(0..1);
    let columns = names.iter().map(|(name, unit, scale)| EventColumn {
        name: (*name).to_owned(),
        unit: unit.map(str::to_owned),
        scale: *scale,
        place: CountSource::Uncore { at: 0 },
        clock: false,
        shown: true,
    });
    plan.columns.extend(columns);
}

fn usage(counts: [u64; 2], enabled: u64, running: u64) -> UsageRow {
    let mut row = UsageRow {
        enabled,
        running,
        ..UsageRow::ZERO
    };
    row.counts[..2].copy_from_slice(&counts);
    row
}

/// The report of the counts since an empty snapshot.
fn report(plan: &Plan, rows: impl IntoIterator<Item = (UsageKey, UsageRow)>) -> Report {
    let rows: HashMap<_, _> = rows.into_iter().collect();
    let mut later = snapshot(rows);
    later.at = Duration::from_secs(1);
    let window = Window::between(&snapshot([]), &later, plan);
    let view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let joined = view.join(plan, &window, None);
    Report::new(plan, &window, &joined, &view)
}

fn cgroup(id: u64) -> Subject {
    Subject::Entity(Entity::Unnamed(id))
}

/// The counts of a subject, in the order of the plan's events.
fn counts(report: &Report, subject: &Subject) -> Vec<Result<CounterValue, Reason>> {
    let events = report.metrics.iter().filter(|metric| metric.is_event());
    let series = events.map(|event| report.find_series(subject, &event.name).next().unwrap());
    let counts = series.map(|series| match series.value.clone()? {
        Value::Counter(counter) => Ok(counter),
        other => panic!("{other:?}"),
    });
    counts.collect()
}

/// The rows of a report.
fn entities(report: &Report) -> Vec<Subject> {
    let rows = report
        .groups()
        .filter(|group| group.section == ReportSection::Rows);
    rows.map(|group| group.subject.clone()).collect()
}

fn reading(count: u64, enabled: u64, running: u64) -> UncoreReading {
    UncoreReading {
        at: 0,
        socket: 0,
        instance: 0,
        count: Some(count),
        skew: 0,
        enabled,
        running,
    }
}

#[test]
fn an_uncore_counter_that_never_ran_has_no_value() {
    assert_eq!(scale(&reading(0, 1_000, 0), 1.0, Duration::ZERO), None);
    assert_eq!(scale(&reading(0, 0, 0), 1.0, Duration::ZERO), None);
}

#[test]
fn an_uncore_counter_that_ran_part_of_the_time_is_scaled_with_an_error() {
    let (part, whole) = ((250, 1_000, 250), (3, 10, 10));
    for ((raw, enabled, running), factor, expected) in [
        (part, 1.0, (1_000.0, 0.25, Some(750.0))),
        (whole, 64.0, (192.0, 1.0, Some(0.0))),
    ] {
        let reading = reading(raw, enabled, running);
        let counter = scale(&reading, factor, Duration::ZERO).unwrap();
        assert_eq!(counter.raw, raw);
        assert_eq!(counter.time, Some(RunningTime { enabled, running }));
        let estimate = counter.estimate;
        assert_eq!(
            (estimate.value, estimate.running_ratio, estimate.error()),
            expected
        );
    }
}

#[test]
fn a_total_needs_every_socket() {
    let counted = |count| scale(&reading(count, 10, 10), 1.0, Duration::ZERO);
    let one = counted(1).ok_or(NoValue::DidNotRun);
    assert_eq!(total([&one, &one].into_iter()).unwrap().unwrap().raw, 2);
    let lost = Err(NoValue::DidNotRun);
    assert_eq!(total([&one, &lost].into_iter()), Some(lost));
    assert_eq!(total(std::iter::empty()), None);
}

/// These counts were observed while `perf stat -C 0` ran: a task of high IPC on CPU 0, whose
/// counters ran half of the time, and a pointer chaser on CPU 1. Scaling the sum of both CPUs gave
/// 26.1e9 instructions instead of 39.1e9.
#[test]
fn a_cpu_that_shares_its_counters_is_scaled_by_its_own_time() {
    let second = 1000 * MS;
    let rows = [
        (
            key(7, 0, 0),
            usage([19_525_000_000, 0], 10 * second, 5 * second),
        ),
        (
            key(8, 1, 0),
            usage([50_000_000, 0], 10 * second, 10 * second),
        ),
    ];
    let report = report(&plan(1, 0), rows);
    let estimates: Vec<f64> = entities(&report)
        .iter()
        .map(|row| counts(&report, row)[0].clone().unwrap().estimate.value)
        .collect();
    assert_eq!(estimates, [39_050_000_000.0, 50_000_000.0]);
    let total = counts(&report, &Subject::Machine)[0]
        .clone()
        .unwrap()
        .estimate;
    assert_eq!((total.value, total.running_ratio), (39_100_000_000.0, 0.75));
    assert_eq!(total.error(), Some(19_525_000_000.0));
}

/// A slice that two owners share is divided by time. A nonzero count of an owner is then an
/// estimate, and a count of 0 is unknown, but the sum of all owners is exact.
#[test]
fn a_row_of_divided_slices_has_a_finding() {
    let divided = |ms: u64, counts| UsageRow {
        estimated: ms * MS,
        ..usage(counts, 100 * MS, 100 * MS)
    };
    let rows = [
        (key(7, 0, 0), divided(20, [0, 5])),
        // A divided part of 1% is within the stated error.
        (key(8, 0, 0), divided(1, [0, 5])),
        (key(9, 0, 0), divided(0, [0, 5])),
    ];
    let report = report(&plan(1, 1), rows);
    let first_count = |id| counts(&report, &cgroup(id)).remove(0);
    assert_eq!(first_count(7), Err(Reason::NoValue(NoValue::Divided)));
    assert_eq!([8, 9].map(|id| first_count(id).unwrap().raw), [0, 0]);
    let total = counts(&report, &Subject::Machine).remove(0);
    assert_eq!(total.unwrap().raw, 0);
    let findings = report.findings.iter().map(|finding| {
        let FindingSubject::Subject(subject) = finding.about else {
            panic!("{finding:?}")
        };
        (
            report.subjects[subject as usize].clone(),
            &finding.text[..3],
        )
    });
    assert_eq!(findings.collect::<Vec<_>>(), [(cgroup(7), "20%")]);
}

/// A container has a reason in place of a value if it ran only in multiplexing intervals of the
/// other group.
#[test]
fn an_unseen_owner_has_a_reason() {
    let rows = [
        (key(7, 0, 0), usage([5, 5], 500 * MS, 500 * MS)),
        (key(7, 0, 1), usage([6, 6], 400 * MS, 400 * MS)),
        (key(8, 0, 1), usage([6, 6], 100 * MS, 100 * MS)),
        // Running for less than 1 ms, and less than half of its time.
        (key(9, 0, 0), usage([6, 6], MS / 2, MS / 2)),
        (key(9, 0, 1), usage([6, 6], MS, MS)),
    ];
    let report = report(&plan(2, 2), rows);
    let first_count = |id| counts(&report, &cgroup(id)).remove(0);
    let why = |reason| Err(Reason::NoValue(reason));
    assert_eq!(first_count(8), why(NoValue::NeverRan("e00".into())));
    assert_eq!(first_count(9), why(NoValue::MostlyUnknown));
    assert_eq!(first_count(7).unwrap().estimate.value.round(), 9.0);
    // The error of the sum includes the time of owners without a value.
    let total = counts(&report, &Subject::Machine)[0].clone().unwrap();
    let unknown = 101.0 / 900.5;
    let error = total.estimate.counting_error().unwrap();
    assert!(
        (error - libm::hypot(unknown, 4.0 / 15.0)).abs() < 1e-3,
        "{total:?}"
    );
}

fn any_rows() -> impl Strategy<Value = HashMap<UsageKey, UsageRow>> {
    let keys =
        (2_u64..7, 0_u16..4, 0_u16..3).prop_map(|(cgroup, cpu, group)| key(cgroup, cpu, group));
    let rows = ([0..1_u64 << 40, 0..1 << 40], 0..200 * MS, 0_u64..=4)
        .prop_map(|(counts, enabled, part)| usage(counts, enabled, enabled * part / 4));
    prop::collection::hash_map(keys, rows, 0..40)
}

proptest! {
    /// The total of an event is the sum of all rows, if every row that ran has a value.
    #[test]
    fn the_total_is_the_sum_of_the_rows(rows in any_rows(), rotated in 0_usize..=3) {
        let report = report(&plan(3, rotated), rows);
        let all: Vec<_> = entities(&report).iter().map(|row| counts(&report, row)).collect();
        let totals = counts(&report, &Subject::Machine);
        for (at, total) in totals.into_iter().enumerate() {
            let column = all.iter().map(|counts| counts[at].clone());
            let is_idle = |count: &Result<_, _>| *count == Err(Reason::NoValue(NoValue::DidNotRun));
            let values: Result<Vec<CounterValue>, _> =
                column.filter(|count| !is_idle(count)).collect();
            let Some(values) = values.ok().filter(|values| !values.is_empty()) else {
                continue;
            };
            let total = total.unwrap();
            let sum: f64 = values.iter().map(|value| value.estimate.value).sum();
            prop_assert!((total.estimate.value - sum).abs() <= 1e-9 * sum, "{total:?} {sum}");
            let errors = values.iter().map(|value| value.estimate.error().unwrap());
            let variance: f64 = errors.map(|error| error.powi(2)).sum();
            let error = total.estimate.error().unwrap();
            prop_assert!(
                (error - variance.sqrt()).abs() <= 1e-6 * sum + 1e-6,
                "{total:?} {variance}"
            );
            prop_assert_eq!(total.raw, values.iter().map(|value| value.raw).sum::<u64>());
        }
    }
}

/// An owner that ran only on one kind of core has a count of 0 on the other kind. If all cores are
/// of one kind, a group that did not count is unknown.
#[test]
fn an_owner_on_one_kind_of_core_has_0_of_the_other() {
    let mut plan = plan(2, 2);
    let kinds = [0, 1].map(|cpu| std::iter::once(cpu).collect::<CpuList>());
    for (group, cpus) in plan.groups.iter_mut().zip(&kinds) {
        for planned in group {
            planned.counter.scope = Scope::Cpus(cpus.clone());
        }
    }
    let rows = || [(key(5, 1, 1), usage([700, 70], 10 * MS, 10 * MS))];
    plan.cores = kinds.to_vec();
    let total = counts(&report(&plan, rows()), &Subject::Machine);
    let counted = total.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    let raw: Vec<u64> = counted.iter().map(|count| count.raw).collect();
    assert_eq!(raw, [0, 0, 700, 70]);
    assert_eq!(counted[0].estimate.running_ratio, 1.0);
    plan.cores = Vec::new();
    let total = counts(&report(&plan, rows()), &Subject::Machine);
    assert_eq!(total[0], Err(Reason::NoValue(NoValue::DidNotRun)));
}

/// Tables of metrics hide only counts of events, not samples and other counts.
#[test]
fn only_events_are_replaced_by_rates() {
    let is_replaced = |rates_only, counting| {
        let report = Report {
            rates_only,
            ..Report::default()
        };
        report.is_replaced_by_rates(&MetricInfo {
            kind: MetricKind::Counter,
            counting,
            ..MetricInfo::gauge("name", "", "")
        })
    };
    assert!(is_replaced(true, CounterSource::Event(1.0)));
    assert!(!is_replaced(false, CounterSource::Event(1.0)));
    for other in [CounterSource::Samples, CounterSource::All] {
        assert!(!is_replaced(true, other));
    }
}
