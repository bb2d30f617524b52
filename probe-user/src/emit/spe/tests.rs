//! Golden output of one report of samples with everything that can be in it.

use std::{collections::BTreeMap, time::Duration};

use probe_common::spe::{Class, Source, SpeCpu};

use super::*;
use crate::{
    derive::spe::SpeReportRow,
    join::Entity,
    snapshot::{SpeHealth, SpeHook},
    window::Served,
};

fn estimate(value: f64) -> Estimate {
    Estimate {
        value,
        low: value * 0.75,
        high: value * 1.25,
    }
}

fn latency(mean: f64) -> Latency {
    let some = |factor: f64| Some(estimate(mean * factor));
    Latency {
        mean: some(1.0),
        p50: some(0.5),
        p90: some(2.0),
        p99: some(8.0),
    }
}

const UNKNOWN: Latency = Latency {
    mean: None,
    p50: None,
    p90: None,
    p99: None,
};

fn served(served: Served, samples: u64, share: f64) -> ServedBy {
    ServedBy {
        served,
        samples,
        operations: estimate(32_768.0 * 10.0 * share),
        share: Some(estimate(share)),
        latency: latency(4.0),
    }
}

fn loads() -> Accesses {
    Accesses {
        class: Class::Load,
        samples: 10,
        operations: estimate(327_680.0),
        latency: latency(64.0),
        issue: Some(estimate(8.0)),
        translation: Some(estimate(2.0)),
        walks: Some(estimate(0.25)),
        remote: Some(estimate(0.125)),
        sources: vec![
            served(Served::By(Source::L1d), 8, 0.75),
            served(Served::By(Source::Remote), 1, 0.125),
            served(Served::Number(77), 1, 0.125),
        ],
    }
}

/// One sample, of which nothing is known but that it was taken.
fn store() -> Accesses {
    Accesses {
        class: Class::Store,
        samples: 1,
        operations: estimate(32_768.0),
        latency: UNKNOWN,
        issue: None,
        translation: None,
        walks: Some(estimate(0.0)),
        remote: None,
        sources: vec![ServedBy {
            served: Served::NotSaid,
            samples: 1,
            operations: estimate(32_768.0),
            share: Some(estimate(1.0)),
            latency: UNKNOWN,
        }],
    }
}

fn report() -> SpeReport {
    let row = |label, classes| SpeReportRow { label, classes };
    SpeReport {
        elapsed: Duration::from_millis(2500),
        length: Duration::from_secs(1),
        rows: vec![
            row(Entity::Command("make, all".into()), vec![loads(), store()]),
            row(Entity::Unattributed, vec![store()]),
        ],
        total: SpeReportRow {
            label: (),
            classes: vec![loads(), store()],
        },
        pages: vec![
            Page {
                tgid: 42,
                address: 0x7f00_0000_1000,
                samples: 7,
                mean: Some(estimate(12.5)),
            },
            Page {
                tgid: 42,
                address: 0x7f00_0000_2000,
                samples: 1,
                mean: None,
            },
        ],
        health: SpeHealth {
            hook: SpeHook::Kprobe,
            period: 32_768,
            sum: SpeCpu {
                chunks: 3,
                cells: 14,
                records: 11,
                skipped: 2,
                padding: 1,
                missed_bytes: 64,
                late_bytes: 128,
                nanos: 1524,
                ..SpeCpu::default()
            },
            longest: 600,
            rows: 3,
            sampler: BTreeMap::from([("sample_collision", 5)]),
            aux_size: 32_768,
            unlogged: 1,
            bpf_stats: Some(1800),
        },
    }
}

/// Two windows, the second without what need not be there.
fn written(format: Format) -> String {
    let mut bytes = Vec::new();
    let mut emitter = SpeEmitter::new(&mut bytes, format, true);
    emitter.write(&report()).unwrap();
    let mut second = report();
    second.rows.truncate(1);
    second.pages.clear();
    second.health.bpf_stats = None;
    emitter.write(&second).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn table() {
    insta::assert_snapshot!(written(Format::Table));
}

#[test]
fn csv() {
    let text = written(Format::Csv);
    // Every line has all fields, and the heading comes once.
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    assert!(reader.records().all(|record| record.is_ok()));
    assert_eq!(text.matches("elapsed_s").count(), 1);
    insta::assert_snapshot!(text);
}

#[test]
fn json() {
    let text = written(Format::Json);
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[1].get("pages").is_none());
    insta::assert_snapshot!(serde_json::to_string_pretty(&lines[0]).unwrap());
}
