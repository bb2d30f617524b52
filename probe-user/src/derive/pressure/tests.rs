//! Series of pressure and throttling, reasons for their absence, and sentences of findings.

use std::{collections::BTreeMap, time::Duration};

use super::{CgroupCounter::*, *};
use crate::{
    derive::{ReportSection, Subject},
    join::{Joined, View},
    machine::pressure::CgroupCounts,
    window::{self, Gained},
};

fn report(entities: BTreeMap<Entity, EntityPressure>, machine: CgroupCounts) -> Report {
    let window = window::tests::empty();
    let mut joined: Joined = View::default().join(&Plan::default(), &window, None);
    joined.sources.pressure = Some(PressureRows {
        beside_waits: false,
        entities,
        machine,
        length: Duration::from_secs(2),
    });
    Report::new(&Plan::default(), &window, &joined, &View::default())
}

fn container(name: &str, delta: CgroupCounts) -> (Entity, EntityPressure) {
    let entity = Entity::Container {
        id: name.into(),
        pod: None,
    };
    let counts = Gained {
        delta,
        total: delta.then(&delta),
        since: Duration::ZERO,
    };
    let row = EntityPressure {
        counts,
        quota: delta.quota,
        throttled_above: None,
    };
    (entity, row)
}

fn value(report: &Report, entity: &Entity, metric: &str) -> Result<Value, Reason> {
    let subject = Subject::Entity(entity.clone());
    report
        .find_series(&subject, metric)
        .next()
        .unwrap()
        .value
        .clone()
}

#[test]
fn pressure_is_a_share_of_the_window_and_counts_have_totals() {
    let counts = CgroupCounts {
        quota: Some(0.5),
        ..CgroupCounts::default()
            .with(CpuSome, Some(430_000))
            .with(Periods, Some(20))
            .with(ThrottledPeriods, Some(17))
            .with(Throttled, Some(1_200_000_000))
    };
    let machine = CgroupCounts::default().with(CpuSome, Some(3_000_000));
    let (entity, row) = container("a", counts);
    let report = report([(entity.clone(), row)].into(), machine);
    let pressure = Value::Gauge(Estimate::exact(21.5));
    assert_eq!(value(&report, &entity, "cpu_pressure_some"), Ok(pressure));
    let quota = Value::Gauge(Estimate::exact(0.5));
    assert_eq!(value(&report, &entity, "cpu_quota"), Ok(quota));
    let subject = Subject::Entity(entity);
    let series = report
        .find_series(&subject, "cpu_throttled")
        .next()
        .unwrap();
    assert_eq!(series.counter().unwrap().raw, 1_200_000_000);
    assert_eq!(report.find_series(&subject, "cpu_pressure_full").count(), 0);
    assert_eq!(
        report.findings[0].text,
        "its CPU quota throttled it in 17 of 20 periods, for 1.20 s added up over CPUs"
    );
}

#[test]
fn without_pressure_the_reason_says_how_to_enable_it() {
    let counts = CgroupCounts::default().with(Throttled, Some(0));
    let (entity, row) = container("a", counts);
    let report = report([(entity.clone(), row)].into(), CgroupCounts::default());
    let Err(Reason::NotPlanned(why)) = value(&report, &entity, "io_pressure_some") else {
        panic!("there is none")
    };
    assert!(why.contains("psi=1"), "{why}");
    let of_machine = report
        .groups()
        .filter(|group| group.section == ReportSection::Total);
    assert!(of_machine.count() <= 1);
    assert!(report.findings.is_empty());
}

#[test]
fn the_longest_throttled_rows_have_a_sentence() {
    let counts = |nanos| {
        CgroupCounts::default()
            .with(Periods, Some(20))
            .with(ThrottledPeriods, Some(1))
            .with(Throttled, Some(nanos))
    };
    let names = ["a", "b", "c", "d", "e"];
    let times = [
        0,
        4_000_000_000,
        1_000_000_000,
        3_000_000_000,
        2_000_000_000,
    ];
    let entities = names.into_iter().zip(times);
    let entities = entities.map(|(name, nanos)| container(name, counts(nanos)));
    let report = report(entities.collect(), CgroupCounts::default());
    let sentences: Vec<_> = report.findings.iter().map(|it| it.text.as_str()).collect();
    let expected = [4, 3, 2].map(|seconds| {
        format!(
            "its CPU quota throttled it in 1 of 20 periods, for {seconds}.00 s added up over CPUs"
        )
    });
    assert_eq!(sentences, expected);
}

#[test]
fn a_quota_above_has_a_sentence_too() {
    let (entity, mut row) = container("a", CgroupCounts::default());
    row.throttled_above = Some(700_000_000);
    let report = report([(entity, row)].into(), CgroupCounts::default());
    assert_eq!(
        report.findings[0].text,
        "a CPU quota above it throttled that cgroup for 0.70 s added up over CPUs"
    );
}
