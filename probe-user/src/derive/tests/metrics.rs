//! Metrics of rows, with their errors.

use super::*;
use crate::{
    catalogue::{Catalogue, Chip, Hardware},
    formula::Formula,
    plan::{MetricSource, PlannedMetric},
};

/// A metric of a subject.
fn gauge(report: &Report, subject: &Subject, metric: &str) -> Estimate {
    *report
        .find_series(subject, metric)
        .next()
        .unwrap()
        .estimate()
        .unwrap()
}

/// Adds a metric of the catalogue, with its events counted at these places.
fn with_metric(mut plan: Plan, name: &str, events: &[(&str, CountSource)]) -> Plan {
    let machine = Hardware::of_chip(Chip::named("other").unwrap());
    let catalogue = Catalogue::builtin().unwrap();
    let metric = catalogue.select(name, &machine).unwrap().remove(0).clone();
    let events = events
        .iter()
        .map(|(name, place)| ((*name).to_owned(), *place));
    plan.metrics.list.push(PlannedMetric {
        metric,
        sources: Ok(vec![MetricSource {
            events: events.collect(),
            units: 1,
            ..MetricSource::default()
        }]),
        io: Vec::new(),
    });
    plan.metrics.machine = Some(machine);
    plan
}

fn core(group: usize, at: usize) -> CountSource {
    CountSource::Core { group, at }
}

/// The errors of two events of a group cancel in their ratio, since both ran at the same time. The
/// enabled time is exact, so a ratio to it has the error of the unobserved part.
#[test]
fn a_ratio_within_a_group_has_no_error_unlike_one_with_the_enabled_time() {
    let plan = with_metric(
        plan(2, 0),
        "ipc",
        &[("instructions", core(1, 0)), ("cycles", core(1, 1))],
    );
    let plan = with_metric(plan, "frequency", &[("cycles", core(1, 1))]);
    let rows = [
        (key(7, 0, 0), usage([100 * MS, 0], 100 * MS, 100 * MS)),
        (key(7, 0, 1), usage([40 * MS, 80 * MS], 100 * MS, 25 * MS)),
    ];
    let report = report(&plan, rows);
    let [ipc, frequency] = ["ipc", "frequency"].map(|name| gauge(&report, &cgroup(7), name));
    assert_eq!((ipc.value, ipc.running_ratio), (0.5, 0.25));
    assert_eq!(ipc.error(), Some(0.0));
    assert_eq!((frequency.value, frequency.running_ratio), (3.2, 0.25));
    assert!(
        (frequency.counting_error().unwrap() - 0.75).abs() < 1e-6,
        "{frequency:?}"
    );
}

/// A threshold compares values of the same owner.
#[test]
fn a_value_over_its_threshold_is_marked() {
    let ipc = [("instructions", core(1, 0)), ("cycles", core(1, 1))];
    let plan = with_metric(plan(2, 0), "ipc", &ipc);
    let mut plan = with_metric(plan, "frequency", &[("cycles", core(1, 1))]);
    let threshold = "1 if frequency > 1 else 0";
    plan.metrics.list[0].metric.threshold = Some(Formula::parse(threshold).unwrap());
    let row = |cycles| usage([40 * MS, cycles], 100 * MS, 100 * MS);
    let rows = [(key(7, 0, 1), row(120 * MS)), (key(8, 0, 1), row(80 * MS))];
    let report = report(&plan, rows);
    let is_over = |id| {
        let gauges = ["ipc", "frequency"].map(|name| gauge(&report, &cgroup(id), name));
        gauges.map(|it| it.over_threshold)
    };
    assert_eq!([7, 8].map(is_over), [[true, false], [false, false]]);
}

/// For short slices the clock of the switch counts more than the time of the counters: 57.7 ms
/// instead of 25.2 ms for 4,000 moves to another CPU. The frequency uses the time of the counters,
/// also if the group is multiplexed or the CPU is idle.
#[test]
fn a_frequency_is_over_the_time_of_its_own_group() {
    let plan = with_metric(plan(2, 0), "frequency", &[("cycles", core(1, 1))]);
    for id in [7, CgroupId::IDLE.0] {
        for running in [25_200_000, 12_600_000, 2_520_000] {
            let cycles = usage([0, 3 * running], 25_200_000, running);
            let clock = usage([57_700_000, 0], 25_200_000, 25_200_000);
            let rows = [(key(id, 0, 0), clock), (key(id, 0, 1), cycles)];
            let report = report(&plan, rows);
            let subject = match id {
                7 => cgroup(7),
                _ => Subject::Entity(Entity::Idle),
            };
            let frequency = gauge(&report, &subject, "frequency");
            assert!((frequency.value - 3.0).abs() < 1e-12, "{frequency:?}");
        }
    }
}

/// A rate has the relative error of its count: the length of the window is exact.
#[test]
fn a_rate_has_the_error_of_its_count() {
    let events = [("task_clock", core(1, 0))];
    let plan = with_metric(plan(2, 0), "cpus_used", &events);
    let rows = [(key(7, 0, 1), usage([40 * MS, 0], 100 * MS, 25 * MS))];
    let report = report(&plan, rows);
    let [rate, count] = ["cpus_used", "e10"].map(|name| gauge(&report, &cgroup(7), name));
    assert_eq!((rate.value, count.value), (0.16, 160e6));
    let (of_rate, of_count) = (rate.error().unwrap(), count.error().unwrap());
    assert!(
        of_count > 0.0 && (of_rate * 1e9 / of_count - 1.0).abs() < 1e-6,
        "{of_rate} {of_count}"
    );
}

/// On two CPUs the error of the ratio includes the uncertainty of their unequal weights.
#[test]
fn a_ratio_over_cpus_has_the_error_of_their_weights() {
    let events = [("branch_misses", core(0, 0)), ("branches", core(0, 1))];
    let plan = with_metric(plan(1, 0), "branch_miss_ratio", &events);
    let ratio_of = |misses: [u64; 2]| {
        let row = |cpu, misses| {
            let counts = [misses * MS, 50 * MS];
            (key(7, cpu, 0), usage(counts, 100 * MS, 50 * MS))
        };
        let report = report(&plan, [row(0, misses[0]), row(1, misses[1])]);
        gauge(&report, &cgroup(7), "branch_miss_ratio")
    };
    // By hand: each CPU has an estimate of 100 branches, with 40 and 10 misses. Half of the
    // branches are unobserved, so the weight of each CPU is uncertain by half: the root of the sum
    // of (20 - 12.5)^2 and (5 - 12.5)^2, times two, relative to 200 branches.
    let ratio = ratio_of([20, 5]);
    assert!((ratio.value - 0.25).abs() < 1e-12);
    let error = (2.0 * 7.5_f64.powi(2)).sqrt() / 200.0;
    assert!(
        (ratio.error().unwrap() / error - 1.0).abs() < 1e-3,
        "{ratio:?} {error}"
    );
    // A ratio of 1 is at its bound, so only a smaller ratio is defined.
    let ratio = ratio_of([50, 50]);
    assert_eq!(ratio.value, 1.0);
    assert_eq!(ratio.error(), Some(0.0));
}
