//! Golden output of one report with everything that can be in it.

use std::time::Duration;

use probe_common::SampledCost;

use super::*;
use crate::{
    catalogue::Place,
    derive::{
        Advice, CountValue, Finding, Measured, MetricHead, MetricValue, PlaceRow, Row, Share,
        ShareRow, Value,
    },
    emit::printable::printable,
    formula::NoValue,
    join::share::Method,
    plan::{Column, CountSource as Source},
    snapshot::{CountingCost, Hook, MapMemory, ReadCost, Refused},
};

fn column(name: &str, unit: Option<&str>, clock: bool) -> Column {
    let place = Source::Core { group: 0, at: 0 };
    Column {
        name: name.into(),
        unit: unit.map(Into::into),
        scale: 1.0,
        place,
        clock,
        shown: true,
    }
}

/// What was not seen may be off by all of itself.
fn value(raw: u64, scaled: f64, running: f64) -> CountValue {
    Some(Ok(Value {
        raw,
        scaled,
        running,
        error: scaled * (1.0 - running),
    }))
}

fn unknown() -> CountValue {
    Some(Err(NoValue::MostlyUnknown))
}

fn metric(value: f64, live: f64) -> MetricValue {
    Ok(Measured {
        value,
        live,
        interval: None,
        error: (live < 1.0).then_some(value / 8.0),
    })
}

/// A rate and a share of what was sampled; one sample has no mean.
fn sampled(rate: f64, share: f64) -> [MetricValue; 3] {
    let estimate = |value: f64| {
        Ok(Measured {
            value,
            live: 1.0,
            interval: Some((value * 0.75, value * 1.25)),
            error: None,
        })
    };
    let mean = Err(NoValue::TooFewSamples);
    [estimate(rate), estimate(share), mean]
}

fn head(name: &str, unit: &str) -> MetricHead {
    MetricHead {
        name: name.into(),
        unit: unit.into(),
    }
}

/// The IPC, and the reason why it has none.
fn row<L>(label: L, values: [CountValue; 3], ipc: Option<f64>) -> Row<L> {
    let never = || Err(NoValue::NeverRan("cycles".to_owned()));
    let second = ipc.map_or_else(never, |ipc| metric(ipc / 100.0, 0.25));
    let first = ipc.map_or_else(never, |ipc| metric(ipc, 1.0));
    let sampled = sampled(1e6 * ipc.unwrap_or_default(), 0.25);
    Row {
        label,
        values: values.into(),
        metrics: [first, second].into_iter().chain(sampled).collect(),
    }
}

fn share(whose: Whose, value: Result<(f64, Option<f64>), &str>) -> ShareRow {
    let share = value.map(|(value, rel_error)| Share {
        value,
        live: 1.0,
        method: Method::LlcReadMisses,
        rel_error,
    });
    let monitored = matches!(whose, Whose::Entity(_)).then_some(13e9);
    ShareRow {
        whose,
        socket: 1,
        device: None,
        metric: head("cmem_read_bandwidth_apportioned", "GB/s"),
        share: share.map_err(str::to_owned),
        monitored,
    }
}

fn report() -> Report {
    let id = "0123456789abcdef".repeat(4);
    let pod = Some("7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f".to_owned());
    Report {
        elapsed: Duration::from_millis(2_500),
        length: Duration::from_millis(1_000),
        columns: vec![
            column("task-clock", Some("ns"), true),
            column("cycles", None, false),
            column("nvidia_scf_pmu_0/cycles/", None, false),
        ],
        metrics: vec![
            head("ipc", "1/cycle"),
            head("branch_miss_ratio", "1"),
            head("spe_load_rate", "1/s"),
            head("spe_load_dram_ratio", "1"),
            head("spe_load_latency", "cycles"),
        ],
        rows: vec![
            row(
                Entity::Command("make".into()),
                [
                    value(5_000_000, 5e6, 1.0),
                    value(1_234_567, 1_234_567.0, 1.0),
                    None,
                ],
                Some(1.5),
            ),
            row(
                Entity::Container { id, pod },
                [value(1, 1.0, 1.0), value(250, 1_000.0, 0.25), None],
                None,
            ),
            row(
                Entity::Process {
                    tgid: 42,
                    name: None,
                },
                [value(0, 0.0, 1.0), None, None],
                None,
            ),
            row(Entity::Unnamed(99), [unknown(), unknown(), None], None),
            row(
                Entity::System,
                [value(7, 7.0, 1.0), value(0, 0.0, 1.0), None],
                Some(0.0),
            ),
            row(
                Entity::Overflow,
                [value(7, 7.0, 1.0), value(0, 0.0, 1.0), None],
                None,
            ),
            row(
                Entity::Idle,
                [value(8, 8.0, 1.0), value(0, 0.0, 1.0), None],
                None,
            ),
        ],
        sockets: vec![
            row(0, [None, None, value(640, 640.0, 1.0)], None),
            row(1, [None, None, None], None),
        ],
        total: row(
            (),
            [value(9, 9.0, 1.0), value(10, 10.0, 1.0), None],
            Some(1.25),
        ),
        places: vec![
            PlaceRow {
                place: place_of(0, None),
                devices: Vec::new(),
                metric: head("read_bandwidth", "GB/s"),
                value: metric(12.5, 1.0),
            },
            PlaceRow {
                place: place_of(0, Some("nvidia_pcie_pmu_0")),
                devices: vec!["nvme0".to_owned(), "eth0".to_owned()],
                metric: head("pcie_read_latency", "ns"),
                value: Err(NoValue::DenominatorZero("RD_REQ".to_owned())),
            },
        ],
        shares: vec![
            share(Whose::Entity(Entity::System), Ok((12.5, Some(0.02)))),
            share(
                Whose::Entity(Entity::Unnamed(99)),
                Err("it ran only while the counters that tell who caused it were rotated out"),
            ),
            share(Whose::Unattributed, Ok((0.5, None))),
            share(
                Whose::Unknown,
                Err("the counters that tell who caused it were rotated out"),
            ),
        ],
        findings: vec![Finding {
            socket: 0,
            text: "writes of socket 0 go past the cache".to_owned(),
        }],
        advice: &[Advice {
            what: "reuse buffers",
            lowers: &["misses", "memory_bandwidth"],
        }],
        sampling: vec![("records".into(), 11), ("missed_bytes".into(), 0)],
        missing: vec![(
            head("sve_ops", "1"),
            "there is no PMU of that name".to_owned(),
        )],
    }
}

fn place_of(socket: u32, device: Option<&str>) -> Place {
    Place {
        socket: Some(socket),
        device: device.map(str::to_owned),
        ..Place::default()
    }
}

fn health() -> Health {
    Health {
        hook: Hook::SchedSwitch,
        runs: 4_096,
        charges: 100,
        same: SampledCost {
            samples: 4,
            nanos: 250,
        },
        changed: SampledCost::default(),
        cost: CountingCost {
            read: ReadCost {
                hardware: 2,
                hardware_nanos: 104,
                ..ReadCost::default()
            },
            elapsed: 1_000_000_000,
            charges: 60,
            charging: 900,
            ..CountingCost::default()
        },
        flushes: 2,
        exchanges: 5,
        rows: 12,
        memory: MapMemory {
            rows: 100,
            fixed: 900,
        },
        rebased: 0,
        read_errors: 0,
        overflowed: 3,
        refused: Refused::default(),
        map_retries: 0,
        lost_events: 0,
        missed_switches: 0,
        moved_running: 0,
        late_switches: 0,
        estimated_nanos: 0,
    }
}

fn written(format: Format) -> String {
    let mut bytes = Vec::new();
    let mut emitter = Emitter::new(&mut bytes, format, true);
    emitter.write(&report(), &health()).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn table() {
    insta::assert_snapshot!(written(Format::Table));
}

#[test]
fn json() {
    let text = written(Format::Json);
    assert_eq!(text.lines().count(), 1);
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&parsed).unwrap());
}

#[test]
fn csv() {
    insta::assert_snapshot!(written(Format::Csv));
}

/// What a process called itself does nothing to the terminal, and programs get it as it is.
#[test]
fn names_with_escape_sequences() {
    let hostile = "\u{1b}]0;gone\u{7}\u{9b}2J\r\nroot \u{202e}";
    let written = |format| {
        let mut report = report();
        report.rows[0].label = Entity::Command(hostile.into());
        report.rows[1].label = Entity::Cgroup(format!("/{hostile}"));
        report.rows[2].label = Entity::Process {
            tgid: 42,
            name: Some(hostile.into()),
        };
        report.places[0].devices = vec![hostile.into()];
        report.shares[0].whose = Whose::Entity(Entity::Cgroup(hostile.into()));
        report.findings[0].text = hostile.into();
        report.missing[0].1 = hostile.into();
        let mut bytes = Vec::new();
        let mut emitter = Emitter::new(&mut bytes, format, true);
        emitter.write(&report, &health()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let acts = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
    let lines = |text: &str| text.lines().count();
    for format in [Format::Table, Format::Csv, Format::Json] {
        let text = written(format);
        assert!(!text.contains(acts), "{text:?}");
        let shown = printable(hostile);
        assert_eq!(text.contains(&*shown), format != Format::Json, "{text}");
        assert_eq!(lines(&text), lines(&self::written(format)));
    }
    let json: serde_json::Value = serde_json::from_str(&written(Format::Json)).unwrap();
    assert_eq!(json["rows"][0]["name"], hostile);
}

#[test]
fn csv_has_one_heading() {
    let mut bytes = Vec::new();
    let mut emitter = Emitter::new(&mut bytes, Format::Csv, false);
    emitter.write(&report(), &health()).unwrap();
    emitter.write(&report(), &health()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("elapsed_s"))
            .count(),
        1
    );
}
