//! Waits behind containers that come and go.

use super::*;

/// A report of the nanoseconds that container 1 waited behind `other` since second `began`.
fn behind(other: u8, began: u64, nanos: u64) -> Report {
    let mut report = report(&[(1, 0, 100)]);
    let metric = report.add_metric(MetricInfo {
        kind: MetricKind::Counter,
        ..MetricInfo::gauge("cpu_wait_behind", "", "ns")
    });
    let attributes = report.add_attributes(Attributes {
        behind: Some(WaitedFor::Entity(container(other))),
        ..Attributes::default()
    });
    let total = CounterValue {
        start: Duration::from_secs(began),
        raw: nanos,
        estimate: Estimate::exact(nanos as f64),
        time: None,
    };
    let ids = [report.series[0].subject, metric, attributes];
    report.push(ids, Err(crate::derive::Reason::NotMeasured), Some(total));
    report
}

fn waited(report: &Report) -> u64 {
    let subject = Subject::Entity(container(1));
    let series = report.find_series(&subject, "cpu_wait_behind").next();
    report.total(series.unwrap()).unwrap().raw
}

/// The neighbours keep running, so only a limit bounds the totals of waits for them: in the end a
/// container waits for all of them.
#[test]
fn waits_that_a_row_no_longer_names_are_forgotten() {
    let mut ledger = Ledger::default();
    let none = folded(&[]);
    let attribute_count = |ledger: &Ledger| ledger.attributes.iter().count();
    assert!(ledger.apply_totals(&mut behind(2, 0, 10), &none));
    let first = attribute_count(&ledger);
    for other in 3..200 {
        let mut report = behind(other, u64::from(other), 5);
        assert!(ledger.apply_totals(&mut report, &none));
        assert_eq!(waited(&report), 5);
        assert!(attribute_count(&ledger) < first + MOST_WAITS, "{other}");
        let account = &ledger.accounts[&Subject::Entity(container(1))];
        assert_eq!(account.session.len(), 2);
        assert!(account.counts.len() <= 1 + MOST_WAITS);
    }
    // A recent wait goes on from its exported total. Its session total begins at 0, although the
    // new value is above the last one.
    let mut again = behind(198, 300, 7);
    ledger.apply_totals(&mut again, &none);
    assert_eq!(waited(&again), 12);
    // A forgotten wait begins again at 0, and disturbs no other total.
    let mut again = behind(3, 301, 4);
    ledger.apply_totals(&mut again, &none);
    assert_eq!(waited(&again), 4);
    assert_eq!(raw(&again, &container(1)), Some(100));
}

/// A row without waits in a window keeps the totals of its earlier waits.
#[test]
fn waits_go_on_after_a_window_without_waits() {
    let mut ledger = Ledger::default();
    let none = folded(&[]);
    ledger.apply_totals(&mut behind(2, 0, 10), &none);
    ledger.apply_totals(&mut report(&[(1, 0, 100)]), &none);
    let mut later = behind(2, 0, 12);
    ledger.apply_totals(&mut later, &none);
    assert_eq!(waited(&later), 12);
    // A new session begins its totals at 0, and the exported ones go on.
    ledger.begin_session(Vec::new(), false);
    let mut restarted = behind(2, 20, 3);
    ledger.apply_totals(&mut restarted, &none);
    assert_eq!(waited(&restarted), 15);
    // So does the total of a wait that is named only later in the session.
    ledger.apply_totals(&mut behind(3, 21, 1), &none);
    ledger.begin_session(Vec::new(), false);
    ledger.apply_totals(&mut behind(3, 30, 1), &none);
    let mut later = behind(2, 31, 1);
    ledger.apply_totals(&mut later, &none);
    assert_eq!(waited(&later), 16);
}
