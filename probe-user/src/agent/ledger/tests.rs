//! Totals over sessions, and over rows that are put together and taken apart.

mod groups;
mod random;

use std::{path::Path, time::Duration};

use super::*;
use crate::{
    derive::{Counter, Counting, Estimate, Kind, LiveTime},
    sys::own_files::OwnDirectory,
};

fn container(id: u8) -> Entity {
    Entity::Container {
        id: format!("{id:064}").as_str().into(),
        pod: None,
    }
}

/// A report in which these containers counted so much since the session, or their row, began: with
/// the time at which that was.
fn report(rows: &[(u8, u64, u64)]) -> Report {
    report_of(rows, container)
}

/// The same of others.
fn report_of(rows: &[(u8, u64, u64)], entity: impl Fn(u8) -> Entity) -> Report {
    let mut report = Report::of_agent();
    let metric = report.add_metric(Metric {
        name: "cycles".to_owned(),
        help: String::new(),
        unit: String::new(),
        kind: Kind::Counter,
        counting: Counting::Event(1.0),
    });
    for (id, began, raw) in rows {
        let subject = report.subject(Subject::Entity(entity(*id)));
        let total = Counter {
            start: Duration::from_secs(*began),
            raw: *raw,
            estimate: Estimate::exact(2.0 * *raw as f64),
            time: Some(LiveTime {
                enabled: raw.saturating_mul(2),
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

fn folded(ids: &[u8]) -> Folded {
    Folded {
        rows: ids.iter().copied().map(container).collect(),
        ..Folded::default()
    }
}

#[test]
fn totals_go_on_in_the_next_session() {
    let mut ledger = Ledger::default();
    let mut first = report(&[(1, 0, 100)]);
    ledger.settle(&mut first, &folded(&[]));
    assert_eq!(raw(&first, &container(1)), Some(100));
    ledger.begin(Vec::new(), false);
    // Less than before, and then more than before.
    for (counted, expected) in [(30, 130), (150, 250)] {
        let mut next = report(&[(1, 50, counted)]);
        ledger.settle(&mut next, &folded(&[]));
        let total = total(&next, &container(1)).unwrap();
        assert_eq!(total.raw, expected);
        // A collector takes another start for a reset.
        assert_eq!(total.start, Duration::ZERO);
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
    ledger.begin(Vec::new(), false);
    assert!(!ledger.settle(&mut report(&[]), &folded(&[])));
    ledger.forget(&folded(&[1]).rows, |_| false);
    let mut next = report(&[(1, 5, 1), (2, 5, 1)]);
    assert!(ledger.settle(&mut next, &folded(&[])));
    assert_eq!(raw(&next, &container(1)), Some(101));
    assert_eq!(raw(&next, &container(2)), Some(1));
}

fn process(id: u8) -> Entity {
    Entity::ProcessOf {
        tgid: id.into(),
        name: None,
        row: Box::new(container(0)),
    }
}

#[test]
fn what_is_left_out_goes_on() {
    let mut ledger = Ledger::default();
    let left_out = Folded {
        left_out: [process(1)].into(),
        ..Folded::default()
    };
    let mut first = report_of(&[(1, 0, 100), (2, 0, 7)], process);
    ledger.settle(&mut first, &left_out);
    let shown = |report: &Report| [1, 2].map(|id| raw(report, &process(id)));
    assert_eq!(shown(&first), [None, Some(7)]);
    ledger.begin(Vec::new(), false);
    let mut next = report_of(&[(1, 9, 1), (2, 9, 1)], process);
    ledger.settle(&mut next, &Folded::default());
    assert_eq!(shown(&next), [Some(101), Some(8)]);
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

const BOOT: &str = "boot";

fn save(ledger: &Ledger, directory: &Path) {
    let directory = OwnDirectory::open(directory).unwrap();
    let file = ledger.encoded(BOOT).unwrap();
    file.put(&directory, || true).unwrap();
}

/// The ledger after a restart of the agent.
fn restarted(ledger: &Ledger) -> Ledger {
    let directory = tempfile::tempdir().unwrap();
    save(ledger, directory.path());
    Ledger::load(BOOT, directory.path()).unwrap()
}

#[test]
fn the_folded_row_goes_on_after_a_restart() {
    let mut ledger = Ledger::default();
    ledger.begin(Vec::new(), false);
    ledger.settle(
        &mut report(&[(1, 0, 100), (2, 0, 7), (3, 0, 5)]),
        &folded(&[2, 3]),
    );
    // One of the two has ended when the agent is back, whose totals go on.
    let mut ledger = restarted(&ledger);
    ledger.begin(Vec::new(), true);
    let mut after = report(&[(1, 0, 110), (2, 0, 8)]);
    ledger.settle(&mut after, &folded(&[2]));
    assert_eq!(raw(&after, &container(1)), Some(110));
    assert_eq!(raw(&after, &Entity::Others), Some(13));
    // Without the totals of before: what the new session counts comes on top.
    let mut ledger = restarted(&ledger);
    ledger.begin(Vec::new(), false);
    let mut anew = report(&[(1, 9, 1), (2, 9, 4)]);
    ledger.settle(&mut anew, &folded(&[2]));
    assert_eq!(raw(&anew, &container(1)), Some(111));
    assert_eq!(raw(&anew, &Entity::Others), Some(17));
}

#[test]
fn a_ledger_of_another_boot_or_that_is_damaged_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |boot| {
        Ledger::load(boot, directory.path())
            .err()
            .unwrap()
            .to_string()
    };
    assert!(
        Ledger::load(BOOT, directory.path())
            .unwrap()
            .accounts
            .is_empty()
    );
    save(&Ledger::default(), directory.path());
    assert!(refused("another").contains("is of an earlier boot"));
    let path = directory.path().join("exported");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(refused(BOOT).contains("is damaged"));
}

/// What the agent says of itself begins with it.
#[test]
fn its_own_counters_are_not_saved() {
    let mut ledger = Ledger::default();
    let own = Subject::Pmuscope;
    ledger.accounts.insert(own.clone(), Account::default());
    assert!(!restarted(&ledger).accounts.contains_key(&own));
}

/// A receiver takes a new start for a counter that began anew: the value that goes on would count
/// twice.
#[test]
fn the_start_of_a_total_is_that_of_its_first_session() {
    let mut ledger = Ledger::default();
    let settle = |ledger: &mut Ledger, rows: &[(u8, u64, u64)], ids: &[u8], of: &Entity| {
        let mut report = report(rows);
        ledger.settle(&mut report, &folded(ids));
        let total = total(&report, of).unwrap();
        (total.start.as_secs(), total.raw)
    };
    let first = container(1);
    assert_eq!(settle(&mut ledger, &[(1, 5, 10)], &[], &first), (5, 10));
    ledger.begin(Vec::new(), false);
    assert_eq!(settle(&mut ledger, &[(1, 9, 3)], &[], &first), (5, 13));
    // Of the row of others, that of the first one in it.
    let (both, others) = ([(1, 9, 4), (2, 10, 7)], Entity::Others);
    assert_eq!(settle(&mut ledger, &both, &[2], &others), (10, 7));
    let both = [(1, 9, 6), (2, 10, 7)];
    assert_eq!(settle(&mut ledger, &both, &[1, 2], &others), (9, 9));
}

/// The file has no description of itself: another meaning of its bytes is another format.
#[test]
fn the_format_is_raised_with_every_change() {
    let mut ledger = Ledger::default();
    ledger.settle(&mut report(&[(1, 5, 10)]), &folded(&[]));
    let directory = tempfile::tempdir().unwrap();
    save(&ledger, directory.path());
    let bytes = std::fs::read(directory.path().join("exported")).unwrap();
    let sum = u64::from_le_bytes(*bytes.last_chunk::<8>().unwrap());
    assert_eq!(
        sum, 11_938_187_243_690_752_262,
        "raise FORMAT in state/file.rs, and set this to what is found"
    );
}
