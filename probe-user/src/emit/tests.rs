//! Golden output of one report with everything that can be in it.

use std::time::Duration;

use probe_common::spe::{Class, Source};

use super::*;
use crate::{
    catalogue::Place,
    derive::{
        Advice, Attributes, Cell, Counter, Estimate, Finding, Histogram, Kind, Metric, Reason,
        Report, Subject, Table, Value,
    },
    emit::printable::printable,
    formula::NoValue,
    join::{
        Entity,
        share::{Method, NoShare},
    },
    window::Served,
};

/// A report that is being made up.
struct Fixture {
    report: Report,
    subject: u32,
    attributes: u32,
}

type Described<'a> = (&'a str, &'a str, Kind);

const CLOCK: Described<'_> = ("task-clock", "ns", Kind::Counter);
const CYCLES: Described<'_> = ("cycles", "", Kind::Counter);
const UNCORE: Described<'_> = ("nvidia_scf_pmu_0/cycles/", "", Kind::Counter);
const OPERATIONS: Described<'_> = ("spe_operations", "", Kind::Counter);

impl Fixture {
    fn about(&mut self, subject: Subject, attributes: Attributes) {
        self.subject = self.report.subject(subject);
        self.with(attributes);
    }

    fn with(&mut self, attributes: Attributes) {
        self.attributes = self.report.add_attributes(attributes);
    }

    fn add(
        &mut self,
        (name, unit, kind): Described<'_>,
        value: Result<Value, Reason>,
        total: Option<f64>,
    ) {
        let metric = self.report.add_metric(Metric {
            name: name.to_owned(),
            help: format!("What \"{name}\" says"),
            unit: unit.to_owned(),
            kind,
            event: [CLOCK, CYCLES, UNCORE].contains(&(name, unit, kind)),
        });
        let ids = [self.subject, metric, self.attributes];
        self.report.push(ids, value, total);
    }

    /// What was not seen may be off by all of itself. As much was counted before.
    fn count(&mut self, described: Described<'_>, raw: u64, scaled: f64) {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let live = if scaled == 0.0 {
            1.0
        } else {
            raw as f64 / scaled
        };
        let estimate = Estimate {
            live,
            error: Some(scaled * (1.0 - live)),
            ..Estimate::exact(scaled)
        };
        let counter = Counter { raw, estimate };
        self.add(described, Ok(Value::Counter(counter)), Some(2.0 * scaled));
    }

    fn gauge(&mut self, name: &str, unit: &str, value: Estimate) {
        self.add((name, unit, Kind::Gauge), Ok(Value::Gauge(value)), None);
    }

    fn absent(&mut self, name: &str, unit: &str, reason: impl Into<Reason>) {
        self.add((name, unit, Kind::Gauge), Err(reason.into()), None);
    }

    /// Ratios of counters, of which the second took turns, and of samples; one sample has no mean.
    fn metrics(&mut self, ipc: Option<f64>) {
        match ipc {
            Some(ipc) => {
                self.gauge("ipc", "1/cycle", Estimate::exact(ipc));
                let turns = Estimate {
                    live: 0.25,
                    error: Some(ipc / 800.0),
                    ..Estimate::exact(ipc / 100.0)
                };
                self.gauge("branch_miss_ratio", "1", turns);
            }
            None => {
                let never = || NoValue::NeverRan("cycles".to_owned());
                self.absent("ipc", "1/cycle", never());
                self.absent("branch_miss_ratio", "1", never());
            }
        }
        self.gauge("spe_load_rate", "1/s", sampled(1e6));
        self.gauge("spe_load_dram_ratio", "1", sampled(0.25));
        self.absent("spe_load_latency", "cycles", NoValue::TooFewSamples);
    }

    fn row(&mut self, entity: Entity, clock: u64, ipc: Option<f64>) {
        self.about(Subject::Entity(entity), Attributes::default());
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        self.count(CLOCK, clock, clock as f64);
        self.count(CYCLES, 250, 1_000.0);
        self.metrics(ipc);
    }

    fn accesses(
        &mut self,
        operation: Class,
        source: Option<Served>,
        samples: u64,
        mean: Option<f64>,
    ) {
        self.with(Attributes {
            operation: Some(operation),
            source,
            ..Attributes::default()
        });
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let estimate = sampled(32_768.0 * samples as f64);
        let counter = Value::Counter(Counter {
            raw: samples,
            estimate,
        });
        self.add(OPERATIONS, Ok(counter), Some(1e6));
        match mean {
            Some(mean) => self.gauge("spe_latency_mean_cycles", "cycles", sampled(mean)),
            None => self.absent("spe_latency_mean_cycles", "cycles", NoValue::TooFewSamples),
        }
        let histogram = Value::Histogram(Box::new(Histogram {
            bounds: vec![1.0, 3.0],
            counts: vec![1, 0, samples],
            sum: 9.0,
        }));
        let described = ("spe_latency_cycles", "cycles", Kind::Histogram);
        self.add(described, Ok(histogram), None);
        if source.is_none() {
            self.gauge("spe_tlb_walk_share", "1", sampled(0.25));
        } else {
            self.gauge("spe_source_share", "1", sampled(0.75));
        }
    }

    fn share(&mut self, whose: Subject, share: Result<(f64, Option<f64>), NoShare>) {
        let attributes = Attributes {
            socket: Some(1),
            method: share.is_ok().then_some(Method::LlcReadMisses),
            ..Attributes::default()
        };
        self.about(whose, attributes);
        let name = "cmem_read_bandwidth_apportioned";
        match share {
            Ok((value, error)) => {
                let estimate = Estimate {
                    error,
                    ..Estimate::exact(value)
                };
                self.gauge(name, "GB/s", estimate);
            }
            Err(reason) => self.absent(name, "GB/s", Reason::NoShare(reason)),
        }
    }
}

fn sampled(value: f64) -> Estimate {
    Estimate {
        interval: Some((value * 0.75, value * 1.25)),
        ..Estimate::exact(value)
    }
}

fn place(device: Option<&str>, names: &[&str]) -> Subject {
    let place = Place {
        socket: Some(0),
        device: device.map(str::to_owned),
        ..Place::default()
    };
    let names = names.iter().map(|name| (*name).to_owned());
    Subject::Place(place, names.collect())
}

pub(super) fn report() -> Report {
    let report = Report {
        began: Duration::from_secs(100),
        start: Duration::from_millis(101_500),
        end: Duration::from_millis(102_500),
        attributes: vec![Attributes::default()],
        ..Report::default()
    };
    let mut it = Fixture {
        report,
        subject: 0,
        attributes: 0,
    };
    let id = "0123456789abcdef".repeat(4);
    let pod = Some("7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f".to_owned());
    it.row(Entity::Command("make".into()), 5_000_000, Some(1.5));
    it.accesses(Class::Load, None, 10, Some(64.0));
    it.accesses(Class::Load, Some(Served::By(Source::L1d)), 9, Some(4.0));
    it.accesses(Class::Load, Some(Served::Number(77)), 1, None);
    // Of another window: only totals are shown.
    it.accesses(Class::Load, Some(Served::By(Source::Remote)), 0, None);
    it.accesses(Class::Store, None, 1, None);
    it.accesses(Class::Store, Some(Served::NotSaid), 1, None);
    it.row(Entity::Container { id, pod }, 1, None);
    let (tgid, name) = (42, None);
    it.row(Entity::Process { tgid, name }, 0, None);
    // Its total is known all the same.
    it.about(Subject::Entity(Entity::Unnamed(99)), Attributes::default());
    let unknown = || Err(Reason::NoValue(NoValue::MostlyUnknown));
    it.add(CLOCK, unknown(), Some(1e9));
    it.add(CYCLES, unknown(), None);
    it.row(Entity::System, 7, Some(0.0));
    it.row(Entity::Overflow, 7, None);
    it.row(Entity::Idle, 8, None);
    it.about(Subject::Socket(0), Attributes::default());
    it.count(UNCORE, 640, 640.0);
    it.about(Subject::Socket(1), Attributes::default());
    it.add(
        UNCORE,
        Err(NoValue::Missing(vec![UNCORE.0.into()]).into()),
        None,
    );
    it.about(Subject::Machine, Attributes::default());
    it.count(CLOCK, 9, 9.0);
    it.count(CYCLES, 10, 10.0);
    it.metrics(Some(1.25));
    it.accesses(Class::Load, None, 10, Some(64.0));
    it.with(Attributes::default());
    let reason = "there is no PMU of that name".to_owned();
    it.absent("sve_ops", "1", Reason::NotPlanned(reason));
    it.about(place(None, &[]), Attributes::default());
    it.gauge("read_bandwidth", "GB/s", Estimate::exact(12.5));
    let device = place(Some("nvidia_pcie_pmu_0"), &["nvme0", "eth0"]);
    it.about(device, Attributes::default());
    let zero = NoValue::DenominatorZero("RD_REQ".to_owned());
    it.absent("pcie_read_latency", "ns", zero);
    it.share(Subject::Entity(Entity::System), Ok((12.5, Some(0.25))));
    let unseen = Subject::Entity(Entity::Unnamed(99));
    it.share(unseen, Err(NoShare::OwnerUnseen));
    it.share(Subject::Unattributed, Ok((0.5, None)));
    it.share(Subject::Io, Ok((0.5, Some(0.0))));
    it.share(Subject::Unknown, Err(NoShare::RotatedOut));
    let of_socket = Attributes {
        socket: Some(1),
        ..Attributes::default()
    };
    it.about(Subject::Entity(Entity::System), of_socket);
    it.gauge("resctrl_bandwidth", "GB/s", Estimate::exact(13.0));
    it.about(Subject::Pmuscope, Attributes::default());
    let version = vec![("version", "1.2.3".to_owned())];
    it.add(("build", "", Kind::Info), Ok(Value::Info(version)), None);
    let hook = Value::State("sched-switch", &["sched-switch", "cgroup-switches"]);
    it.add(("hook", "", Kind::State), Ok(hook), None);
    it.count(("runs", "", Kind::Counter), 4_096, 4_096.0);
    it.gauge("ns_per_run_same_owner", "ns", Estimate::exact(62.0));
    it.absent("ns_per_run_charging", "ns", Reason::NotMeasured);
    it.gauge("spe_period", "", Estimate::exact(32_768.0));
    it.report.tables.push(Table {
        name: "pages",
        columns: vec!["pid", "address", "spe_samples", "spe_latency_mean_cycles"],
        rows: [(7, Some(12.5)), (1, None)]
            .map(|(samples, mean)| {
                vec![
                    Cell::Number(42),
                    Cell::Address(0x7f00_0000_1000 * samples),
                    Cell::Number(samples),
                    Cell::Estimate(mean.map(sampled)),
                ]
            })
            .into(),
    });
    it.report.findings = vec![Finding {
        socket: 0,
        text: "writes of socket 0 go past the cache".to_owned(),
    }];
    it.report.advice = &[Advice {
        what: "reuse buffers",
        lowers: &["misses", "memory_bandwidth"],
    }];
    it.report
}

/// What a process may call itself.
pub(super) const HOSTILE: &str = "\u{1b}]0;gone\u{7}\u{9b}2J\r\nroot \u{202e}\"\\";

/// The report with names that were chosen to do harm.
pub(super) fn hostile() -> Report {
    let mut report = report();
    let mut entities = report
        .subjects
        .iter_mut()
        .filter_map(|subject| match subject {
            Subject::Entity(entity) => Some(entity),
            _ => None,
        });
    let (tgid, name) = (42, Some(HOSTILE.to_owned()));
    let names = [
        Entity::Command(HOSTILE.into()),
        Entity::Cgroup(format!("/{HOSTILE}")),
        Entity::Process { tgid, name },
    ];
    for name in names {
        *entities.next().unwrap() = name;
    }
    for subject in &mut report.subjects {
        if let Subject::Place(_, devices) = subject {
            *devices = vec![HOSTILE.into()];
        }
    }
    report.metrics[0].name = HOSTILE.into();
    report.attributes[1].device = Some(HOSTILE.into());
    report.findings[0].text = HOSTILE.into();
    for series in &mut report.series {
        if let Err(Reason::NotPlanned(reason)) = &mut series.value {
            *reason = HOSTILE.into();
        }
    }
    report
}

pub(super) fn written(report: &Report, format: Format) -> String {
    let mut bytes = Vec::new();
    Emitter::new(&mut bytes, format, true)
        .write(report)
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn table() {
    insta::assert_snapshot!(written(&report(), Format::Table));
}

#[test]
fn json() {
    let text = written(&report(), Format::Json);
    assert_eq!(text.lines().count(), 1);
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&parsed).unwrap());
}

#[test]
fn csv() {
    let text = written(&report(), Format::Csv);
    // Every line has all fields.
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    assert!(reader.records().all(|record| record.is_ok()));
    insta::assert_snapshot!(text);
}

#[test]
fn openmetrics() {
    insta::assert_snapshot!(written(&report(), Format::OpenMetrics));
}

/// What a process called itself does nothing to the terminal, and programs get it as it is.
#[test]
fn names_with_escape_sequences() {
    let acts = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
    let lines = |text: &str| text.lines().count();
    for format in [
        Format::Table,
        Format::Csv,
        Format::Json,
        Format::OpenMetrics,
    ] {
        let text = written(&hostile(), format);
        assert!(!text.contains(acts), "{text:?}");
        assert_eq!(lines(&text), lines(&written(&report(), format)), "{text}");
        let shown = printable("\u{1b}]0;gone\u{7}");
        let shown = match format {
            Format::OpenMetrics => shown.replace('\\', r"\\"),
            _ => shown.into_owned(),
        };
        assert_eq!(text.contains(&shown), format != Format::Json, "{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&written(&hostile(), Format::Json)).unwrap();
    assert_eq!(json["rows"][0]["name"], HOSTILE);
}

#[test]
fn csv_has_one_heading() {
    let mut bytes = Vec::new();
    let mut emitter = Emitter::new(&mut bytes, Format::Csv, false);
    emitter.write(&report()).unwrap();
    emitter.write(&report()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let headings = text.lines().filter(|line| line.starts_with("elapsed_s"));
    assert_eq!(headings.count(), 1);
}

/// A window goes out in one call, whatever is in it.
#[test]
fn a_window_is_written_at_once() {
    struct Calls(Vec<usize>);
    impl Write for Calls {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.push(text.len());
            Ok(text.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in [
        Format::Table,
        Format::Csv,
        Format::Json,
        Format::OpenMetrics,
    ] {
        let mut calls = Calls(Vec::new());
        Emitter::new(&mut calls, format, true)
            .write(&report())
            .unwrap();
        assert_eq!(calls.0, [written(&report(), format).len()]);
    }
}
