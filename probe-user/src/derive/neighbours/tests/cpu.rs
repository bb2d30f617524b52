//! Windows of a container that waits for CPUs, at times behind another one.

use std::time::Duration;

use super::{container, gauge, values};
use crate::{
    derive::{
        MetricInfo, NeighbourEvidence, NeighbourVerdict, Neighbours, Report, Subject,
        neighbours::usual::{MAX_CALM, MIN_CALM},
    },
    join::{Entity, EntityWaits, WaitRows, WaitedFor},
};

/// A window of 10 s: the part of its time that `web` waits, and the seconds that it waits behind
/// each owner.
struct Waited<'a> {
    ratio: f64,
    behind: &'a [(WaitedFor, f64)],
    throttled: bool,
}

fn behind(name: &str) -> WaitedFor {
    WaitedFor::Entity(container(name))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few seconds"
)]
fn judge(neighbours: &mut Neighbours, waited: &Waited<'_>) -> (Report, Vec<NeighbourVerdict>) {
    let mut report = Report::default();
    report.clear(Duration::ZERO, Duration::ZERO, Duration::from_secs(10));
    let subject = report.subject(Subject::Entity(container("web")));
    let metric = report.add_metric(MetricInfo::gauge("cpu_wait_ratio", "", ""));
    report.push([subject, metric, 0], gauge(waited.ratio), None);
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let parts = waited.behind.iter();
    let mut row = EntityWaits {
        behind: parts.map(|(who, it)| (who.clone(), nanos(*it))).collect(),
        throttled: waited.throttled,
        ..EntityWaits::default()
    };
    row.add_up(&container("web"));
    let waits = WaitRows {
        entities: [(container("web"), row)].into(),
        ..WaitRows::default()
    };
    let verdicts = neighbours.judge(&mut report, Some(&waits));
    (report, verdicts)
}

/// `web` waits the part `ratio` of its time: `others` seconds behind `batch`, `others` seconds
/// behind itself, and a little behind the kernel.
fn window(neighbours: &mut Neighbours, ratio: f64, others: f64) -> (Report, Vec<NeighbourVerdict>) {
    let behind = [
        (behind("batch"), others),
        (behind("web"), others),
        (WaitedFor::Entity(Entity::System), others / 100.0),
        (WaitedFor::Nobody, 0.001),
    ];
    let waited = Waited {
        ratio,
        behind: &behind,
        throttled: false,
    };
    judge(neighbours, &waited)
}

/// The detection after ten windows in which `web` waits a tenth of its time, half of that behind
/// others.
fn after_calm_windows() -> Neighbours {
    let mut neighbours = Neighbours::new(None);
    for at in 0..MIN_CALM {
        let ratio = if at % 2 == 0 { 0.11 } else { 0.09 };
        let (report, verdicts) = window(&mut neighbours, ratio, 0.2);
        assert_eq!(
            (verdicts, values(&report, "noisy_neighbour_cpu")),
            (vec![], vec![])
        );
    }
    neighbours
}

#[test]
fn three_windows_of_long_waits_behind_others_are_a_verdict() {
    let mut neighbours = after_calm_windows();
    for _ in 0..2 {
        let (report, verdicts) = window(&mut neighbours, 0.6, 3.0);
        assert_eq!(verdicts, []);
        assert_eq!(
            values(&report, "noisy_neighbour_cpu"),
            [(container("web"), 0.0)]
        );
    }
    let (report, verdicts) = window(&mut neighbours, 0.6, 3.0);
    let [verdict] = verdicts.as_slice() else {
        panic!("{verdicts:?}")
    };
    assert_eq!(verdict.victim, container("web"));
    assert_eq!(verdict.evidence, NeighbourEvidence::Cpu);
    assert!(verdict.begins);
    // 3.03 of 6.031 s were behind others.
    assert!((verdict.value - 0.6 * 3.03 / 6.031).abs() < 1e-9);
    assert!((verdict.usual.0 - 0.05).abs() < 1e-3);
    let [(first, part), (second, _)] = verdict.suspects.as_slice() else {
        panic!("{verdict:?}")
    };
    assert_eq!((first, second), (&container("batch"), &Entity::System));
    assert!((part - 3.0 / 6.031).abs() < 1e-9);
    assert_eq!(
        values(&report, "noisy_neighbour_cpu"),
        [(container("web"), 1.0)]
    );
}

/// Once its neighbour stops, a container that never waits has no row of waits.
#[test]
fn a_verdict_ends_without_a_row_of_waits() {
    let mut neighbours = after_calm_windows();
    for _ in 0..3 {
        window(&mut neighbours, 0.6, 3.0);
    }
    let suffers = [(); 5].map(|()| {
        let mut report = Report::default();
        report.clear(Duration::ZERO, Duration::ZERO, Duration::from_secs(10));
        let subject = report.subject(Subject::Entity(container("web")));
        let metric = report.add_metric(MetricInfo::gauge("cpu_wait_ratio", "", ""));
        report.push([subject, metric, 0], gauge(0.0), None);
        let verdicts = neighbours.judge(&mut report, Some(&WaitRows::default()));
        let judged = values(&report, "noisy_neighbour_cpu");
        assert_eq!(judged.len(), 1);
        !verdicts.is_empty()
    });
    assert_eq!(suffers, [true, true, true, false, false]);
}

/// However long it lasts, the disturbed level does not become the usual one.
#[test]
fn a_verdict_lasts_as_long_as_the_neighbour() {
    let mut neighbours = after_calm_windows();
    let begun = (0..2 * MAX_CALM).filter(|_| {
        let (_, verdicts) = window(&mut neighbours, 0.6, 3.0);
        verdicts.iter().any(|verdict| verdict.begins)
    });
    assert_eq!(begun.count(), 1);
    let ends = [0.1; 5].map(|ratio| window(&mut neighbours, ratio, 0.2).1.is_empty());
    assert_eq!(ends, [false, false, false, true, true]);
}

#[test]
fn own_idle_throttled_and_short_waits_are_no_verdict() {
    let own = [(behind("web"), 6.0), (behind("batch"), 0.2)];
    let idle = [(WaitedFor::Nobody, 6.0), (WaitedFor::Earlier, 1.0)];
    let quota = [(behind("batch"), 6.0)];
    // Less than 1% of the window.
    let little = [(behind("batch"), 0.09)];
    let cases: [(&[_], bool); 4] = [
        (&own, false),
        (&idle, false),
        (&quota, true),
        (&little, false),
    ];
    for (behind, throttled) in cases {
        let mut neighbours = after_calm_windows();
        let waited = Waited {
            ratio: 0.9,
            behind,
            throttled,
        };
        for _ in 0..5 {
            let (report, verdicts) = judge(&mut neighbours, &waited);
            assert_eq!(verdicts, []);
            let judged = values(&report, "noisy_neighbour_cpu");
            assert_eq!(judged.is_empty(), throttled);
        }
    }
}

#[test]
fn without_waits_or_their_ratio_nobody_is_judged() {
    let mut neighbours = after_calm_windows();
    let mut report = Report::default();
    report.clear(Duration::ZERO, Duration::ZERO, Duration::from_secs(10));
    assert_eq!(neighbours.judge(&mut report, None), []);
    assert_eq!(
        neighbours.judge(&mut report, Some(&WaitRows::default())),
        []
    );
}

/// Only the end of a container removes its history, so an idle one keeps its usual level.
#[test]
fn containers_that_ended_are_forgotten() {
    let mut neighbours = after_calm_windows();
    let history_count = |neighbours: &Neighbours| neighbours.cpu.histories.0.len();
    neighbours.forget(&[container("web")].into());
    assert_eq!(history_count(&neighbours), 1);
    neighbours.forget(&[container("batch")].into());
    assert_eq!(history_count(&neighbours), 0);
}
