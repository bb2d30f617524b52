//! Windows of two containers on a socket with memory pressure at times.

use std::time::Duration;

use proptest::prelude::*;
use test_support::sysfs;

use super::{container, gauge, values};
use crate::{
    catalogue::{Chip, Hardware, MetricPlace},
    derive::{
        Attributes, MemoryNeighbours, MetricInfo, NeighbourEvidence, Neighbours, Reason, Report,
        ReportSection, Subject,
        neighbours::{
            memory::IPC,
            usual::{BEGINS, ContainerHistory, ENDS, JUDGED, MAX_CALM},
        },
    },
    machine::Pmus,
    plan::{Plan, tests::of_metrics},
};

const READ: &str = "cmem_read_bandwidth";
const WRITE: &str = "cmem_write_bandwidth";

fn plan(metrics: &str) -> Plan {
    let machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    let pmus = Pmus::read(&sysfs("grace")).unwrap();
    of_metrics(metrics, machine, &pmus, 2)
}

/// The detection for sockets with a peak of 100 GB/s.
fn neighbours() -> Neighbours {
    let memory = MemoryNeighbours::new(&plan(&format!("{READ},{WRITE},ipc")), 100e9);
    Neighbours::new(Some(memory.unwrap()))
}

/// A window: IPC and GB/s read by each container, and GB/s read by socket 0.
struct GivenWindow<'a> {
    containers: &'a [(&'a str, f64, f64)],
    read: Option<f64>,
}

fn report(given: &GivenWindow<'_>) -> Report {
    let mut report = Report::default();
    report.clear(Duration::ZERO, Duration::ZERO, Duration::from_secs(10));
    let metric = |report: &mut Report, name: &str, unit: &str| {
        report.add_metric(MetricInfo::gauge(name, "", unit))
    };
    for (name, ipc, _) in given.containers {
        let subject = report.subject(Subject::Entity(container(name)));
        let metric = metric(&mut report, IPC, "1/cycle");
        report.push([subject, metric, 0], gauge(*ipc), None);
    }
    let place = MetricPlace {
        socket: Some(0),
        ..MetricPlace::default()
    };
    let subject = report.subject(Subject::Place(place, Vec::new()));
    for (name, moved) in [(READ, given.read), (WRITE, Some(0.0))] {
        let metric = metric(&mut report, name, "GB/s");
        let value = moved.map_or(Err(Reason::NotMeasured), gauge);
        report.push([subject, metric, 0], value, None);
    }
    let attributes = report.add_attributes(Attributes {
        socket: Some(0),
        ..Attributes::default()
    });
    for (name, _, moved) in given.containers {
        let subject = report.subject(Subject::Entity(container(name)));
        let metric = metric(&mut report, &format!("{READ}_apportioned"), "GB/s");
        report.push([subject, metric, attributes], gauge(*moved), None);
    }
    let own = report.subject(Subject::Pmuscope);
    let metric = metric(&mut report, "rows", "");
    report.push([own, metric, 0], gauge(3.0), None);
    report
}

/// A window in which `web` has this IPC, and `batch` causes nearly all of `read` GB/s.
fn window(ipc: f64, read: f64) -> Report {
    let containers = [("web", ipc, 1.0), ("batch", 1.0, read - 1.0)];
    report(&GivenWindow {
        containers: &containers,
        read: Some(read),
    })
}

/// Judges ten windows without pressure, with an IPC of 2.0 ± 0.1.
fn judge_calm_windows(neighbours: &mut Neighbours) {
    for at in 0..10 {
        let ipc = 2.0 + if at % 2 == 0 { 0.1 } else { -0.1 };
        assert_eq!(neighbours.judge(&mut window(ipc, 10.0), None), []);
    }
}

#[test]
fn three_low_windows_of_five_under_pressure_are_a_verdict() {
    let mut neighbours = neighbours();
    judge_calm_windows(&mut neighbours);
    assert_eq!(neighbours.judge(&mut window(1.2, 90.0), None), []);
    assert_eq!(neighbours.judge(&mut window(1.2, 90.0), None), []);
    // A window with the usual IPC in between does not matter.
    assert_eq!(neighbours.judge(&mut window(2.0, 90.0), None), []);
    let mut third = window(1.2, 90.0);
    let verdicts = neighbours.judge(&mut third, None);
    let [verdict] = verdicts.as_slice() else {
        panic!("{verdicts:?}")
    };
    assert_eq!(verdict.victim, container("web"));
    assert_eq!((verdict.value, verdict.begins), (1.2, true));
    let NeighbourEvidence::Memory { socket, pressure } = verdict.evidence else {
        panic!("{verdict:?}")
    };
    assert!(socket == 0 && (pressure - 0.9).abs() < 1e-9);
    let (mean, deviation) = verdict.usual;
    assert!((mean - 2.0).abs() < 1e-9 && (deviation - 0.105).abs() < 1e-3);
    assert_eq!(verdict.suspects, [(container("batch"), 89e9)]);
    assert_eq!(
        values(&third, "noisy_neighbour_memory"),
        [(container("web"), 1.0), (container("batch"), 0.0)]
    );
    assert_eq!(
        values(&third, "noisy_neighbour_memory_suspect_bandwidth"),
        [(container("batch"), 89.0)]
    );
    // Each series is in its section: a row has one group of series, and the self-counters come
    // last.
    let parts: Vec<ReportSection> = third.groups().map(|group| group.section).collect();
    let rows = parts
        .iter()
        .filter(|part| **part == ReportSection::Rows)
        .count();
    assert_eq!(
        (rows, parts.last()),
        (2, Some(&ReportSection::SelfCounters))
    );
    let next = neighbours.judge(&mut window(1.2, 90.0), None);
    assert!(!next[0].begins);
}

#[test]
fn a_verdict_ends_when_at_most_one_window_of_five_is_low() {
    let mut neighbours = neighbours();
    judge_calm_windows(&mut neighbours);
    let mut holds = |ipc| !neighbours.judge(&mut window(ipc, 90.0), None).is_empty();
    let lows = [1.2; 5].map(&mut holds);
    assert_eq!(lows, [false, false, true, true, true]);
    // Two of the last five continue the verdict.
    let recovered = [2.0; 5].map(&mut holds);
    assert_eq!(recovered, [true, true, true, false, false]);
    assert!(!holds(1.2) && !holds(2.0) && !holds(1.2));
}

#[test]
fn without_pressure_or_a_drop_there_is_no_verdict() {
    for (ipc, read) in [(1.2, 79.0), (1.81, 90.0), (3.0, 90.0)] {
        let mut neighbours = neighbours();
        judge_calm_windows(&mut neighbours);
        for _ in 0..20 {
            assert_eq!(
                neighbours.judge(&mut window(ipc, read), None),
                [],
                "{ipc}, {read}"
            );
        }
    }
}

/// A phase without pressure becomes the usual performance.
#[test]
fn the_usual_level_follows_the_container() {
    let mut neighbours = neighbours();
    judge_calm_windows(&mut neighbours);
    for _ in 0..MAX_CALM {
        assert_eq!(neighbours.judge(&mut window(1.2, 10.0), None), []);
    }
    for _ in 0..5 {
        assert_eq!(neighbours.judge(&mut window(1.2, 90.0), None), []);
    }
    // A drop by less than 1% is no verdict, however steady the container is.
    for _ in 0..5 {
        assert_eq!(neighbours.judge(&mut window(1.19, 90.0), None), []);
    }
}

#[test]
fn unknown_values_are_not_judged() {
    let mut neighbours = neighbours();
    // Nine windows do not establish the usual performance.
    for _ in 0..9 {
        neighbours.judge(&mut window(2.0, 10.0), None);
    }
    let mut early = window(1.0, 90.0);
    assert_eq!(neighbours.judge(&mut early, None), []);
    assert_eq!(values(&early, "noisy_neighbour_memory"), []);
    neighbours.judge(&mut window(2.0, 10.0), None);
    // Without traffic of the socket there is no pressure.
    let mut unknown = report(&GivenWindow {
        containers: &[("web", 1.0, 1.0)],
        read: None,
    });
    assert_eq!(neighbours.judge(&mut unknown, None), []);
    assert_eq!(values(&unknown, "noisy_neighbour_memory"), []);
    // A container without IPC is no victim.
    let mut unmeasured = window(1.0, 90.0);
    unmeasured.series[0].value = Err(Reason::NotMeasured);
    neighbours.judge(&mut unmeasured, None);
    let judged = values(&unmeasured, "noisy_neighbour_memory");
    assert_eq!(judged, [(container("batch"), 0.0)]);
}

#[test]
fn a_plan_without_the_needed_metrics_is_refused() {
    let refused = |metrics: &str| MemoryNeighbours::new(&plan(metrics), 1e9).unwrap_err();
    assert!(
        refused("ipc").contains("no memory-bandwidth metric"),
        "{}",
        refused("ipc")
    );
    assert!(refused(READ).contains("ipc is not counted"));
}

#[test]
fn containers_that_ended_are_forgotten() {
    let mut neighbours = neighbours();
    let history_count =
        |neighbours: &Neighbours| neighbours.memory.as_ref().unwrap().histories.0.len();
    neighbours.judge(&mut window(2.0, 10.0), None);
    assert_eq!(history_count(&neighbours), 2);
    neighbours.forget(&[container("web")].into());
    assert_eq!(history_count(&neighbours), 1);
}

proptest! {
    /// A verdict starts with three low windows of five and continues with two.
    #[test]
    fn a_verdict_does_not_flap(lows in prop::collection::vec(any::<bool>(), 1..200)) {
        let mut history = ContainerHistory::default();
        let mut before = false;
        for (at, low) in lows.iter().enumerate() {
            let holds = history.judge(*low, (2.0, 0.1));
            let last = &lows[(at + 1).saturating_sub(JUDGED)..=at];
            let count = last.iter().filter(|low| **low).count();
            prop_assert_eq!(holds.suffers, count >= if before { ENDS + 1 } else { BEGINS });
            prop_assert_eq!(holds.begins, holds.suffers && !before);
            before = holds.suffers;
        }
    }
}
