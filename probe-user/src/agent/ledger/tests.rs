//! Totals across sessions and restarts, also of rows that are folded and shown alone again.

mod groups;
mod random;
mod waits;

use std::{path::Path, time::Duration};

use super::*;
use crate::{
    derive::{CounterSource, CounterValue, Estimate, MetricKind, RunningTime},
    sys::trusted_files::TrustedDirectory,
};

fn container(id: u8) -> Entity {
    Entity::Container {
        id: format!("{id:064}").as_str().into(),
        pod: None,
    }
}

/// A report of containers: id, start of the row in seconds, count since then.
fn report(rows: &[(u8, u64, u64)]) -> Report {
    report_of(rows, container)
}

/// A report like [`report`], of other entities.
fn report_of(rows: &[(u8, u64, u64)], entity: impl Fn(u8) -> Entity) -> Report {
    let mut report = Report::for_agent();
    let metric = report.add_metric(MetricInfo {
        name: "cycles".to_owned(),
        help: String::new(),
        unit: String::new(),
        kind: MetricKind::Counter,
        counting: CounterSource::Event(1.0),
    });
    for (id, began, raw) in rows {
        let subject = report.subject(Subject::Entity(entity(*id)));
        let total = CounterValue {
            start: Duration::from_secs(*began),
            raw: *raw,
            estimate: Estimate::exact(2.0 * *raw as f64),
            time: Some(RunningTime {
                enabled: raw.saturating_mul(2),
                running: *raw,
            }),
        };
        let window = CounterValue { raw: 1, ..total };
        report.push(
            [subject, metric, 0],
            Ok(Value::Counter(window)),
            Some(total),
        );
    }
    report
}

fn total(report: &Report, entity: &Entity) -> Option<CounterValue> {
    let subject = Subject::Entity(entity.clone());
    let series = report.find_series(&subject, "cycles").next()?;
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
    ledger.apply_totals(&mut first, &folded(&[]));
    assert_eq!(raw(&first, &container(1)), Some(100));
    ledger.begin_session(Vec::new(), false);
    // Less than before, and then more than before.
    for (counted, expected) in [(30, 130), (150, 250)] {
        let mut next = report(&[(1, 50, counted)]);
        ledger.apply_totals(&mut next, &folded(&[]));
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
fn a_total_goes_on_when_its_row_restarts_in_a_session() {
    let mut ledger = Ledger::default();
    ledger.apply_totals(&mut report(&[(1, 0, 100)]), &folded(&[]));
    // More than before: only the start shows the reset.
    let mut next = report(&[(1, 9, 120)]);
    ledger.apply_totals(&mut next, &folded(&[]));
    assert_eq!(raw(&next, &container(1)), Some(220));
}

#[test]
fn ended_rows_are_forgotten_and_idle_ones_kept() {
    let mut ledger = Ledger::default();
    ledger.apply_totals(&mut report(&[(1, 0, 100), (2, 0, 7)]), &folded(&[]));
    ledger.begin_session(Vec::new(), false);
    assert!(!ledger.apply_totals(&mut report(&[]), &folded(&[])));
    ledger.forget(&folded(&[1]).rows, |_| false);
    let mut next = report(&[(1, 5, 1), (2, 5, 1)]);
    assert!(ledger.apply_totals(&mut next, &folded(&[])));
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
fn rows_left_out_keep_their_totals() {
    let mut ledger = Ledger::default();
    let left_out = Folded {
        left_out: [process(1)].into(),
        ..Folded::default()
    };
    let mut first = report_of(&[(1, 0, 100), (2, 0, 7)], process);
    ledger.apply_totals(&mut first, &left_out);
    let shown = |report: &Report| [1, 2].map(|id| raw(report, &process(id)));
    assert_eq!(shown(&first), [None, Some(7)]);
    ledger.begin_session(Vec::new(), false);
    let mut next = report_of(&[(1, 9, 1), (2, 9, 1)], process);
    ledger.apply_totals(&mut next, &Folded::default());
    assert_eq!(shown(&next), [Some(101), Some(8)]);
}

#[test]
fn folded_rows_are_summed_into_one() {
    let mut ledger = Ledger::default();
    let mut report = report(&[(1, 0, 100), (2, 0, 7), (3, 0, 5)]);
    ledger.apply_totals(&mut report, &folded(&[2, 3]));
    assert_eq!(raw(&report, &container(1)), Some(100));
    assert_eq!(raw(&report, &container(2)), None);
    assert_eq!(raw(&report, &Entity::Others), Some(12));
    let subject = Subject::Entity(Entity::Others);
    let window_series = report.find_series(&subject, "cycles").next().unwrap();
    assert_eq!(window_series.counter().unwrap().raw, 12);
}

const BOOT: &str = "boot";

fn save(ledger: &Ledger, directory: &Path) {
    let directory = TrustedDirectory::open(directory).unwrap();
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
    ledger.begin_session(Vec::new(), false);
    ledger.apply_totals(
        &mut report(&[(1, 0, 100), (2, 0, 7), (3, 0, 5)]),
        &folded(&[2, 3]),
    );
    // One of the two folded rows ended while the agent was down; its totals stay in the sum.
    let mut ledger = restarted(&ledger);
    ledger.begin_session(Vec::new(), true);
    let mut after = report(&[(1, 0, 110), (2, 0, 8)]);
    ledger.apply_totals(&mut after, &folded(&[2]));
    assert_eq!(raw(&after, &container(1)), Some(110));
    assert_eq!(raw(&after, &Entity::Others), Some(13));
    // A session that does not continue the totals: its counts are added.
    let mut ledger = restarted(&ledger);
    ledger.begin_session(Vec::new(), false);
    let mut restarted = report(&[(1, 9, 1), (2, 9, 4)]);
    ledger.apply_totals(&mut restarted, &folded(&[2]));
    assert_eq!(raw(&restarted, &container(1)), Some(111));
    assert_eq!(raw(&restarted, &Entity::Others), Some(17));
}

#[test]
fn a_damaged_ledger_and_one_of_another_boot_are_refused() {
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

/// The agent's own metrics begin with its process.
#[test]
fn the_agents_own_counters_are_not_saved() {
    let mut ledger = Ledger::default();
    let own = Subject::Pmuscope;
    ledger
        .accounts
        .insert(own.clone(), LedgerAccount::default());
    assert!(!restarted(&ledger).accounts.contains_key(&own));
}

/// A receiver takes a new start for a reset: the continued value would count twice.
#[test]
fn a_total_keeps_the_start_of_its_first_session() {
    let mut ledger = Ledger::default();
    let apply = |ledger: &mut Ledger, rows: &[(u8, u64, u64)], ids: &[u8], entity: &Entity| {
        let mut report = report(rows);
        ledger.apply_totals(&mut report, &folded(ids));
        let total = total(&report, entity).unwrap();
        (total.start.as_secs(), total.raw)
    };
    let first = container(1);
    assert_eq!(apply(&mut ledger, &[(1, 5, 10)], &[], &first), (5, 10));
    ledger.begin_session(Vec::new(), false);
    assert_eq!(apply(&mut ledger, &[(1, 9, 3)], &[], &first), (5, 13));
    // The row of others has the start of its first row.
    let (rows, others) = ([(1, 9, 4), (2, 10, 7)], Entity::Others);
    assert_eq!(apply(&mut ledger, &rows, &[2], &others), (10, 7));
    let rows = [(1, 9, 6), (2, 10, 7)];
    assert_eq!(apply(&mut ledger, &rows, &[1, 2], &others), (10, 9));
}

/// The file does not describe its own layout, so any change of its layout needs a new format.
#[test]
fn the_format_is_raised_with_every_change() {
    let mut ledger = Ledger::default();
    ledger.apply_totals(&mut report(&[(1, 5, 10)]), &folded(&[]));
    let directory = tempfile::tempdir().unwrap();
    save(&ledger, directory.path());
    let bytes = std::fs::read(directory.path().join("exported")).unwrap();
    let sum = u64::from_le_bytes(*bytes.last_chunk::<8>().unwrap());
    assert_eq!(
        sum, 1_767_532_390_963_705_950,
        "raise FORMAT in state/file.rs, and set this to what is found"
    );
}
