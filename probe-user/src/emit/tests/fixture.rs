//! A report with every kind of value.

use std::collections::BTreeSet;

use probe_common::spe::{Class, Source};

use super::builder::{CLOCK, CYCLES, Fixture, START, UNCORE, place, sampled};
use crate::{
    derive::{
        Advice, Attributes, CounterValue, Estimate, FindingKind, FindingSubject, MetricKind,
        Reason, Report, ReportFinding, ReportTable, RunningTime, Spread, Subject, TableCell, Value,
    },
    formula::NoValue,
    join::{Entity, share::NoShare},
    window::MemLevel,
};

pub(in crate::emit) fn report() -> Report {
    let mut fixture = Fixture::default();
    let id = "0123456789abcdef".repeat(4).into();
    let pod = Some("7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f".into());
    fixture.row(Entity::Command("make".into()), 5_000_000, Some(1.5));
    fixture.accesses(Class::Load, None, 10, Some(64.0));
    fixture.accesses(Class::Load, Some(MemLevel::By(Source::L1d)), 9, Some(4.0));
    fixture.accesses(Class::Load, Some(MemLevel::Number(77)), 1, None);
    // Accesses that were sampled in another window: only their totals are shown.
    fixture.accesses(Class::Load, Some(MemLevel::By(Source::Remote)), 0, None);
    fixture.accesses(Class::Store, None, 1, None);
    fixture.accesses(Class::Store, Some(MemLevel::Unknown), 1, None);
    fixture.row(Entity::Container { id, pod }, 1, None);
    let (tgid, name) = (42, None);
    fixture.row(Entity::Process { tgid, name }, 0, None);
    // The total of this row is still known.
    fixture.about(Subject::Entity(Entity::Unnamed(99)), Attributes::default());
    let unknown = || Err(Reason::NoValue(NoValue::MostlyUnknown));
    let total = CounterValue {
        start: START,
        raw: 250_000_000,
        estimate: Estimate {
            running_ratio: 0.25,
            spread: Spread::Error(75e7),
            ..Estimate::exact(1e9)
        },
        time: Some(RunningTime {
            enabled: 1_000_000_000,
            running: 250_000_000,
        }),
    };
    fixture.add(CLOCK, unknown(), Some(total));
    fixture.add(CYCLES, unknown(), None);
    fixture.row(Entity::System, 7, Some(0.0));
    fixture.row(Entity::Overflow, 7, None);
    fixture.row(Entity::Idle, 8, None);
    fixture.about(Subject::Socket(0), Attributes::default());
    fixture.count(UNCORE, 640, 640.0);
    fixture.about(Subject::Socket(1), Attributes::default());
    fixture.add(
        UNCORE,
        Err(NoValue::Missing(vec![UNCORE.0.into()]).into()),
        None,
    );
    fixture.about(Subject::Machine, Attributes::default());
    fixture.count(CLOCK, 9, 9.0);
    fixture.count(CYCLES, 10, 10.0);
    fixture.metrics(Some(1.25));
    fixture.accesses(Class::Load, None, 10, Some(64.0));
    fixture.with(Attributes::default());
    let reason = "there is no PMU of that name".to_owned();
    fixture.absent("sve_ops", "1", Reason::NotPlanned(reason));
    fixture.about(place(None, &[]), Attributes::default());
    fixture.gauge("read_bandwidth", "GB/s", Estimate::exact(12.5));
    let device = place(Some("nvidia_pcie_pmu_0"), &["nvme0", "eth0"]);
    fixture.about(device, Attributes::default());
    let zero = NoValue::DenominatorZero("RD_REQ".to_owned());
    fixture.absent("pcie_read_latency", "ns", zero);
    fixture.share(Subject::Entity(Entity::System), Ok((12.5, Some(0.25))));
    let unseen = Subject::Entity(Entity::Unnamed(99));
    fixture.share(unseen, Err(NoShare::OwnerUnseen));
    fixture.share(Subject::Unattributed, Ok((0.5, None)));
    fixture.share(Subject::Io, Ok((0.5, Some(0.0))));
    fixture.share(Subject::Unknown, Err(NoShare::RotatedOut));
    let of_socket = Attributes {
        socket: Some(1),
        ..Attributes::default()
    };
    fixture.about(Subject::Entity(Entity::System), of_socket);
    fixture.gauge("resctrl_bandwidth", "GB/s", Estimate::exact(13.0));
    fixture.about(Subject::Pmuscope, Attributes::default());
    let version = vec![("version", "1.2.3".to_owned())];
    fixture.add(
        ("build", "", MetricKind::Info),
        Ok(Value::Info(version)),
        None,
    );
    let hook = Value::State("sched-switch", &["sched-switch", "cgroup-switches"]);
    fixture.add(("hook", "", MetricKind::State), Ok(hook), None);
    fixture.count(("runs", "", MetricKind::Counter), 4_096, 4_096.0);
    fixture.gauge("ns_per_run_same_owner", "ns", Estimate::exact(62.0));
    fixture.absent("ns_per_run_charging", "ns", Reason::NotMeasured);
    fixture.gauge("spe_period", "", Estimate::exact(32_768.0));
    fixture.report.tables.push(ReportTable {
        name: "pages",
        columns: vec![
            "pid",
            "address",
            "memory_access_samples",
            "memory_access_latency_mean_cycles",
        ],
        counts: Vec::new(),
        small_rows: BTreeSet::new(),
        rows: [(7, Some(12.5)), (1, None)]
            .map(|(samples, mean)| {
                vec![
                    TableCell::Number(42),
                    TableCell::Address(0x7f00_0000_1000 * samples),
                    TableCell::Number(samples),
                    TableCell::Estimate(mean.map(sampled)),
                ]
            })
            .into(),
    });
    fixture.report.tables.push(lines());
    fixture.report.findings = vec![ReportFinding {
        kind: FindingKind::InboundWrites,
        about: FindingSubject::Socket(0),
        text: "writes of socket 0 go past the cache".to_owned(),
        named: None,
    }];
    fixture.report.advice = &[Advice {
        what: "reuse buffers",
        lowers: &["misses", "memory_bandwidth"],
    }];
    fixture.report
}

/// A cache line that two containers share, with unknown data sources.
fn lines() -> ReportTable {
    let row = |owner: Entity, read: &str, written: &str, peers: Option<f64>| {
        vec![
            TableCell::Text("phys:0x80001040".to_owned()),
            TableCell::Text("disjoint".to_owned()),
            TableCell::Owner(Subject::Entity(owner)),
            TableCell::Text(read.to_owned()),
            TableCell::Text(written.to_owned()),
            TableCell::Count(7),
            TableCell::Count(u64::MAX),
            TableCell::Estimate(peers.map(Estimate::exact)),
            TableCell::Count(2),
        ]
    };
    let container = Entity::Container {
        id: "0123456789abcdef".repeat(4).as_str().into(),
        pod: None,
    };
    let process = Entity::Process {
        tgid: 42,
        name: Some(HOSTILE.into()),
    };
    ReportTable {
        name: "lines",
        columns: vec![
            "line",
            "sharing",
            "owner",
            "bytes_read",
            "bytes_written",
            "spe_reads",
            "spe_writes",
            "spe_from_other_cores",
            "cpus",
        ],
        small_rows: BTreeSet::new(),
        rows: vec![
            row(container, "0 8-15", "0", Some(3.0)),
            row(process, "", "32", None),
        ],
        counts: vec![
            ("spe_line_samples", 100),
            ("spe_line_samples_kept", 27),
            ("lines_shared", 1),
        ],
    }
}

/// A hostile process name.
pub(in crate::emit) const HOSTILE: &str = "\u{1b}]0;gone\u{7}\u{9b}2J\r\nroot \u{202e}\"\\";

/// The report with hostile names.
pub(in crate::emit) fn hostile() -> Report {
    let mut report = report();
    let mut entities = report
        .subjects
        .iter_mut()
        .filter_map(|subject| match subject {
            Subject::Entity(entity) => Some(entity),
            _ => None,
        });
    let (tgid, name) = (42, Some(HOSTILE.into()));
    let names = [
        Entity::Command(HOSTILE.into()),
        Entity::Cgroup(format!("/{HOSTILE}").into()),
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
    for attributes in &mut report.attributes {
        attributes.device = attributes.socket.map(|_| HOSTILE.into());
    }
    report.findings[0].text = HOSTILE.into();
    for series in &mut report.series {
        if let Err(Reason::NotPlanned(reason)) = &mut series.value {
            *reason = HOSTILE.into();
        }
    }
    report
}
