use std::collections::BTreeSet;

use super::*;
use crate::{
    join::{Joined, NamedWait, View},
    window::{self, Gained},
};

fn container(name: &str) -> Entity {
    Entity::Container {
        id: name.repeat(64).into(),
        pod: None,
    }
}

fn behind(parts: &[(&Entity, u64)]) -> BTreeMap<WaitedFor, u64> {
    let parts = parts.iter();
    parts
        .map(|(entity, nanos)| (WaitedFor::Entity((*entity).clone()), *nanos))
        .collect()
}

fn waits(behind: BTreeMap<WaitedFor, u64>) -> EntityWaits {
    EntityWaits {
        behind,
        ..EntityWaits::default()
    }
}

fn report(entities: impl IntoIterator<Item = (Entity, EntityWaits)>) -> Report {
    let mut window = window::tests::empty();
    window.length = Duration::from_secs(1);
    let mut joined: Joined = View::default().join(&Plan::default(), &window, None);
    joined.sources.waits = Some(WaitRows {
        entities: entities.into_iter().collect(),
        unplaced: 7,
        unplaced_waits: 9,
    });
    Report::new(&Plan::default(), &window, &joined, &View::default())
}

fn texts(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|it| it.text.as_str()).collect()
}

#[test]
fn rows_are_ordered_by_their_waits_and_name_who_ran() {
    let (a, b) = (container("a"), container("b"));
    let mut of_a = behind(&[(&b, 600_000_000), (&a, 100_000_000)]);
    of_a.insert(WaitedFor::Nobody, 300_000_000);
    let of_b = [(WaitedFor::Earlier, 2_000_000_000)].into();
    let report = report([(a, waits(of_a)), (b, waits(of_b))]);
    let [table] = &report.tables[..] else {
        panic!("{:?}", report.tables)
    };
    let cells = table.rows.iter().map(|row| (&row[1], &row[2]));
    let found: Vec<_> = cells
        .map(|(behind, nanos)| match (behind, nanos) {
            (TableCell::Owner(owner), TableCell::Count(nanos)) => {
                (owner.plain_name(), nanos / 1_000_000)
            }
            (TableCell::Text(text), TableCell::Count(nanos)) => (text.clone(), nanos / 1_000_000),
            other => panic!("{other:?}"),
        })
        .collect();
    let named = |name: &str, millis| (name.to_owned(), millis);
    assert_eq!(
        found,
        [
            named("(not known: too long ago)", 2000),
            named(&"b".repeat(64), 600),
            named("(nobody: the CPU was idle)", 300),
            named(&"a".repeat(64), 100),
        ]
    );
    assert_eq!(table.small_rows, BTreeSet::new());
    let unplaced = [("waits_unplaced_ns", 7), ("waits_unplaced", 9)];
    assert_eq!(table.counts, unplaced);
    assert_eq!(
        texts(&report),
        [
            "0.000 s of waits found no room in the kernel's map: they are in cpu-wait, and behind \
             nobody in the table",
            "9 waits found no room in the kernel's map of lengths: they are in cpu-waits, and in \
             no percentile",
            "its threads waited 1.00 s for a CPU, 60% of it for"
        ]
    );
}

#[test]
fn short_waits_and_waits_for_itself_are_no_finding() {
    let (a, b) = (container("a"), container("b"));
    let brief = behind(&[(&b, 9_000_000)]);
    let own = behind(&[(&b, 900_000_000), (&a, 20_000_000)]);
    let report = report([(a, waits(brief)), (b, waits(own))]);
    assert_eq!(texts(&report).len(), 2, "{:?}", report.findings);
    // Row 1 is a part below 5%, row 2 a wait below 1% of the window.
    assert_eq!(report.tables[0].small_rows, [1, 2].into());
}

/// The kernel's count of waits includes throttled time.
#[test]
fn nobody_is_named_while_a_quota_throttles() {
    let (a, b) = (container("a"), container("b"));
    let waits = EntityWaits {
        throttled: true,
        ..waits(behind(&[(&b, 600_000_000)]))
    };
    let report = report([(a, waits)]);
    let expected = "its threads waited 0.60 s for a CPU, which includes throttling by a CPU quota";
    assert_eq!(texts(&report)[2..], [expected]);
}

/// 1,000 waits: 900 of 10 us, 85 of 1 ms, 15 of 100 ms.
fn thousand() -> WaitTimes {
    let mut lengths = WaitTimes::default();
    for (nanos, count) in [(10_000, 900), (1_000_000, 85), (100_000_000, 15)] {
        lengths.counts[WaitTimes::bucket(nanos)] += count;
        lengths.nanos += nanos * count;
    }
    lengths
}

#[test]
fn quantiles_are_in_the_bucket_of_their_rank() {
    let value = |q| match quantile(&thousand(), q) {
        Ok(Value::Gauge(estimate)) => {
            let (low, high) = estimate.interval().unwrap();
            assert!(low <= estimate.value && estimate.value <= high);
            estimate.value
        }
        other => panic!("{other:?}"),
    };
    // Buckets are a factor of two wide.
    for (q, length) in [(0.5, 0.01), (0.95, 1.0), (0.99, 100.0)] {
        let found = value(q);
        assert!(
            (length / 2.0..length * 2.0).contains(&found),
            "{q}: {found}"
        );
    }
    // The rank of the 90th percentile may be that of a wait of 10 us or of 1 ms.
    let Ok(Value::Gauge(p90)) = quantile(&thousand(), 0.9) else {
        panic!()
    };
    let (low, high) = p90.interval().unwrap();
    assert!(low < 0.01 && high > 1.0, "{low} to {high}");
    let mut few = WaitTimes::default();
    few.counts[3] = 367;
    assert!(quantile(&few, 0.99).is_err());
    few.counts[3] = 368;
    assert!(quantile(&few, 0.99).is_ok());
    // The lengths of waits in the last bucket are unknown.
    few.counts[probe_common::WAIT_BUCKETS - 1] = 368;
    assert!(quantile(&few, 0.99).is_err());
}

#[test]
fn a_histogram_has_every_wait_once() {
    let mut lengths = thousand();
    lengths.counts[0] += 5;
    lengths.counts[probe_common::WAIT_BUCKETS - 1] += 3;
    let shown = histogram(&lengths, Duration::ZERO);
    assert_eq!(shown.counts.len(), shown.bounds.len() + 1);
    assert_eq!(shown.counts.iter().sum::<u64>(), lengths.waits());
    assert_eq!((shown.counts[0], shown.counts.last()), (5, Some(&3)));
    let ends = [shown.bounds[0], shown.bounds[shown.bounds.len() - 1]];
    assert_eq!(ends, [0.000_003_814_697_265_625, 16.0]);
    assert!((shown.sum - 1.594).abs() < 1e-9, "{}", shown.sum);
}

#[test]
fn totals_by_who_ran_are_series_of_their_own() {
    let (a, b) = (container("a"), container("b"));
    let mut most = MostWaitedFor::default();
    most.named = vec![NamedWait {
        behind: WaitedFor::Entity(b),
        total: 10,
        since: Duration::from_secs(3),
    }];
    most.others = 4;
    let row = EntityWaits {
        most,
        lengths: Gained {
            total: thousand(),
            ..Gained::default()
        },
        ..EntityWaits::default()
    };
    let report = report([(a, row)]);
    let series_of = |name: &str| {
        let series = report.series.iter();
        let found = series.filter(|it| report.metric(it).name == name);
        found.collect::<Vec<_>>()
    };
    let totals = series_of("cpu_wait_behind");
    let raw: Vec<_> = totals
        .iter()
        .map(|series| report.total(series).unwrap().raw)
        .collect();
    assert_eq!(raw, [10, 4]);
    let histograms = series_of("cpu_wait_duration");
    let mut since_the_start = totals.iter().chain(&histograms);
    assert!(!since_the_start.any(|it| report.is_of_window(it)));
    assert_eq!(series_of("cpu_wait_p99").len(), 1);
}
