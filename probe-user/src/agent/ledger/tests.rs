//! Totals over sessions, and over rows that are put together and taken apart.

use proptest::prelude::*;

use super::*;
use crate::derive::{Counting, Kind};

fn container(id: u8) -> Entity {
    Entity::Container {
        id: format!("{id:064}").as_str().into(),
        pod: None,
    }
}

/// A report in which these containers counted so much since the session, or their row, began: with
/// the time at which that was.
fn report(rows: &[(u8, u64, u64)]) -> Report {
    let mut report = Report::of_agent();
    let metric = report.add_metric(Metric {
        name: "cycles".to_owned(),
        help: String::new(),
        unit: String::new(),
        kind: Kind::Counter,
        counting: Counting::Event(1.0),
    });
    for (id, began, raw) in rows {
        let subject = report.subject(Subject::Entity(container(*id)));
        let total = Counter {
            start: Duration::from_secs(*began),
            raw: *raw,
            estimate: Estimate::exact(2.0 * *raw as f64),
            time: Some(LiveTime {
                enabled: *raw * 2,
                running: *raw,
            }),
        };
        let window = Counter { raw: 1, ..total };
        report.push(
            [subject, metric, 0],
            Ok(Value::Counter(window)),
            Some(total),
        );
    }
    report
}

fn total(report: &Report, entity: &Entity) -> Option<Counter> {
    let subject = Subject::Entity(entity.clone());
    let series = report.of(&subject, "cycles").next()?;
    report.total(series).copied()
}

fn raw(report: &Report, entity: &Entity) -> Option<u64> {
    total(report, entity).map(|total| total.raw)
}

fn folded(ids: &[u8]) -> HashSet<Entity> {
    ids.iter().copied().map(container).collect()
}

#[test]
fn totals_go_on_in_the_next_session() {
    let mut ledger = Ledger::default();
    let mut first = report(&[(1, 0, 100)]);
    ledger.settle(&mut first, &folded(&[]));
    assert_eq!(raw(&first, &container(1)), Some(100));
    ledger.begin();
    // Less than before, and then more than before.
    for (counted, expected) in [(30, 130), (150, 250)] {
        let mut next = report(&[(1, 50, counted)]);
        ledger.settle(&mut next, &folded(&[]));
        let total = total(&next, &container(1)).unwrap();
        assert_eq!(total.raw, expected);
        assert!((total.estimate.value - 2.0 * expected as f64).abs() < 1e-9);
        let time = total.time.unwrap();
        assert_eq!((time.enabled, time.running), (2 * expected, expected));
    }
}

#[test]
fn a_row_that_began_anew_in_a_session_goes_on_too() {
    let mut ledger = Ledger::default();
    ledger.settle(&mut report(&[(1, 0, 100)]), &folded(&[]));
    // More than before: only its beginning tells.
    let mut next = report(&[(1, 9, 120)]);
    ledger.settle(&mut next, &folded(&[]));
    assert_eq!(raw(&next, &container(1)), Some(220));
}

#[test]
fn what_is_gone_is_forgotten_and_what_is_idle_is_not() {
    let mut ledger = Ledger::default();
    ledger.settle(&mut report(&[(1, 0, 100), (2, 0, 7)]), &folded(&[]));
    ledger.begin();
    assert!(!ledger.settle(&mut report(&[]), &folded(&[])));
    ledger.forget(&folded(&[1]));
    let mut next = report(&[(1, 5, 1), (2, 5, 1)]);
    assert!(ledger.settle(&mut next, &folded(&[])));
    assert_eq!(raw(&next, &container(1)), Some(101));
    assert_eq!(raw(&next, &container(2)), Some(1));
}

#[test]
fn folded_rows_are_one() {
    let mut ledger = Ledger::default();
    let mut report = report(&[(1, 0, 100), (2, 0, 7), (3, 0, 5)]);
    ledger.settle(&mut report, &folded(&[2, 3]));
    assert_eq!(raw(&report, &container(1)), Some(100));
    assert_eq!(raw(&report, &container(2)), None);
    assert_eq!(raw(&report, &Entity::Others), Some(12));
    let subject = Subject::Entity(Entity::Others);
    let of_window = report.of(&subject, "cycles").next().unwrap();
    assert_eq!(of_window.counter().unwrap().raw, 12);
}

proptest! {
    /// Whoever is folded when, whoever ends, whenever sessions end: no counter steps back, and
    /// nothing is counted twice or lost.
    #[test]
    fn no_total_steps_back(
        windows in prop::collection::vec(
            (prop::collection::vec(0_u64..1000, 4), prop::collection::vec(any::<bool>(), 4), 0..8),
            1..40,
        ),
    ) {
        let mut ledger = Ledger::default();
        let mut counted = [0_u64; 4];
        let mut began = 0;
        let mut last: HashMap<Entity, u64> = HashMap::new();
        let mut all = 0_u64;
        for (at, (gains, folds, event)) in windows.into_iter().enumerate() {
            if event == 0 {
                ledger.begin();
                counted = [0; 4];
                began = at as u64;
            }
            let mut rows = Vec::new();
            for id in 0..4_u8 {
                counted[id as usize] += gains[id as usize];
                all += gains[id as usize];
                rows.push((id, began, counted[id as usize]));
            }
            let ids: Vec<u8> = (0..4).filter(|id| folds[*id as usize]).collect();
            let mut report = report(&rows);
            ledger.settle(&mut report, &folded(&ids));
            for entity in (0..4).map(container).chain([Entity::Others]) {
                if let Some(now) = raw(&report, &entity) {
                    let before = last.insert(entity.clone(), now).unwrap_or(0);
                    prop_assert!(now >= before, "{entity:?}: {now} after {before}");
                }
            }
            prop_assert_eq!(last.values().sum::<u64>(), all);
        }
    }
}
