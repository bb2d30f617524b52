//! The capacity figures of the NMO paper, section VI.A.

use std::collections::BTreeMap;

use super::*;
use crate::{
    derive::{ReportSection, Subject},
    join::{Entity, Joined, MemoryPeak, View},
    machine::memory::MemoryUse,
    plan::Plan,
    window,
};

const GIB: f64 = 1_073_741_824.0;

/// Half of the peak is in use now. Sizes are in GiB; the peak was `at` seconds after the start.
fn capacity(peak: f64, limit: Option<f64>, at: u64) -> MemoryCapacity {
    let bytes = |gib: f64| Duration::from_secs_f64(gib * GIB).as_secs();
    MemoryCapacity {
        now: MemoryUse {
            used: bytes(peak / 2.0),
            limit: limit.map(bytes),
            ..MemoryUse::default()
        },
        peak: MemoryPeak {
            bytes: bytes(peak),
            at: Duration::from_secs(at),
        },
    }
}

fn report(entities: BTreeMap<Entity, MemoryCapacity>, machine: Option<MemoryCapacity>) -> Report {
    let window = window::tests::empty();
    let mut joined: Joined = View::default().join(&Plan::default(), &window, None);
    joined.sources.memory = Some(MemoryCapacities {
        entities,
        machine,
        pages: None,
    });
    Report::new(&Plan::default(), &window, &joined, &View::default())
}

fn container(name: &str) -> Entity {
    Entity::Container {
        id: name.into(),
        pod: None,
    }
}

/// 123.8 GiB (Page Rank) and 52.3 GiB (In-memory Analytics) of 256 GiB are 48.4% and 20.4%.
#[test]
fn the_sentences_are_those_of_the_paper() {
    let entities = [
        (container("analytics"), capacity(52.3, None, 40)),
        (container("pagerank"), capacity(123.8, None, 12)),
        (container("own"), capacity(3.0, Some(4.0), 7)),
    ];
    let report = report(entities.into(), Some(capacity(180.0, Some(256.0), 41)));
    let sentences: Vec<_> = report.findings.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "peak 75.0% of the limit (3.0 GiB of 4.0 GiB), reached 7 s in",
            "peak 48.4% of the machine's memory (123.8 GiB of 256.0 GiB), reached 12 s in",
            "peak 20.4% of the machine's memory (52.3 GiB of 256.0 GiB), reached 40 s in",
            "peak 70.3% of the limit (180.0 GiB of 256.0 GiB), reached 41 s in",
        ]
    );
    let rows = report
        .groups()
        .filter(|group| group.section == ReportSection::Rows);
    assert_eq!(rows.count(), 3);
    let subject = Subject::Entity(container("pagerank"));
    let value = |metric| {
        report
            .find_series(&subject, metric)
            .next()
            .unwrap()
            .value
            .clone()
    };
    let number = |metric| value(metric).unwrap().estimate().unwrap().value;
    assert!((number("memory_peak_of_limit") - 48.4).abs() < 0.05);
    assert!((number("memory_used") / GIB - 61.9).abs() < 0.001);
    assert!(report.find_series(&subject, "memory_anon").next().is_none());
}

/// Peaks below 10% of the limit have no finding, of a container or of the machine.
#[test]
fn small_peaks_are_not_reported() {
    let entities = [
        (container("small"), capacity(0.01, None, 1)),
        (container("near"), capacity(9.0, Some(10.0), 2)),
    ];
    let report = report(entities.into(), Some(capacity(20.0, Some(256.0), 3)));
    let found: Vec<_> = { report.findings.iter() }
        .map(|it| it.text.split(" (").next().unwrap())
        .collect();
    assert_eq!(found, ["peak 90.0% of the limit"]);
}

/// The limit of the machine is unknown in a container without /proc/meminfo: no sentence, no value.
#[test]
fn without_a_limit_nothing_is_reported() {
    let entities = [(container("a"), capacity(1.0, None, 1))];
    let report = report(entities.into(), None);
    assert!(report.findings.is_empty());
    let subject = Subject::Entity(container("a"));
    assert!(
        report
            .find_series(&subject, "memory_limit")
            .next()
            .is_none()
    );
    assert!(report.find_series(&subject, "memory_peak").next().is_some());
    let total = report
        .groups()
        .find(|group| group.section == ReportSection::Total);
    assert!(total.is_none_or(|total| total.series.is_empty()));
}
