//! Waits behind containers that come and go.

use std::collections::HashSet;

use super::*;

/// Nanoseconds that container 1 waited behind another container since second `began`.
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

#[test]
fn waits_behind_ended_containers_are_forgotten() {
    let mut ledger = Ledger::default();
    let running: HashSet<Entity> = [1, 2].map(container).into();
    let none = folded(&[]);
    assert!(ledger.apply_totals(&mut behind(2, 0, 10), &none));
    let known = |ledger: &Ledger| ledger.attributes.iter().count();
    let first = known(&ledger);
    for other in 3..200 {
        let mut report = behind(other, u64::from(other), 5);
        assert!(!ledger.apply_totals(&mut report, &none));
        ledger.forget(&running, |_| false);
        assert_eq!(waited(&report), 5);
        // The one before, unless it exists, is gone.
        assert_eq!(known(&ledger), first + 1, "{other}");
        let account = &ledger.accounts[&Subject::Entity(container(1))];
        assert_eq!([account.session.len(), account.counts.len()], [3, 3]);
    }
    // One that exists goes on from its total.
    let mut again = behind(2, 300, 7);
    ledger.apply_totals(&mut again, &none);
    assert_eq!(waited(&again), 17);
    // One that was forgotten begins again, and disturbs no other total.
    let mut again = behind(3, 301, 4);
    ledger.apply_totals(&mut again, &none);
    assert_eq!(waited(&again), 4);
    assert_eq!(raw(&again, &container(1)), Some(100));
}
